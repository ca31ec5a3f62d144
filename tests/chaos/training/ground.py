"""The environment of a round: topics with events and their outcomes, a registry in a folder or over HTTP, two files."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import models
from tests.support.environment import TRAIN
from tests.support.topics import settle

HOUR_MS, HOURS = 3_600_000, 240
EVENTS, PARTITIONS = 4_000, 3
KINDS = ("shoes", "books", "games", "")
SIGNATURE = {
    "inputs": [
        {"tensor": "x", "dtype": "float32", "fields": ["a", {"name": "b", "required": False, "default": "nan"}]},
        {"tensor": "kind", "dtype": "string", "fields": ["kind"]},
    ],
    "output": {"tensor": "probabilities", "index": 1},
    "decision": {"threshold": 0.5, "at_or_above": "high", "below": "low"},
}
CHAMPIONS = models.LINEAR | {
    "inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a", {"name": "b", "required": False, "default": 0.0}]}]
}
TRAINING: dict[str, Any] = {
    "scorer": "scorer.yaml",
    "signature": "signature.json",
    "labels": {"after": "1h"},
    "snapshot": {"window": "239h", "validation": "48h", "hold_out": "72h", "at_least": 1_000},
    "search": {"trials": 4, "rungs": [4, 12], "reduction": 2},
    "workers": 2,
    "gate": {"margin": 0.05, "block": "6h", "class_margin": 0.2, "resamples": 200},
    "publish": {"key_file": "training.key"},
}
OWN_RECIPE = Path(__file__).with_name("own_recipe.py")
OWN: dict[str, Any] = {
    "recipe": {"command": ["python", OWN_RECIPE.name], "deadline": "10m"},
    "search": {**TRAINING["search"], "space": {"rate": {"type": "float", "low": 0.1, "high": 3.0, "log": True}}},
}
"""The settings of a training with a custom recipe."""


class Ground:
    """The folder of a round. `source` is the repository; with `champion`, a worse version is already in production.

    With `own`, the training runs a custom recipe in place of a built-in one.
    """

    def __init__(
        self, servers: str, folder: Path, registry: str | None, seed: int, *, champion: bool, own: bool = False
    ) -> None:
        folder.mkdir()
        self.servers, self.folder, self.name = servers, folder, folder.name
        self.source = f"{registry}/team/{self.name}" if registry else "oci:./registry/model"
        (folder / "signature.json").write_text(json.dumps(SIGNATURE))
        (folder / "training.yaml").write_text(yaml.safe_dump({**TRAINING, **(OWN if own else {}), "seed": seed}))
        shutil.copy(OWN_RECIPE, folder)
        (folder / "scorer.yaml").write_text(yaml.safe_dump(self._scorer(plain_http=registry is not None)))
        self._create()
        self._write(seed)
        self.registry("keygen", "training")
        if champion:
            package = models.package(folder / "package", lambda path: models.linear(path, -1.0), CHAMPIONS)
            self.registry("push", str(package), f"{self.source}:1.0.0")
            self.registry("promote", self.source, "--to", "1.0.0")

    @property
    def labels_topic(self) -> str:
        return f"{self.name}.outcomes"

    def registry(self, *arguments: str) -> str:
        """Return the output of `model-registry`. Raises RuntimeError if it fails."""
        return self._output("model_registry", "--plain-http", *arguments)

    def scorer(self, verb: str, *arguments: str) -> str:
        """Return the output of `scorer` with its configuration. Raises RuntimeError if it fails."""
        words = [word for word in arguments if not word.startswith("--")]
        options = [word for word in arguments if word.startswith("--")]
        return self._output("scorer", verb, *words, "scorer.yaml", *options)

    def _output(self, module: str, *arguments: str) -> str:
        command = [sys.executable, "-m", module, *arguments]
        completed = subprocess.run(command, cwd=self.folder, check=False, capture_output=True, text=True, timeout=60)
        if completed.returncode:
            raise RuntimeError(f"{module} {' '.join(arguments)} ended with {completed.returncode}: {completed.stderr}")
        return completed.stdout

    def training(self, verb: str, *options: str) -> subprocess.Popen[str]:
        with (self.folder / "log").open("a") as log:
            command = [*TRAIN, verb, "training.yaml", *options, "--json"]
            return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=log, text=True)

    def steps(self) -> set[str]:
        """Return the finished steps of all runs."""
        return {path.stem for path in self.folder.glob("runs/*/steps/*.json")}

    def _scorer(self, *, plain_http: bool) -> dict[str, Any]:
        return {
            "name": self.name,
            "kafka": {"bootstrap_servers": self.servers},
            "input": {"topics": [f"{self.name}.events"], "id": "id"},
            "output": {"topic": f"{self.name}.scores"},
            "model": {"source": self.source, "cache": "cache", "plain_http": plain_http},
            "labels": {"topic": self.labels_topic, "value": "outcome"},
        }

    def _create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        plans = [NewTopic(f"{self.name}.{part}", PARTITIONS, 1) for part in ("events", "outcomes")]
        compacted = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
        settle(admin.create_topics([*plans, NewTopic(f"{self.name}.runs", 1, 1, config=compacted)]))

    @staticmethod
    def begin_ms() -> int:
        """The time of the first event."""
        return time.time_ns() // 1_000_000 - HOURS * HOUR_MS

    def _write(self, seed: int) -> None:
        """Write events of ten days, every sixth without a b, each with its outcome."""
        drawn = np.random.default_rng(seed)
        a, b, kinds = drawn.normal(size=EVENTS), drawn.normal(size=EVENTS), drawn.integers(len(KINDS), size=EVENTS)
        late = drawn.random(EVENTS) < 1 / (1 + np.exp(-2 * a - b - (kinds - 1)))
        begin = self.begin_ms()
        producer = Producer({"bootstrap.servers": self.servers})
        for n in range(EVENTS):
            event = {"id": f"e{n}", "a": float(a[n]), "b": None if n % 6 == 0 else float(b[n]), "kind": KINDS[kinds[n]]}
            at = begin + n * HOURS * HOUR_MS // EVENTS
            producer.produce(f"{self.name}.events", json.dumps(event).encode(), b"k%d" % n, n % PARTITIONS, timestamp=at)
            value = json.dumps({"outcome": ("low", "high")[int(late[n])]}).encode()
            producer.produce(self.labels_topic, value, b"e%d" % n, n % PARTITIONS)
        if producer.flush(60):
            raise RuntimeError("the broker did not acknowledge the events")
