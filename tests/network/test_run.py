"""`scorer train run` with a network, on a real broker: searched, trained by two processes, promoted, reproduced."""

import json
from pathlib import Path

import pytest
import yaml

from tests.chaos.training.counting import faults
from tests.chaos.training.ground import TRAINING, Ground
from tests.integration.training.test_targets import CLASSES, TargetGround
from tests.support.shared_broker import Broker

NETWORK = {"recipe": "network", "search": {"trials": 2, "rungs": [2, 6], "reduction": 2}, "parameters": {"width": 16}}


def test_a_network_is_promoted_and_reproduced_by_another_number_of_processes(broker: Broker, tmp_path: Path) -> None:
    ground = Ground(broker.bootstrap_servers, tmp_path / "network-run", None, 7, champion=False)
    (ground.folder / "training.yaml").write_text(yaml.safe_dump({**TRAINING, **NETWORK}))
    process = ground.training("run")
    output, _ = process.communicate(timeout=500)
    assert process.returncode == 0, (ground.folder / "log").read_text()
    run = json.loads(output)
    assert faults(ground, run) == []
    assert run["search"]["best"]["parameters"]["width"] == 16
    process = ground.training("reproduce", "prod", "--set", "workers=1")
    output, _ = process.communicate(timeout=500)
    assert (process.returncode, json.loads(output)["same"]) == (0, True)


@pytest.mark.parametrize(("kind", "metric"), [("classes", "log_loss"), ("number", "rmse")])
def test_networks_of_other_targets_are_promoted_with_the_metrics_of_the_target(
    broker: Broker, tmp_path: Path, kind: str, metric: str
) -> None:
    ground = TargetGround(broker.bootstrap_servers, tmp_path / f"network-{kind}", kind)
    ground.configure(**NETWORK, gate=TRAINING["gate"] | {"margin": 0.1})
    run = ground.result("run")
    assert (run["outcome"], run["search"]["metric"], run["comparison"]["metric"]) == ("promoted", metric, metric)
    assert [rung["budget"] for rung in run["search"]["rungs"]] == [2, 6]
    assert run["export"]["parity"] <= 1e-6
    assert list(run["rows"]["classes"]) == (CLASSES if kind == "classes" else [])
    (card,) = ground.folder.glob("runs/*/package/README.md")
    assert "| Recipe | network |" in card.read_text()
    assert ground.result("reproduce", "prod")["same"]
