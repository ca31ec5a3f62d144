"""A user's recipe under torchrun: as many processes as workers, and none outlives the training."""

from pathlib import Path

from tests.unit.training.labelled_rows import SIGNATURE, rows
from training.recipes import own
from training.recipes.own import Own
from training.runs_topic.run_events import NoEvents
from training.search.final_fit import train
from training.search.halving import Best
from training.search.search import CODE
from training.settings import TrainingSettings

SCRIPT = """
import json
import torch
from torch import distributed

distributed.init_process_group("gloo")
rank, size = distributed.get_rank(), distributed.get_world_size()
value = torch.tensor([rank + 1.0])
distributed.all_reduce(value)
print(f"process {rank} of {size}", flush=True)
if rank == 0:
    assert json.load(open("resources.json"))["workers"] == size
    open("model.onnx", "w").write(str(value.item()))
distributed.destroy_process_group()
"""


def test_torchrun_starts_as_many_processes_as_workers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    settings = TrainingSettings.model_validate(
        {
            "scorer": "scorer.yaml",
            "workers": 2,
            "recipe": {"command": ["python", "train.py"], "folder": str(tmp_path), "launcher": "torchrun"},
            "search": {"trials": 1, "rungs": [1]},
        }
    )
    own.copy_code(settings.recipe, own.code(settings.recipe), tmp_path / CODE)
    model = tmp_path / "model"
    train(rows(50), rows(20, seed=2), SIGNATURE, settings, Own(), Best(0, {}, 1, 0.5), model, NoEvents())
    assert (model / "model.onnx").read_text() == "3.0"
    log = (model / "log.txt").read_text()
    assert "process 0 of 2" in log
    assert "process 1 of 2" in log
