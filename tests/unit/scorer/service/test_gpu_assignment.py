"""The GPUs that workers use: pure selections, and a count through a driver library that is compiled here."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import ValidationError

from publisher.errors import USAGE, Fatal
from scorer.service.gpu_assignment import select_devices
from scorer.settings.model import ModelSettings
from tests.support.canary import merged
from tests.unit.scorer.minimal import STATED

DRIVER = """
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned flags) { if (getenv("FAKE_CRASH")) abort(); return getenv("FAKE_ERROR") ? atoi(getenv("FAKE_ERROR")) : 0; }
int cuDeviceGetCount(int *count) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    *count = atoi(getenv("FAKE_GPUS"));
    if (visible) {
        int named = *visible != 0;
        for (; *visible; visible++) named += *visible == ',';
        if (named < *count) *count = named;
    }
    return 0;
}
"""
"""A substitute of libcuda.so.1 that counts the GPUs in CUDA_VISIBLE_DEVICES."""

PROGRAM = """
import os
from scorer import cli
from scorer.service import worker_main

def work(settings, on_serving, journal, workers):
    whole = "../" + settings.replica  # renamed when it is written: the last file ends every worker
    with open(whole, "w") as file:
        file.write(os.environ.get("CUDA_VISIBLE_DEVICES", "unset"))
    os.rename(whole, settings.replica)
    on_serving("nowhere")
    while len(os.listdir()) < workers:
        pass
    os.kill(os.getppid(), 15)

worker_main.run = work
cli.main()
"""
"""The program `scorer`, with workers that write the GPUs that they see, and then stop the supervisor."""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a driver library with FAKE_GPUS devices."""
    folder = tmp_path_factory.mktemp("driver")
    source = folder / "driver.c"
    source.write_text(DRIVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    return folder


def run_scorer(
    folder: Path, driver: Path, environment: dict[str, str], devices: Any = "all", workers: int = 0
) -> tuple[dict[str, str], subprocess.CompletedProcess[str]]:
    """Run `scorer run`. Return the GPUs that each worker sees, by replica, and the finished command."""
    output_folder = folder / "seen"
    output_folder.mkdir()
    model = {"device": "cuda", "devices": devices, "cache": "cache"}
    config = merged(STATED, {"model": model, "replica": "r", "http": {"listen": "127.0.0.1:0"}})
    (folder / "scorer.yaml").write_text(yaml.safe_dump(config))
    flags = ["--workers", str(workers)] if workers else []
    variables = {**os.environ, "LD_LIBRARY_PATH": str(driver), "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM, "run", "../scorer.yaml", *flags],
        cwd=output_folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return {file.name: file.read_text() for file in output_folder.iterdir()}, completed


def test_there_is_a_worker_for_each_visible_gpu(tmp_path: Path, driver: Path) -> None:
    gpus_by_replica, completed = run_scorer(tmp_path, driver, {"FAKE_GPUS": "3"})
    assert gpus_by_replica == {"r-0": "0", "r-1": "1", "r-2": "2"}, completed.stderr


def test_workers_share_the_gpus_that_cuda_visible_devices_leaves(tmp_path: Path, driver: Path) -> None:
    gpus_by_replica, completed = run_scorer(
        tmp_path, driver, {"FAKE_GPUS": "4", "CUDA_VISIBLE_DEVICES": "GPU-8a3c, 2"}, workers=3
    )
    assert gpus_by_replica == {"r-0": "GPU-8a3c", "r-1": "2", "r-2": "GPU-8a3c"}, completed.stderr


def test_model_devices_are_numbers_among_the_visible_gpus(tmp_path: Path, driver: Path) -> None:
    gpus_by_replica, completed = run_scorer(
        tmp_path, driver, {"FAKE_GPUS": "3", "CUDA_VISIBLE_DEVICES": "5,6,7"}, devices=[2, 0]
    )
    assert gpus_by_replica == {"r-0": "7", "r-1": "5"}, completed.stderr


@pytest.mark.parametrize("failure", [{"FAKE_GPUS": "0"}, {"FAKE_ERROR": "100"}, {"FAKE_CRASH": "1"}])
def test_without_a_countable_gpu_one_worker_starts_and_reports(tmp_path: Path, driver: Path, failure: dict[str, str]) -> None:
    gpus_by_replica, completed = run_scorer(tmp_path, driver, {"FAKE_GPUS": "1", **failure})
    assert gpus_by_replica == {"r": "unset"}, completed.stderr


def test_a_device_that_is_not_visible_ends_the_command_before_any_worker_starts(tmp_path: Path, driver: Path) -> None:
    gpus_by_replica, completed = run_scorer(tmp_path, driver, {"FAKE_GPUS": "4", "CUDA_VISIBLE_DEVICES": "0,1"}, devices=[2])
    assert completed.returncode == USAGE
    assert "model.devices names GPU 2, but 2 are visible, numbered from 0 (CUDA_VISIBLE_DEVICES=0,1)" in completed.stderr
    assert gpus_by_replica == {}


@pytest.mark.parametrize(
    ("devices", "count", "visible", "selected"),
    [
        ("all", 2, None, ["0", "1"]),
        ("all", 1, "3,9", ["3"]),  # the driver ignores the names after one that it does not know
        ([1], 2, None, ["1"]),
        ([1, 0], 2, "MIG-1,MIG-2", ["MIG-2", "MIG-1"]),
    ],
)
def test_selection(devices: Sequence[int] | Literal["all"], count: int, visible: str | None, selected: list[str]) -> None:
    assert select_devices(devices, count, visible) == selected


def test_a_device_that_is_not_visible_is_named() -> None:
    with pytest.raises(Fatal, match=r"model\.devices names GPU 2, but 2 are visible") as raised:
        select_devices([0, 2], 2, None)
    assert "name GPUs from 0 to 1" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"devices": [0]}, "devices lists GPUs, but device is cpu"),
        ({"device": "cuda", "devices": []}, "devices is empty or has a GPU twice"),
        ({"device": "cuda", "devices": [0, 1, 0]}, "list each GPU once"),
        ({"device": "cuda", "devices": [-1]}, "greater than or equal to 0"),
    ],
)
def test_impossible_devices_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ModelSettings.model_validate({"source": "oci:.", **settings})
