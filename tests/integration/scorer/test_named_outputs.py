"""Versions of several named outputs: the figures of labels, the comparison and the judge are of the output that decides."""

import json
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper
from sklearn import metrics

from model_registry.channels import channel
from model_registry.oci import reference
from model_registry.stores.open import open_store
from scorer.scores.record import RecordEncoder
from tests.integration.scorer.rig import MakeRig, Rig
from tests.integration.scorer.test_judge import Bus
from tests.support import models

COUNT = 400
SIGNATURE = {
    "inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a", "b"]}],
    "output": [{"name": "amount", "tensor": "z"}, {"name": "risk", "tensor": "y"}],
    "decision": {"threshold": 0.5, "at_or_above": "high", "below": "low", "output": "risk"},
}
FACTORS = {"1.0.0": 1.0, "2.0.0": 0.5}


def of_two_outputs(folder: Path, factor: float) -> Path:
    """Make a package: `risk` is the factor times a + b, and `amount` is 1,000 of it."""
    nodes = [helper.make_node("MatMul", ["x", name], [output]) for name, output in (("w", "y"), ("v", "z"))]
    constants = [models.constant(name, [[value]] * 2) for name, value in (("w", factor), ("v", 1_000.0))]
    folder.mkdir()
    outputs = [models.tensor(name, TensorProto.FLOAT, "N", 1) for name in "yz"]
    models.save(nodes, [models.X], outputs, folder / "model.onnx", constants)
    (folder / "signature.json").write_text(json.dumps(SIGNATURE))
    return folder


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    rig = make_rig()
    rig.configure(labels={"topic": f"{rig.name}.labels", "id": "id", "value": "outcome"})
    for version, factor in FACTORS.items():
        rig.push(of_two_outputs(rig.folder / version, factor), version)
    rig.promote("1.0.0")
    for topic in (rig.events_topic, rig.scores_topic, rig.dead_topic, f"{rig.scores_topic}.shadow", f"{rig.name}.labels"):
        rig.make_topic(topic, 3)
    return rig


def risk(n: int, factor: float = 1.0) -> float:
    return factor * (n % 100) / 100


def true(n: int) -> int:
    return int(n % 100 + n % 7 * 9 > 70)


def answer(bus: Bus, topic: str, role: str, version: str) -> None:
    """Write the answers of a version to COUNT events."""
    store = open_store(reference.parse("oci:./registry/model", base_dir=bus.rig.folder))
    digest = channel.resolve(store, version).digest
    encoder = RecordEncoder(model="m", version=version, digest=digest, role=role, region="r")
    for n in range(COUNT):
        score = risk(n, FACTORS[version])
        value, decision = b'{"amount":%d,"risk":%g}' % (1_000 * n, score), "high" if score >= 0.5 else "low"
        place = bus.rig.events_topic, n % 3
        bus.write(topic, n, *encoder.encode([f"e{n}"], [value], [decision], [place], [n // 3], [1_000], "scored", 1_000))
    bus.flush()


def test_figures_are_of_the_output_that_decides(rig: Rig) -> None:
    bus = Bus(rig)
    rig.emit([{"id": f"e{n}", "key": f"k{n}", "a": risk(n), "b": 0.0} for n in range(COUNT)])
    answer(bus, rig.scores_topic, "champion", "1.0.0")
    answer(bus, f"{rig.scores_topic}.shadow", "shadow", "2.0.0")
    for n in range(COUNT):
        bus.label(json.dumps({"id": f"e{n}", "outcome": true(n)}).encode())
    bus.flush()
    outcomes, scores = [true(n) for n in range(COUNT)], [risk(n) for n in range(COUNT)]

    labels: dict[str, Any] = json.loads(rig.run("scorer", "labels", "scorer.yaml", "--json").stdout)
    (quality,) = labels["versions"]
    assert quality["auc"] == pytest.approx(metrics.roc_auc_score(outcomes, scores), abs=1e-9)
    assert quality["brier"] == pytest.approx(metrics.brier_score_loss(outcomes, scores), abs=1e-9)
    assert (labels["classes"], labels["labels_refused"], labels["scores_undecided"]) == (["low", "high"], [], {})

    compared = json.loads(rig.run("scorer", "compare", "scorer.yaml", "2.0.0", "--json", code=1).stdout)
    assert compared["psi"] > 0.2
    assert compared["labels"]["versions"][1]["brier"] == pytest.approx(
        metrics.brier_score_loss(outcomes, [risk(n, 0.5) for n in range(COUNT)]), abs=1e-6
    )

    judged = json.loads(
        rig.run("scorer", "judge", "scorer.yaml", "--max-brier", "0.01", "--from", "1970-01-01", "--json", code=1).stdout
    )
    assert judged["drift"]["psi"] > 0.2
    (brier,) = [rule for rule in judged["rules"] if rule["rule"] == "brier"]
    assert brier["pairs"] == COUNT
