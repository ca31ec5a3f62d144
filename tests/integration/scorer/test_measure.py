"""`scorer bench`: the cost of a model by batch size, from a folder, a registry and a configuration. Needs no broker."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.scorer.rig import command
from tests.support import models


def bench(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    completed = subprocess.run(
        [command("scorer"), "bench", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert completed.returncode == code, completed.stderr
    return completed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package, and the same one in a registry under the tag 1.0.0."""
    folder = tmp_path_factory.mktemp("bench")
    models.linear_package(folder / "linear", 2.0)
    push = [command("model-registry"), "push", "linear", "oci:./registry/linear:1.0.0"]
    subprocess.run(push, cwd=folder, check=True, capture_output=True)
    return folder


def figures(folder: Path, *arguments: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(bench(folder, *arguments, "--json").stdout)
    return report


def test_a_folder_is_measured_by_batch_size_and_shown_as_table_and_picture(folder: Path) -> None:
    output = bench(folder, "linear", "--set", "batching.max_events=100").stdout
    assert "events/s" in output
    assert "█" in output
    assert "meet the latency target of 20 ms" in output


def test_a_version_is_measured_with_its_configuration(folder: Path) -> None:
    model = {"source": "oci:./registry/other", "buckets": [1, 16, 64], "cache": "./cache"}
    configuration = {
        "name": "any",
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "input": {"topics": ["in"], "format": "json-array"},
        "output": {"topic": "out"},
        "model": model,
        "batching": {"max_events": 64, "latency_target_ms": 7},
    }
    (folder / "scorer.yaml").write_text(json.dumps(configuration))
    report = figures(folder, "oci:./registry/linear:1.0.0", "--config", "scorer.yaml")
    assert (report["version"], report["device"], report["buckets"]) == ("linear:1.0.0", "cpu", [1, 16, 64])
    assert report["latency_target"] == 0.007
    sizes = [point["size"] for point in report["points"]]
    assert (sizes[0], sizes[-1]) == (1, 64)
    assert set(report["worthwhile"]) <= set(sizes)
    assert all(point["model"] > 0 and point["loop"] > 0 for point in report["points"])
    assert report["fixed"] >= 0
    assert report["events_per_second"] == max(point["size"] / point["loop"] for point in report["points"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["oci:./registry/linear"], 2, "has no version"),
        (["nowhere"], 2, "neither oci:FOLDER nor HOST/PATH"),
        (["linear", "--set", "model.device=cuda"], 2, "CUDAExecutionProvider"),
        (["linear", "--set", "model.device=tensorrt"], 2, "TensorrtExecutionProvider"),
    ],
)
def test_invalid_measurements_are_named(folder: Path, arguments: list[str], code: int, message: str) -> None:
    assert message in bench(folder, *arguments, code=code).stderr
