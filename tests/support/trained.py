"""A registry as training runs leave it: pushed packages, attestations about these packages, and a moved channel."""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from model_registry import package
from model_registry.channels import channel
from model_registry.channels.move_request import MoveRequest
from model_registry.oci import reference
from model_registry.signing import attestation, bundle, keys, signatures
from model_registry.signing.keys import PrivateKey
from model_registry.signing.predicates import COMPARISON
from model_registry.stores.base import Store
from model_registry.stores.open import open_store
from tests.support import models

LABELS = ["late", "on time"]
DAY = datetime(2026, 3, 1, 4, 12, tzinfo=UTC)


def run_id(number: int) -> str:
    return f"{0x3F2A11C0DE00 + number:012x}"


def version(number: int) -> str:
    """Return the name of the version that was trained `number` days after the first version."""
    return f"{DAY + timedelta(days=number):%Y%m%d}-{run_id(number)}"


def search(trials: int = 16) -> dict[str, Any]:
    """Return the result of a search (successive halving) with this number of trials, as a provenance has it."""
    remaining, rungs, budget_spent = list(range(trials)), [], 0
    for budget, before in ((27, 0), (81, 27), (243, 81)):
        scores = {k: 0.86 + 0.02 * math.log(budget / 9) / math.log(27) + 0.03 * math.sin(7 * k) ** 2 for k in remaining}
        budget_spent += (budget - before) * len(remaining)
        remaining = sorted(remaining, key=lambda k: -scores[k])[: max(1, len(remaining) // 3)]
        rungs.append({"budget": budget, "trials": [{"trial": k, "score": s} for k, s in scores.items()], "kept": remaining})
    parameters = {"num_leaves": 63, "learning_rate": 0.07, "monotone": [1, 0]}
    best = {"trial": remaining[0], "parameters": parameters, "budget": 243, "score": scores[remaining[0]]}
    tried = [{"trial": k, "parameters": parameters} for k in range(trials)]
    return {"metric": "auc", "rungs": rungs, "trials": tried, "best": best, "spent": budget_spent, "unstopped": 243 * trials}


def provenance(number: int, champion: tuple[str, str] | None = None) -> dict[str, Any]:
    """Return the provenance of a run whose version was compared with a champion (version and digest)."""
    dependencies: list[dict[str, Any]] = [
        {"name": name, "uri": f"kafka:cluster/{topic}/{k}", "annotations": {"from": 1_000 * k, "to": 90_000 + k}}
        for name, topic in (("events", "flights"), ("labels", "flights.outcomes"))
        for k in range(4)
    ]
    dependencies += [
        {"name": "dataset", "uri": "oci:registry", "digest": {"sha256": "d" * 64}},
        {"name": "environment", "digest": {"sha256": "e" * 64}},
    ]
    if champion is not None:
        annotations = {"version": champion[0], "revision": 1}
        dependencies.append(
            {"name": "champion", "uri": "oci:registry", "digest": {"sha256": champion[1][7:]}, "annotations": annotations}
        )
    return {
        "buildDefinition": {
            "buildType": "https://scorestream.io/training/v1",
            "externalParameters": {"config": {"training": {"gate": {"margin": 0.002, "slice_margin": 0.03}}}, "signature": {}},
            "internalParameters": {
                "run": run_id(number),
                "seed": 2013,
                "recipe": "trees",
                "parameters": {"max_bin": 255},
                "search": search(),
            },
            "resolvedDependencies": dependencies,
        },
        "runDetails": {
            "builder": {"id": "https://scorestream.io/training"},
            "metadata": {"invocationId": run_id(number)},
        },
    }


def matrix(right: int) -> dict[str, Any]:
    return {"labels": LABELS, "counts": [[right, 11_000 - right], [5_200, 39_428]]}


def evaluation(auc: float = 0.9061) -> dict[str, Any]:
    return {
        "dataset": {"name": "hold-out", "digest": {"sha256": "d" * 64}},
        "metrics": {"auc": auc, "brier": 0.0912},
        "confusion_matrix": matrix(7_410),
    }


def difference(value: float, half: float) -> dict[str, float]:
    return {"value": value, "low": value - half, "high": value + half}


def comparison(
    number: int, digest: str, champion: tuple[str, str] | None = None, change: float = 0.0021, **stated: Any
) -> dict[str, Any]:
    """Return the comparison of the run whose version has this digest; `change` is the difference of the AUC.

    The verdict is `passed`, or `refused` if the lower end of the difference's interval is below -0.002.
    """
    interval, passed = difference(change, 0.0018), change - 0.0018 >= -0.002
    because = (
        f"auc {change:+.4f} [{interval['low']:.4f}, {interval['high']:.4f}]: not worse than the champion by more than 0.002"
        if passed
        else f"auc {change:+.4f}: the lower bound {interval['low']:.4f} lies below -0.002, and late loses 1.4 points of recall"
    )
    rows = {"digest": "sha256:" + "a" * 64, "count": 55_628, "from": "2026-01-15T00:00:00Z", "to": "2026-01-29T00:00:00Z"}
    slices = [
        {
            "field": "carrier",
            "value": name,
            "rows": 9_000 - 900 * k,
            "difference": difference(change * (k - 1), 0.006 + 0.004 * k),
        }
        for k, name in enumerate(("UA", "DL", "AA", "B6"))
    ]
    return {
        "run": run_id(number),
        "rows": rows | {"blocks": 14},
        "metric": "auc",
        "challenger": rival(version(number), digest, change),
        "champion": rival(*champion) | {"revision": 1} if champion else None,
        "difference": interval if champion else None,
        "discordant": {"only_champion_right": 1_210, "only_challenger_right": 1_302, "mcnemar_p": 0.067},
        "slices": slices,
        "rules": rules(interval["low"], passed=passed),
        "verdict": "passed" if passed else "refused",
        "because": because,
    } | stated


def rival(name: str, digest: str, change: float = 0.0) -> dict[str, Any]:
    """Return a compared version with its metrics; `change` is its AUC minus the champion's."""
    metrics = {"auc": 0.9061 + change, "brier": 0.0912 - change, "recall late": 0.6736 + 3 * change}
    return {"version": name, "digest": digest, "metrics": metrics, "confusion_matrix": matrix(7_410 + int(60_000 * change))}


def rules(low: float, *, passed: bool) -> list[dict[str, Any]]:
    return [
        {"name": "coverage", "value": 0.981, "bound": 0.9, "passed": True},
        {"name": "not worse: auc", "value": low, "bound": -0.002, "passed": passed},
        {"name": "recall of late", "value": 0.003 if passed else -0.014, "bound": -0.01, "passed": passed},
        {"name": "brier", "value": 0.0003, "bound": 0.002, "passed": True},
        {"name": "slices", "value": None, "bound": None, "passed": True},
    ]


class Runs:
    """A registry in a folder, with a key that the policy in the same folder trusts, and a key that no policy trusts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store: Store = open_store(reference.parse("oci:./registry/model", base_dir=folder))
        self.key, self.stranger = (self._key(name) for name in ("training", "stranger"))
        self.policy = folder / "policy.yaml"
        self.policy.write_text(yaml.safe_dump({"signatures": "optional", "keys": [{"id": "training", "file": "training.pub"}]}))

    @property
    def trusted(self) -> list[signatures.TrustedKey]:
        return [signatures.TrustedKey("training", self.key.public())]

    def push(self, number: int) -> str:
        """Push a version without attestations; return its digest."""
        folder = models.linear_package(self.folder / version(number), 2.0 + number)
        return package.push(self.store, folder, "model", version(number)).digest

    def attest(
        self, digest: str, type_: str, predicate: dict[str, Any], key: PrivateKey | None = None, minutes: int = 0
    ) -> None:
        attestation.attest(self.store, digest, type_, predicate, key or self.key, DAY + timedelta(minutes=minutes))

    def claim(self, digest: str, type_: str, predicate: dict[str, Any]) -> None:
        """Sign any predicate about a version without a check of its content, as another program could."""
        statement = bundle.build_statement(digest, type_, predicate)
        signatures.attach(self.store, digest, type_, statement, self.key, DAY)

    def run(
        self, number: int, champion: tuple[str, str] | None = None, key: PrivateKey | None = None, **stated: Any
    ) -> tuple[str, str]:
        """Push a version with all three attestations; return its name and digest. `stated` changes its comparison."""
        digest = self.push(number)
        self.attest(digest, "slsa-provenance", provenance(number, champion), key)
        self.attest(digest, "evaluation", evaluation(), key)
        self.attest(digest, COMPARISON, comparison(number, digest, champion, **stated), key)
        return version(number), digest

    def promote(self, number: int, reason: str = "") -> None:
        stated_reason = reason or f"run {run_id(number)}"
        channel.promote(
            self.store, "prod", version(number), MoveRequest("training@ci", stated_reason, DAY + timedelta(days=number))
        )

    def _key(self, name: str) -> PrivateKey:
        private, _, _ = keys.generate(self.folder / name, None)
        return keys.read_private(private, None)


def a_month(folder: Path) -> Runs:
    """Create a registry with five versions.

    The versions are: a first model, which is promoted; a version with the same scores as the first; a version with the verdict
    `passed` that no trusted key signed; a version without attestations; and a version with the verdict `refused`.
    """
    made = Runs(folder)
    champion = made.run(0, because="a first model: auc 0.9061 [0.9032, 0.9089] is better than chance")
    made.promote(0)
    made.run(1, champion, verdict="same", because="the challenger gives the champion's scores", change=0.0)
    made.run(2, champion, key=made.stranger)
    made.push(3)
    made.run(4, champion, change=-0.0061)
    return made
