"""Runs for three classes and for numbers, whole, on a real broker: a first model, a better one, and thresholds of decisions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from confluent_kafka import Producer

from model_registry.signing.predicates import EVALUATION
from tests.chaos.training.ground import EVENTS, HOUR_MS, HOURS, PARTITIONS, SIGNATURE, TRAINING, Ground
from tests.support.shared_broker import Broker

SECONDS = 600
CLASSES = ["none", "one", "many"]
OUTPUTS: dict[str, dict[str, Any]] = {
    "classes": {"output": {"tensor": "p"}, "labels": CLASSES, "decision": {"argmax": True}},
    "number": {"output": {"tensor": "y", "index": 0}, "decision": None},
}


class TargetGround(Ground):
    """A folder whose labels are one of three classes, or a number."""

    def __init__(self, servers: str, folder: Path, kind: str) -> None:
        self.kind = kind
        super().__init__(servers, folder, None, 7, champion=False)
        (folder / "signature.json").write_text(json.dumps({"inputs": SIGNATURE["inputs"], **OUTPUTS[kind]}))

    def configure(self, **changed: Any) -> None:
        (self.folder / "training.yaml").write_text(yaml.safe_dump({**TRAINING, "seed": 7, **changed}))

    def result(self, verb: str, *options: str, code: int = 0) -> Any:
        """The document that a verb prints."""
        process = self.training(verb, *options)
        out, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == code, (self.folder / "log").read_text()
        return json.loads(out) if out else None

    def evaluation(self) -> dict[str, Any]:
        """The attested evaluation of the version that the channel names."""
        inspected = json.loads(self.registry("inspect", f"{self.source}:prod", "--key", "training.pub", "--json"))
        (predicate,) = (
            attestation["predicate"] for attestation in inspected["attestations"] if attestation["type"] == EVALUATION
        )
        return dict(predicate)

    def _scorer(self, *, plain_http: bool) -> dict[str, Any]:
        scorer = super()._scorer(plain_http=plain_http)
        scorer["labels"] |= {"kind": "number"} if self.kind == "number" else {"classes": CLASSES}
        return scorer

    def _write(self, seed: int) -> None:
        drawn = np.random.default_rng(seed)
        a, b = drawn.normal(size=EVENTS), drawn.normal(size=EVENTS)
        minutes = 40 * a + 20 * b + 10 * drawn.normal(size=EVENTS)
        classes = np.digitize(minutes, [-20, 20])
        begin = self.begin_ms()
        producer = Producer({"bootstrap.servers": self.servers})
        for n in range(EVENTS):
            event = {"id": f"e{n}", "a": float(a[n]), "b": float(b[n]), "kind": "shoes"}
            at = begin + n * HOURS * HOUR_MS // EVENTS
            producer.produce(f"{self.name}.events", json.dumps(event).encode(), b"k%d" % n, n % PARTITIONS, timestamp=at)
            outcome = float(minutes[n]) if self.kind == "number" else CLASSES[classes[n]]
            producer.produce(self.labels_topic, json.dumps({"outcome": outcome}).encode(), b"e%d" % n, n % PARTITIONS)
        assert producer.flush(60) == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / f"targets-{tmp_path.name[-12:]}"


def two_versions(ground: TargetGround, gate: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run of a first model of three trees, and of a better one."""
    gate = TRAINING["gate"] | gate
    ground.configure(search={"trials": 1, "rungs": [3]}, gate=gate)
    first = ground.result("run")
    ground.configure(search={"trials": 1, "rungs": [4, 24]}, gate=gate | {"promote": "better"})
    return first, ground.result("run")


def test_a_model_of_three_classes_is_promoted_and_then_replaced_by_a_better_one(broker: Broker, folder: Path) -> None:
    ground = TargetGround(broker.bootstrap_servers, folder, "classes")
    first, second = two_versions(ground, {"margin": 0.1})
    assert (first["outcome"], second["outcome"]) == ("promoted", "promoted")
    assert first["comparison"]["because"].startswith("the first model is better than a constant prediction, by log_loss,")
    compared = second["comparison"]
    assert (compared["metric"], compared["target"]["kind"], compared["target"]["classes"]) == ("log_loss", "classes", CLASSES)
    assert compared["difference"]["high"] < 0
    assert compared["champion"]["version"] == first["version"]
    assert {f"recall.{name}" for name in CLASSES} < {rule["name"] for rule in compared["rules"]}
    assert (second["search"]["metric"], list(second["rows"]["classes"])) == ("log_loss", CLASSES)
    evaluation = ground.evaluation()
    assert evaluation["confusion_matrix"]["labels"] == CLASSES
    assert {"log_loss", "macro_f1", "weighted_f1", "recall.many"} < set(evaluation["metrics"])
    worse = ground.result("compare", first["version"], "--against", "prod", code=1)
    assert (worse["verdict"], worse["because"].startswith("rule ")) == ("refused", True)
    report = ground.result("thresholds", "prod", "--class", "many", "--cost-matrix", "[[0, 1], [5, 0]]", "--plot", "many.svg")
    assert (report["class"], report["auc"] > 0.9, report["cheapest"]["threshold"] < 0.5) == ("many", True, True)
    recalls = [row["recall"] for row in report["thresholds"]]
    assert recalls == sorted(recalls, reverse=True)
    assert (ground.folder / "many.svg").read_text().startswith("<svg")
    costs = {"many": {"none": 9, "one": 2}, "none": {"many": 1, "one": 1}, "one": {"many": 1, "none": 1}}
    (ground.folder / "costs.yaml").write_text(yaml.safe_dump(costs))
    decisions = ground.result("thresholds", "prod", "--cost-matrix", "costs.yaml")["decisions"]
    assert decisions["cheapest"] <= decisions["decided"]


def test_a_model_of_numbers_is_promoted_and_then_replaced_by_a_better_one(broker: Broker, folder: Path) -> None:
    ground = TargetGround(broker.bootstrap_servers, folder, "number")
    first, second = two_versions(ground, {"margin": 0.1})
    assert (first["outcome"], second["outcome"]) == ("promoted", "promoted")
    assert first["comparison"]["because"].startswith("the first model is better than a constant prediction, by rmse,")
    compared = second["comparison"]
    assert (compared["metric"], compared["target"]["kind"], compared["discordant"]) == ("rmse", "regression", None)
    assert compared["challenger"]["metrics"]["rmse"] < compared["champion"]["metrics"]["rmse"]
    assert compared["challenger"]["metrics"]["r2"] > 0.8
    assert [rule["name"] for rule in compared["rules"]][6:] == ["width", "rmse", "mae", "slices"]
    assert (second["rows"]["classes"], second["rows"]["outcomes"]["minimum"] < -50) == ({}, True)
    evaluation = ground.evaluation()
    assert "confusion_matrix" not in evaluation
    assert sum(evaluation["residuals"]["counts"]) == compared["rows"]["count"]
    ground.result("thresholds", "prod", code=2)
    assert "thresholds decide between classes" in (ground.folder / "log").read_text()
