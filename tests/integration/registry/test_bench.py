"""The benchmark of transfers, in small: it runs, and the memory that transfers take does not grow with the model."""

import json
import subprocess
import sys

import pytest

MEBIBYTES = 48


@pytest.mark.debian("docker-registry", "skopeo")
def test_a_short_run() -> None:
    command = [sys.executable, "-m", "tests.proofs.bench.registry", "--rounds", "1", "--mebibytes", str(MEBIBYTES), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr  # 1: slower than it should be, which so short a run does not show
    found = json.loads(done.stdout)
    assert set(found["of_skopeo"]) == {"push", "pull"}
    assert found["memory_mib"] < MEBIBYTES / 2
