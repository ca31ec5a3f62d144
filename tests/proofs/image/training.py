"""What is proved of the image that trains: it works where only a volume of runs is writable, and keeps to its memory limit."""

import json
import time

import yaml
from confluent_kafka import Producer

from tests.integration.scorer.rig import Rig, until
from tests.proofs.findings import Finding
from tests.proofs.image.container import Container
from tests.support import models

RUNS = "/var/lib/scorestream"
PROGRAM = "/opt/scorestream/deploy/training"
COUNT = 20_000
HOURS = 50
LIMIT = "1g"


def snapshots(image: str, rig: Rig) -> list[Finding]:
    """Copies and joins labelled events of two days, as a user who may write to the volume only; a second one finds the same."""
    labels = f"{rig.name}.labels"
    rig.configure(labels={"topic": labels, "classes": ["low", "high"]})
    rig.make_topic(labels, 6)
    _fill(rig, labels)
    models.linear_package(rig.folder / "package", 2.0)
    training = {
        "scorer": "scorer.yaml",
        "signature": "package/signature.json",
        "labels": {"after": "1h"},
        "snapshot": {
            "window": f"{HOURS - 1}h",
            "validation": "8h",
            "hold_out": "8h",
            "at_least": 1_000,
            "folder": f"{RUNS}/snapshots",
        },
    }
    (rig.folder / "training.yaml").write_text(yaml.safe_dump(training))
    volume = rig.folder / "runs"
    volume.mkdir()
    volume.chmod(0o777)  # the container's user writes to it
    command = ["python3", PROGRAM, "snapshot", "training.yaml", "--json"]
    limits = (f"--volume={volume}:{RUNS}", f"--memory={LIMIT}", f"--memory-swap={LIMIT}")
    with Container(image, rig.folder, command, *limits) as container:
        until(lambda: not container.running, "the end of the snapshot")
        code, said = int(container.state["ExitCode"]), container.said
    found = [Finding("exit code", f"{code}", code == 0)]
    if code:
        return [*found, Finding("it said", said[-500:], False)]
    told = json.loads(said)
    kept = [str(path.relative_to(volume)) for path in volume.rglob("rows.json")]
    return [
        *found,
        Finding("labels copied", f"{told['records']['labels']}", told["records"]["labels"] == COUNT),
        Finding("kept on the volume", " ".join(kept), len(kept) == 1),
    ]


def _fill(rig: Rig, labels: str) -> None:
    """Events of the last 50 hours, the oldest first, and the label of each."""
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
    begin = time.time_ns() // 1_000_000 - HOURS * 3_600_000
    for n in range(COUNT):
        at, key = begin + n * HOURS * 3_600_000 // COUNT, b"e%d" % n
        producer.produce(rig.events_topic, json.dumps({"id": f"e{n}", "a": float(n), "b": 1.0}), key, n % 6, timestamp=at)
        producer.produce(labels, json.dumps({"label": ("low", "high")[n % 2]}), key, n % 6)
    if producer.flush(60):
        raise RuntimeError("the events could not be written")
