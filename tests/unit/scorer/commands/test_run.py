"""The number of workers that `scorer run` starts, and the GPUs that it assigns to them."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from typer.testing import CliRunner

from publisher.runtime import logs
from scorer.cli import app
from scorer.service import cpu_limit, gpu_assignment, supervisor
from scorer.settings import Settings
from tests.support.canary import merged
from tests.unit.scorer.minimal import STATED

CORES = 7


class Start(NamedTuple):
    """One start of the supervisor: the number of workers, the number that the workers assume, and the assigned GPUs."""

    workers: int
    assumed_workers: int
    gpus: Sequence[str]


class Machine:
    """A machine with CORES cores and some GPUs, on which `scorer run` starts no process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = folder / "scorer.yaml"
        self._gpus: list[str] = []
        self._starts: list[Start] = []
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # which `run` sets unless it is set
        monkeypatch.setattr(logs, "configure", lambda *_: None)
        monkeypatch.setattr(cpu_limit, "count_usable_cores", lambda: CORES)
        monkeypatch.setattr(gpu_assignment, "visible_devices", lambda _: self._gpus)
        monkeypatch.setattr(supervisor, "run", self._start)

    def _start(self, _settings: Settings, workers: int, work: partial[Any], gpus: Sequence[str]) -> None:
        self._starts.append(Start(workers, work.keywords["workers"], gpus))

    def run(self, device: str, gpus: int, *flags: str) -> Start:
        """Run the command with a model on this device and this number of visible GPUs, and return its only start."""
        self._gpus = [str(number) for number in range(gpus)]
        self._path.write_text(yaml.safe_dump(merged(STATED, {"model": {"device": device}})))
        result = CliRunner().invoke(app, ["run", str(self._path), *flags], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        (start,) = self._starts
        return start


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize("device", ["cuda", "tensorrt"])
@pytest.mark.parametrize(("gpus", "workers"), [(0, 1), (1, 1), (3, 3)])
def test_a_model_on_gpus_has_one_worker_for_each_visible_gpu(machine: Machine, device: str, gpus: int, workers: int) -> None:
    assert machine.run(device, gpus) == Start(workers, workers, [str(number) for number in range(gpus)])


@pytest.mark.parametrize("gpus", [0, 1, 3])
def test_the_option_workers_overrides_the_number_of_gpus(machine: Machine, gpus: int) -> None:
    assert machine.run("cuda", gpus, "--workers", "2") == Start(2, 2, [str(number) for number in range(gpus)])


def test_a_model_on_the_cpu_has_one_worker_for_each_core(machine: Machine) -> None:
    assert machine.run("cpu", 0) == Start(CORES, CORES, [])
