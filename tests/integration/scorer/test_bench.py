"""The benchmark, in small: it runs on a real broker, nothing is lost or doubled, and its figures are there."""

import json
import os
import subprocess
import sys
from pathlib import Path


def test_a_short_run(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    groups = [part for group in ("drain", "start") for part in ("--only", group)]
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.bench",
        "--quick",
        "--delivery",
        "exactly-once",
        "--out",
        str(out),
        *groups,
    ]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if len(os.sched_getaffinity(0)) == 1:
        assert completed.returncode == 2
        assert "two cores" in completed.stderr
        return
    assert completed.returncode == 0, completed.stderr
    report = json.loads(out.read_text())
    assert {row["delivery"] for row in [*report["drain"], *report["start"]]} == {"exactly-once"}
    assert all(row["missing"] == row["duplicates"] == 0 for row in report["drain"])
    assert all(row["events_per_s"]["median"] > 0 for row in report["drain"])
    assert all(row["first_score_s"]["median"] > 0 and row["rss_mib"]["median"] < 250 for row in report["start"])
    assert report["machine"]["cores"] == os.cpu_count()
