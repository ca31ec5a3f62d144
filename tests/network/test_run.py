"""`scorer train run` with a network, on a real broker: searched, trained by two processes, promoted, reproduced."""

import json
from pathlib import Path

import yaml

from tests.chaos.training.counting import faults
from tests.chaos.training.ground import TRAINING, Ground
from tests.support.shared_broker import Broker

NETWORK = {"recipe": "network", "search": {"trials": 2, "rungs": [2, 6], "reduction": 2}, "parameters": {"width": 16}}


def test_a_network_is_promoted_and_reproduced_by_another_number_of_processes(broker: Broker, tmp_path: Path) -> None:
    ground = Ground(broker.bootstrap_servers, tmp_path / "network-run", None, 7, champion=False)
    (ground.folder / "training.yaml").write_text(yaml.safe_dump({**TRAINING, **NETWORK}))
    process = ground.training("run")
    said, _ = process.communicate(timeout=500)
    assert process.returncode == 0, (ground.folder / "log").read_text()
    run = json.loads(said)
    assert faults(ground, run) == []
    assert run["search"]["best"]["parameters"]["width"] == 16
    process = ground.training("reproduce", "prod", "--set", "workers=1")
    said, _ = process.communicate(timeout=500)
    assert (process.returncode, json.loads(said)["same"]) == (0, True)
