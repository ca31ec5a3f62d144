"""A recipe of one's own on a real broker and registry: killed in each of its steps, promoted once, reproduced."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chaos.training.counting import faults, strays
from tests.chaos.training.ground import OWN, TRAINING, Ground
from tests.support.shared_broker import Broker
from tests.support.waiting import until

SECONDS = 600


@pytest.fixture
def ground(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Ground:
    name = request.node.name.removeprefix("test_")[:30]
    folder = tmp_path / f"{name}-{tmp_path.name[-6:]}"
    return Ground(broker.bootstrap_servers, folder, None, 7, champion=True, own=True)


def document(ground: Ground, verb: str, *options: str, code: int = 0) -> Any:
    process = ground.training(verb, *options)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == code, (ground.folder / "log").read_text()
    return json.loads(output)


def kill_at(ground: Ground, pattern: str) -> None:
    """Start a run, and kill it as soon as a file with this pattern exists."""
    process = ground.training("run")
    until(lambda: [*ground.folder.glob(pattern)] or process.poll() is not None, pattern, SECONDS, every=0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=SECONDS)
    until(lambda: not strays(ground.folder), "the end of the processes of the recipe")


def test_a_recipe_that_is_killed_at_its_steps_is_promoted_once_and_reproduced(ground: Ground) -> None:
    kill_at(ground, "runs/*/search/trials/*/metrics.jsonl")
    kill_at(ground, "runs/*/search/scores/4/*.json")
    kill_at(ground, "runs/*/search/scores/12/*.json")
    kill_at(ground, "runs/*/model/checkpoint/*.npy")
    kill_at(ground, "runs/*/model/model.onnx")
    kill_at(ground, "runs/*/steps/export.json")
    run = document(ground, "run")
    assert (run["outcome"], run["search"]["metric"], run["export"]["parity"]) == ("promoted", "auc", None)
    assert "failures" not in run["search"]
    assert faults(ground, run) == []
    again = document(ground, "reproduce", "prod")
    assert again["same"]
    assert "because" not in again


def test_a_recipe_that_is_not_deterministic_is_reported_with_the_difference(ground: Ground) -> None:
    script = ground.folder / "own_recipe.py"
    noise = "weights_and_step[:3] += np.random.default_rng().normal(size=3) / 1e3\n\nif trial"
    script.write_text(script.read_text().replace("\nif trial", noise))
    document(ground, "run")
    again = document(ground, "reproduce", "prod", code=1)
    assert again["because"].startswith("not deterministic, metric difference ")
    assert {"recorded", "now"} == again["metrics"]["auc"].keys()
    assert abs(again["metrics"]["auc"]["now"] - again["metrics"]["auc"]["recorded"]) < 0.05
    script.write_text(script.read_text() + "\n")
    process = ground.training("reproduce", "prod")
    process.communicate(timeout=SECONDS)
    assert process.returncode == 3
    assert "own_recipe.py differs from the recipe's file that trained the version" in (ground.folder / "log").read_text()


def test_a_final_training_whose_model_cannot_be_served_is_refused(ground: Ground) -> None:
    script = ground.folder / "own_recipe.py"
    trained = script.read_text()
    faulty = {
        'write_bytes(b"garbage")': "the exported model cannot be served",
        'write_bytes(model.SerializeToString().replace(b"probabilities", b"probabilitieS"))': "'probabilities'",
    }
    for change, message in faulty.items():
        script.write_text(trained.replace("write_bytes(model.SerializeToString())", change))
        process = ground.training("run", "--set", "search.trials=1")
        process.communicate(timeout=SECONDS)
        assert process.returncode == 3
        assert message in (ground.folder / "log").read_text()
    script.write_text(trained.replace("weights_and_step[:2].reshape", "(np.nan * weights_and_step[:2]).reshape"))
    process = ground.training("run", "--set", "search.trials=1")
    process.communicate(timeout=SECONDS)
    assert process.returncode == 3
    assert "the model scores the event" in (ground.folder / "log").read_text()


def test_a_trial_that_fails_is_in_the_record_with_its_log(ground: Ground) -> None:
    script = ground.folder / "own_recipe.py"
    script.write_text(script.read_text() + '\nassert trial["final"] or trial["trial"] != 1, "unlucky"\n')
    run = document(ground, "run")
    (failure,) = run["search"]["failures"]
    assert (failure["trial"], failure["reason"]) == (1, "its process ended with exit code 1")
    assert "AssertionError: unlucky" in failure["log"]
    assert run["outcome"] == "promoted"
    configured = {**TRAINING, **OWN, "seed": 7, "recipe": {"command": ["python", "missing.py"]}}
    (ground.folder / "training.yaml").write_text(yaml.safe_dump(configured))
    process = ground.training("run")
    process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert "there is no file missing.py" in (ground.folder / "log").read_text()
