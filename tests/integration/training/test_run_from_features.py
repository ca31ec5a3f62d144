"""`scorer train run` with `snapshot.from: features`, on the feature log of a real scorer."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chaos.training import ground as grounds
from tests.chaos.training.ground import EVENTS, TRAINING, Ground
from tests.support import auditor
from tests.support.processes import Program
from tests.support.shared_broker import Broker
from tests.support.waiting import until

SECONDS = 300
SIGNATURE: dict[str, Any] = grounds.SIGNATURE
FROM_FEATURES = {**TRAINING, "seed": 7, "snapshot": TRAINING["snapshot"] | {"from": "features"}}
JOINED = {"name": "customers.age", "required": False, "default": 0.0, "from": "table:customers"}


@pytest.fixture
def ground(broker: Broker, tmp_path: Path) -> Ground:
    return Ground(broker.bootstrap_servers, tmp_path / f"features-{tmp_path.name[-6:]}", None, 7, champion=True)


def run(ground: Ground, verb: str, *options: str, code: int = 0) -> Any:
    """Run a verb, and return the document that it prints; None if it prints nothing."""
    process = ground.training(verb, *options)
    printed, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == code, (ground.folder / "log").read_text()
    return json.loads(printed) if printed else None


def configure(ground: Ground, name: str, document: Any) -> None:
    (ground.folder / name).write_text(yaml.safe_dump(document))


def serve(ground: Ground) -> None:
    """Score all events with a feature log, and stop the scorer when every score has its record."""
    path = ground.folder / "scorer.yaml"
    topic = f"{ground.name}.features"
    configure(ground, "scorer.yaml", yaml.safe_load(path.read_text()) | {"features": {"topic": topic}})
    ground.scorer("check", "--create")
    scorer = Program([sys.executable, "-m", "scorer", "run", str(path)], ground.folder / "scorer.log")
    try:
        until(lambda: len(list(auditor.read(ground.servers, topic))) == EVENTS, "the feature records", every=1.0)
    finally:
        scorer.stop()


def test_a_version_is_trained_on_the_feature_log_promoted_and_reproduced(ground: Ground) -> None:
    signature = {**SIGNATURE, "inputs": SIGNATURE["inputs"][:1]}  # the champion reads only these fields
    (ground.folder / "signature.json").write_text(json.dumps(signature))
    configure(ground, "training.yaml", FROM_FEATURES)
    run(ground, "run", code=2)
    assert "snapshot.from is features, but the scorer has no feature log" in (ground.folder / "log").read_text()
    serve(ground)
    trained = run(ground, "run")
    assert (trained["outcome"], trained["comparison"]["verdict"]) == ("promoted", "passed")
    assert trained["comparison"]["champion"]["version"] == "1.0.0"
    assert sum(part["rows"] for part in trained["rows"]["parts"]) > 0.95 * EVENTS
    evidence = run(ground, "show", "prod", "--evidence")
    assert {span["topic"] for span in evidence["spans"]} == {f"{ground.name}.features", ground.labels_topic}
    assert run(ground, "reproduce", "prod")["same"]


def test_a_signature_with_joined_fields_is_refused_without_their_values(ground: Ground) -> None:
    numbers, kind = SIGNATURE["inputs"]
    joined = {**SIGNATURE, "inputs": [{**numbers, "fields": [*numbers["fields"], JOINED]}, kind]}
    (ground.folder / "signature.json").write_text(json.dumps(joined))
    run(ground, "run", code=2)
    scorer = yaml.safe_load((ground.folder / "scorer.yaml").read_text())
    features = {"topic": f"{ground.name}.features", "fields": ["a", "b", "kind"]}
    configure(ground, "scorer.yaml", scorer | {"features": features})
    configure(ground, "training.yaml", FROM_FEATURES)
    run(ground, "run", code=2)
    configure(ground, "training.yaml", TRAINING)
    configure(ground, "scorer.yaml", scorer | {"features": {"topic": f"{ground.name}.features"}})
    run(ground, "run", code=2)
    log = (ground.folder / "log").read_text()
    assert "the values of the joined fields 'customers.age' at the time of a score are not recoverable" in log
    assert "features.fields does not hold 'customers.age'" in log
    assert "events do not hold the joined fields 'customers.age'" in log
