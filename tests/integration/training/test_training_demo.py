"""The demo of the learning loop, as a stranger runs it; and continuing with the processes that it leaves running."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.scorer.rig import command
from tests.support.environment import TRAIN
from tests.support.processes import alive
from tests.support.waiting import until


def test_a_run_that_is_killed_ends_in_a_version_that_a_running_scorer_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    completed = subprocess.run([*TRAIN, "demo", "--keep", "--json"], capture_output=True, text=True, check=False)
    lines = [line.removeprefix("  $ ") for line in completed.stderr.splitlines() if line.startswith("  $ ")]
    try:
        assert completed.returncode == 0, completed.stdout + completed.stderr
        summary = json.loads(completed.stdout)
        assert summary["clean"]
        assert set(summary["counts"].values()) == {0}
        assert summary["events"] == summary["scored"] == sum(summary["scores"].values()) > 281_373
        run = summary["run"]
        assert summary["kept"] == ["plan", "freeze", "copy", "join"]
        assert [step["step"] for step in run["steps"]][-3:] == ["promote", "commit", "end"]
        assert set(summary["scores"]) == {"1.0.0", run["version"]}
        assert run["comparison"]["champion"]["version"] == "1.0.0"
        assert 0 < run["comparison"]["difference"]["low"] < 0.01
        assert {"replaced", "conflicting"} <= run["rows"]["labels"]["counts"].keys()
        assert run["rows"]["left_out"]["counts"]["immature"] > 500
        assert summary["moves"] == 1
        assert summary["admitted"]
        assert all(Path(picture).is_file() for picture in run["pictures"])
        assert len(run["pictures"]) == 4
        assert sum("kill -9" in line for line in lines) == 1
        folder = next(line for line in lines if line.startswith("cd ")).split()[1].rstrip(";")
        again = subprocess.run(
            [*TRAIN, "run", "training.yaml", "--json"], cwd=folder, capture_output=True, text=True, check=True
        )
        assert json.loads(again.stdout)["outcome"] == "nothing-new"
        back = next(line for line in lines if line.startswith("scorer rollback"))
        typed = f"{command('scorer')} {back.removeprefix('scorer ')}"
        subprocess.run(["bash", "-c", typed], cwd=folder, capture_output=True, check=True)
    finally:
        subprocess.run(["bash", "-c", lines[-1]], check=True)
    pids = [int(pid) for group in re.findall(r"kill ([\d ]+)", lines[-1]) for pid in group.split()]
    until(lambda: not any(alive(pid) for pid in pids), "the end of what was kept")
    assert list(tmp_path.glob("scorestream-demo-*")) == []
