"""`scorer train run --until join` as it is typed, on a real broker: what rows there are, and what a kill leaves."""

import json
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from confluent_kafka import Producer

from model_registry import atomic_files
from tests.support import models
from tests.support.environment import TRAIN
from tests.support.fixtures import MakeTopics
from tests.support.shared_broker import Broker
from tests.support.waiting import until

HOUR_MS = 3_600_000
PARTITIONS, COUNT, MANY = 2, 600, 200_000
UNLABELLED = 30  # the newest of the mature events


class Stage(NamedTuple):
    """A folder with scorer.yaml and training.yaml. Events are of the last 50 hours; `servers` is the broker's address."""

    folder: Path
    servers: str
    events: str
    labels: str

    def run(self, *options: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [*TRAIN, "run", "training.yaml", "--until", "join", *options]
        completed = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=120)
        assert completed.returncode == code, completed.stderr
        return completed

    def found(self, *options: str, code: int = 0) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.run("--json", *options, code=code).stdout)
        return report

    def write(self, count: int) -> None:
        """Events, the oldest first, each with the label of its number's parity; the newest labels are missing."""
        producer = Producer({"bootstrap.servers": self.servers, "queue.buffering.max.messages": 1_000_000})
        begin = time.time_ns() // 1_000_000 - 50 * HOUR_MS
        for n in range(count):
            at, key = begin + n * 50 * HOUR_MS // count, b"e%d" % n
            value = json.dumps({"id": f"e{n}", "a": float(n), "b": 1.0}).encode()
            producer.produce(self.events, value, key, n % PARTITIONS, timestamp=at)
            if n < count - UNLABELLED:
                value = json.dumps({"label": ("low", "high")[n % 2]}).encode()
                producer.produce(self.labels, value, key, n % PARTITIONS)
        assert producer.flush(60) == 0


@pytest.fixture
def stage(broker: Broker, make_topics: MakeTopics, tmp_path: Path) -> Stage:
    events, labels, scores = make_topics("events", "labels", "scores", partitions=PARTITIONS)
    scorer = {
        "name": events.removesuffix(".events"),
        "kafka": {"bootstrap_servers": broker.bootstrap_servers},
        "input": {"topics": [events], "id": "id"},
        "output": {"topic": scores},
        "model": {"source": "oci:./registry/model"},
        "labels": {"topic": labels, "classes": ["low", "high"]},
    }
    training = {
        "scorer": "scorer.yaml",
        "signature": "package/signature.json",
        "labels": {"after": "1h", "coverage": 0.5},
        "publish": {"key_file": "training.key"},
        "gate": {"block": "1h"},
        "snapshot": {"window": "49h", "validation": "8h", "hold_out": "8h", "at_least": 100},
    }
    models.linear_package(tmp_path / "package", 2.0)
    registry(tmp_path, "keygen", "training")
    (tmp_path / "scorer.yaml").write_text(yaml.safe_dump(scorer))
    (tmp_path / "training.yaml").write_text(yaml.safe_dump(training))
    return Stage(tmp_path, broker.bootstrap_servers, events, labels)


def registry(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "model_registry", *arguments], cwd=folder, check=True)


def test_events_and_labels_become_parts_by_time(stage: Stage) -> None:
    stage.write(COUNT)
    report = stage.found()
    rows, copied = report["rows"], report["snapshot"]
    assert copied["labels"] == COUNT - UNLABELLED
    assert abs(copied["events"] - COUNT * 49 // 50) <= 1
    assert rows["labelled"] == sum(part["rows"] for part in rows["parts"])
    assert 0 <= rows["mature"] - rows["labelled"] - (UNLABELLED - COUNT // 50) <= 1
    assert [part["part"] for part in rows["parts"]] == ["training", "validation", "hold-out"]
    assert all(before["to_ms"] < after["from_ms"] for before, after in pairwise(rows["parts"]))
    assert {name: sum(part["classes"][name] for part in rows["parts"]) for name in ("low", "high")} == rows["classes"]
    assert (report["outcome"], report["version"]) == (
        "not ended",
        f"{report['snapshot']['frozen'][:10].replace('-', '')}-{report['run']}",
    )
    assert {path.name for path in Path(report["folder"]).iterdir()} == {"steps", "records", "run.key"}
    again = stage.found()
    assert again == report, "nothing is done twice"
    stage.write(1)
    assert stage.found("--new")["folder"] != report["folder"]
    assert "hold-out" in stage.run().stdout


def test_the_champions_signature_is_taken_where_none_is_named(stage: Stage) -> None:
    stage.write(COUNT)
    training = yaml.safe_load((stage.folder / "training.yaml").read_text())
    del training["signature"]
    (stage.folder / "training.yaml").write_text(yaml.safe_dump(training))
    assert "has no champion with a signature.json" in stage.run(code=2).stderr
    registry(stage.folder, "push", "package", "oci:./registry/model:1.0.0")
    registry(stage.folder, "promote", "oci:./registry/model", "--to", "1.0.0")
    assert stage.found()["rows"]["labelled"] > 0


def test_too_few_labels_end_a_run_and_too_few_rows_are_refused(stage: Stage) -> None:
    stage.write(COUNT)
    completed = stage.run("--set", "snapshot.at_least=100000", code=3)
    assert "labelled events are too few" in completed.stderr
    assert "snapshot.at_least is 100000" in completed.stderr
    completed = stage.run("--set", "labels.coverage=0.99", code=1)
    assert "of the events have a label; labels.coverage requires 99.0%" in completed.stderr
    completed = stage.run("--set", "labels.coverage=0.99")
    assert "no new label has arrived since the run" in completed.stdout
    assert stage.found("--set", "labels.coverage=0.96")["rows"]["labelled"] > 0, "configured otherwise, it is another run"


def test_a_copy_that_was_killed_continues_as_it_was_frozen(stage: Stage) -> None:
    stage.write(MANY)
    runs = stage.folder / "runs"
    command = [*TRAIN, "run", "training.yaml", "--until", "join"]
    with subprocess.Popen(command, cwd=stage.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        until(lambda: [*runs.glob("*/records.part/events/*/*.parquet")], "the first file of the copy", every=0.001)
        first.send_signal(signal.SIGKILL)
    (frozen,) = runs.glob("*/steps/freeze.json")
    folder = frozen.parents[1]
    assert not (folder / "records").exists()
    before = frozen.read_bytes()
    stage.write(COUNT)
    report = stage.found()
    assert (Path(report["folder"]), frozen.read_bytes()) == (folder, before)
    assert report["snapshot"]["labels"] == MANY - UNLABELLED
    assert not (folder / "records.part").exists()


def test_a_run_needs_a_key(stage: Stage) -> None:
    (stage.folder / "training.key").unlink()
    assert "training.key" in stage.run(code=2).stderr
    assert not [*stage.folder.glob("runs/*/steps")], "no step is begun"


def test_two_at_a_time_are_refused(stage: Stage) -> None:
    stage.write(COUNT)
    (stage.folder / "runs").mkdir()
    with atomic_files.hold_lock(stage.folder / "runs" / ".lock"):
        assert "another run is active" in stage.run(code=3).stderr
    assert stage.found()["rows"]["labelled"] > 0


def test_an_invalid_signature_is_named(stage: Stage) -> None:
    (stage.folder / "package" / "signature.json").write_text("{")
    assert "signature.json" in stage.run(code=2).stderr
