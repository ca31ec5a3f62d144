"""The registry operations of a training run, for tests that interrupt them anywhere and check that nothing is stored twice."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from model_registry.channels import channel
from model_registry.signing import bundle, signatures
from model_registry.signing.keys import PrivateKey
from model_registry.signing.signatures import TrustedKey
from model_registry.stores.base import Store
from model_registry.stores.oci_layout import LayoutStore
from tests.support.attested import RUN, comparison, provenance
from tests.unit.model_registry.conftest import MakePackage, onnx_bytes
from training.publish.attest_and_sign import attest_once, sign_once
from training.publish.promote import ComparedChampion, Overtaken, Promoted, promote_once, reason_of
from training.publish.push_version import Origin, push, version_of
from training.snapshot import dataset
from training.snapshot.files import Copied, Frozen, finish

AT = datetime(2026, 7, 1, 23, 30, tzinfo=UTC)
KEY = PrivateKey(ec.derive_private_key(23, ec.SECP256R1()))  # the same in every process of a test
KEYS = [TrustedKey("training", KEY.public())]
FIRST = ComparedChampion()
VERSION = version_of(RUN, AT)
OTHER = "ba9876543210"  # another run
EVALUATED = {"dataset": {"name": "hold-out", "digest": {"sha256": f"{2:064x}"}}, "metrics": {"auc": 0.91}}


class Killed(BaseException):
    """Raised in place of a write, as if the process had been killed there."""


@pytest.fixture
def folder(make_package: MakePackage) -> Path:
    return make_package("made", model=onnx_bytes(b"made"))


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return tmp_path / "records"


@pytest.fixture
def copied(records: Path) -> Copied:
    return snapshot(records)


@pytest.fixture
def pushed(store: LayoutStore, folder: Path, copied: Copied) -> str:
    return push(store, folder, VERSION, origin(copied)).digest


def snapshot(folder: Path, note: bytes = b"", topic: str = "flights") -> Copied:
    """Write the files of a copied snapshot with meaningless content; return its manifest."""
    paths = [f"events/{topic}/0.parquet", f"events/{topic}/1.parquet", "labels/outcomes/0.parquet"]
    for number, path in enumerate(paths):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"%d" % number * 5_000 + note)
    frozen = Frozen(1, "cluster", {topic: "a", "outcomes": "b"}, {topic: [(0, 9), (0, 9)]}, {"outcomes": [(0, 9)]})
    return finish(folder, frozen, dict.fromkeys(paths, 9))


def origin(copied: Copied, run: str = RUN) -> Origin:
    return Origin(run, copied.digest, f"sha256:{4:064x}", 7, "trees")


def publish(
    store: Store, folder: Path, records: Path, copied: Copied, judged: ComparedChampion = FIRST, run: str = RUN, **compared: Any
) -> Promoted | Overtaken:
    """Do everything that a training run does in the registry, in the same order: push, attest, sign and promote."""
    version = version_of(run, AT)
    digest = push(store, folder, version, origin(copied, run)).digest
    dataset.push(store, digest, records, copied)
    champion = None if judged.digest is None else {"version": "x", "digest": judged.digest, "revision": judged.revision}
    predicates = {
        "slsa-provenance": provenance(run),
        "evaluation": EVALUATED,
        "comparison": comparison(digest, run=run, champion=champion, **compared),
    }
    for type_, predicate in predicates.items():
        attest_once(store, digest, type_, predicate, KEY, AT)
    sign_once(store, digest, version, run, KEY, AT)
    return promote_once(store, "prod", version, digest, judged, run, "training@host", datetime.now(UTC))


def check_once(store: Store, run: str = RUN) -> None:
    """Check that the registry has each result of this run exactly once, and that the channel points to the run's version."""
    digest = store.resolve(version_of(run, AT)).digest
    kinds = Counter(
        bundle.parse_statement(bundle.parse(signature.data).payload).predicate_type
        for signature in signatures.collect(store, digest)
    )
    assert kinds[bundle.SIGNED] == 1
    assert sorted(kinds.values()) == [1, 1, 1, 1], kinds
    assert dataset.of_version(store, digest)
    moves = [move for move in channel.history(store, "prod") if move.reason == reason_of(run)]
    assert len(moves) == 1, moves
    assert channel.resolve(store, "prod").digest == digest
