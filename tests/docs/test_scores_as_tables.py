"""The commands and the Python example of the page on tables, on a real broker."""

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from scorer.demo import flights
from tests.docs import pages
from tests.integration.scorer.rig import MakeRig, Rig, until
from tests.support.environment import ROOT

PAGE = "scorer/docs/scores-as-tables.md"
DATA = ROOT / "scorer" / "demo" / "data"
COUNT = 100


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    """Scores of flights by version 1.0.0, and the flights as files."""
    rig = make_rig(input={"id": "flight_id"})
    rig.configure(labels={"topic": f"{rig.name}.labels"})
    rig.make_topic(f"{rig.name}.labels", 1)
    for version in ("1.0.0", "2.0.0"):
        rig.push(DATA / f"flight-delay-{version}", version)
        (rig.folder / f"flight-delay-{version}").symlink_to(DATA / f"flight-delay-{version}")
    rig.promote("1.0.0")
    rig.create(2)
    lines = list(islice(flights.lines(), COUNT))
    (rig.folder / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    parquet.write_table(pyarrow.Table.from_pylist([json.loads(line) for line in lines]), rig.folder / "events.parquet")
    rig.emit(lines, key="{carrier}")
    rig.start().ready()
    until(lambda: rig.answered() == COUNT, "the scores")
    return rig


def shell(rig: Rig, block: str) -> list[str]:
    """Run the commands of a block, and return their outputs."""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    printed = []
    for line in pages.lines(PAGE, block):
        completed = subprocess.run(
            ["sh", "-c", line], cwd=rig.folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
        )
        assert completed.returncode == 0, f"{line}: {completed.stderr}"
        printed.append(completed.stdout)
    return printed


def test_the_commands_write_tables(rig: Rig) -> None:
    shell(rig, "read")
    scores = parquet.read_table(rig.folder / "scores.parquet")
    assert len(scores) == COUNT
    assert len((rig.folder / "scores.csv").read_text().splitlines()) == COUNT + 1
    assert {"label", "label_time"} <= set(parquet.read_table(rig.folder / "labelled.parquet").schema.names)
    *_, piped = shell(rig, "score")
    scored = parquet.read_table(rig.folder / "scored.parquet").to_pylist()
    offline = {json.loads(row["event"])["flight_id"]: row["score"] for row in scored}
    assert offline == {row["id"]: row["score"] for row in scores.to_pylist()}
    assert len((rig.folder / "scored.csv").read_text().splitlines()) == COUNT + 1
    assert [json.loads(line)["score"] for line in piped.splitlines()] == [row["score"] for row in scored[:5]]


def test_the_python_example_runs(rig: Rig) -> None:
    completed = subprocess.run(
        [sys.executable, "-c", pages.blocks(PAGE)["python"]], cwd=rig.folder, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert "1.0.0" in completed.stdout
    assert completed.stdout.splitlines()[-1] == str(COUNT)
