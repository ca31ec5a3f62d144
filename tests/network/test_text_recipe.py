"""The example of a text classifier on a real broker: trained by torch, its tokenizer in the graph, promoted, reproduced."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from confluent_kafka import Producer

from model_registry.package import read
from scorer.backends.onnx.onnx_runtime import OnnxRuntime
from tests.chaos.training.counting import faults
from tests.chaos.training.ground import EVENTS, HOUR_MS, HOURS, PARTITIONS, TRAINING, Ground
from tests.support.environment import ROOT
from tests.support.shared_broker import Broker
from tests.unit.scorer.minimal import minimal

EXAMPLE = ROOT / "deploy" / "training" / "examples" / "torch_reviews.py"
SIGNATURE = {
    "inputs": [{"tensor": "text", "dtype": "string", "fields": ["text"]}],
    "output": {"tensor": "probabilities", "index": 1},
    "decision": {"threshold": 0.5, "at_or_above": "high", "below": "low"},
}
SETTINGS = {
    "recipe": {"command": ["python", EXAMPLE.name]},
    "search": {
        "trials": 2,
        "rungs": [1, 3],
        "reduction": 2,
        "metric": "log_loss",
        "space": {"width": {"type": "categorical", "values": [8, 16]}},
    },
}


THREE = {
    "inputs": SIGNATURE["inputs"],
    "output": {"tensor": "probabilities"},
    "labels": ["low", "middle", "high"],
    "decision": {"argmax": True},
}


class Reviews(Ground):
    """Texts of one to twelve words; the words decide the label, of two or of three classes."""

    names: tuple[str, ...] = ("low", "high")

    def _write(self, seed: int) -> None:
        drawn = np.random.default_rng(seed)
        begin = int(np.datetime64("now", "ms").astype(int)) - HOURS * HOUR_MS
        producer = Producer({"bootstrap.servers": self.servers})
        for n in range(EVENTS):
            words = drawn.integers(0, 60, drawn.integers(1, 13))
            shares = 1 / (1 + np.exp(np.linspace(20, 40, len(self.names) + 1)[1:-1] - words.mean()))
            label = self.names[int((drawn.random() < shares).sum())]
            event = {"id": f"e{n}", "text": " ".join(f"word{word}" for word in words)}
            at = begin + n * HOURS * HOUR_MS // EVENTS
            producer.produce(f"{self.name}.events", json.dumps(event).encode(), b"k%d" % n, n % PARTITIONS, timestamp=at)
            value = json.dumps({"outcome": label}).encode()
            producer.produce(self.labels_topic, value, b"e%d" % n, n % PARTITIONS)
        assert producer.flush(60) == 0


class ThreeReviews(Reviews):
    """Reviews of three classes."""

    names = ("low", "middle", "high")


def promoted(ground: Ground, signature: dict[str, Any]) -> dict[str, Any]:
    """The document of a run with the example, which must be promoted."""
    (ground.folder / EXAMPLE.name).write_text(EXAMPLE.read_text())
    (ground.folder / "signature.json").write_text(json.dumps(signature))
    (ground.folder / "training.yaml").write_text(yaml.safe_dump({**TRAINING, **SETTINGS}))
    process = ground.training("run")
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, (ground.folder / "log").read_text()
    run: dict[str, Any] = json.loads(output)
    assert faults(ground, run) == []
    return run


def test_three_classes_are_promoted(broker: Broker, tmp_path: Path) -> None:
    run = promoted(ThreeReviews(broker.bootstrap_servers, tmp_path / "three", None, 7, champion=False), THREE)
    metrics = run["comparison"]["challenger"]["metrics"]
    assert metrics["accuracy"] > 0.5
    assert {"recall.low", "recall.middle", "recall.high", "macro_f1"} <= metrics.keys()


def test_a_text_classifier_is_promoted_and_reproduced(broker: Broker, tmp_path: Path) -> None:
    ground = Reviews(broker.bootstrap_servers, tmp_path / "text-recipe", None, 7, champion=False)
    run = promoted(ground, SIGNATURE)
    assert (run["search"]["metric"], run["search"]["goal"]) == ("log_loss", "min")
    scores = [scored["score"] for scored in run["search"]["rungs"][-1]["trials"]]
    assert scores == [run["search"]["best"]["score"]]
    model = OnnxRuntime(minimal().model).open(read(Path(run["folder"]) / "package"))
    texts = np.array([["word59 word58"], ["word1"], [""], ["never seen"]], object)
    together = model.run({"text": texts})["probabilities"]
    alone = np.concatenate([model.run({"text": texts[at : at + 1]})["probabilities"] for at in range(4)])
    assert np.abs(together - alone).max() < 1e-6
    assert together[0, 1] > 0.8 > 0.2 > together[1, 1]
    process = ground.training("reproduce", "prod", "--set", "workers=1")
    output, _ = process.communicate(timeout=900)
    assert (process.returncode, json.loads(output)["same"]) == (0, True)
