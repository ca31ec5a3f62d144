"""The instructions of the page on training: a reader's data becomes events and labels, a model, a promoted version. Only the
address of the broker and the names of topics and group are exchanged for those of the test."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import pages
from tests.support.environment import ROOT
from tests.support.shared_broker import Broker

PAGE, KAFKA = "deploy/training/README.md", "127.0.0.1:9092"
FILES = {"data": "make_orders.py", "scorer": "scorer.yaml", "signature": "signature.json", "training": "training.yaml"}
FEWER = {"30_000": "12_000", "at_least: 10000": "at_least: 5000"}
"""The test uses less data, to save time."""


class Reader:
    """A newcomer's folder with the page's files, beside the sources."""

    def __init__(self, folder: Path, servers: str, unique: str) -> None:
        self.folder = folder
        self._ours = {KAFKA: servers, "name: returns": f"name: {unique}", **FEWER}
        self._topic = f"{unique}.orders"
        (folder / "deploy").symlink_to(ROOT / "deploy")
        for block, name in FILES.items():
            (folder / name).write_text(self.ours(pages.blocks(PAGE)[block]))

    def ours(self, text: str) -> str:
        for theirs, ours in self._ours.items():
            text = text.replace(theirs, ours)
        return re.sub(r"(?<=\[)orders(?=\])|(?<=topic[: ])( ?)orders(?=\.)", lambda m: f"{m[1] or ''}{self._topic}", text)

    def shell(self, line: str, code: int = 0) -> str:
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
        completed = subprocess.run(
            ["bash", "-c", self.ours(line)], cwd=self.folder, capture_output=True, text=True, check=False, env=environment
        )
        assert completed.returncode == code, f"{line}: {completed.stdout}{completed.stderr}"
        return completed.stdout


@pytest.fixture
def reader(tmp_path: Path, broker: Broker, unique: str) -> Reader:
    return Reader(tmp_path, broker.bootstrap_servers, unique)


def test_your_own_data_becomes_a_promoted_version(reader: Reader) -> None:
    make, check, *rest = pages.lines(PAGE, "first")
    reader.shell(make)
    assert len((reader.folder / "orders.jsonl").read_text().splitlines()) == 12_000
    reader.shell(check, code=1)
    outputs = [reader.shell(line) for line in rest]
    assert "the channel prod was moved, revision 1" in outputs[3]
    shown = [reader.shell(line) for line in pages.lines(PAGE, "next")]
    assert shown[0].count("promoted") == 1
    assert "better than chance" in " ".join(shown[1].split())
    assert shown[2].count("training.pub") == 3
    (thresholds,) = pages.lines("deploy/training/gate.md", "thresholds")
    assert "cheapest: " in reader.shell(thresholds)
    assert (reader.folder / "thresholds.svg").read_text().startswith("<svg")
    assert "nothing-new" in reader.shell(rest[3])
    listed, newest, log, exported = (reader.shell(line) for line in pages.lines("deploy/training/runs.md", "runs"))
    assert (listed.count("promoted"), listed.count("nothing-new")) == (1, 1)
    assert "nothing-new" in newest
    assert "run ended: nothing-new" in log
    assert "2 runs and 7 trials" in exported
    evidence = json.loads(reader.shell("scorer train show training.yaml prod --evidence --json"))
    assert (evidence["verdict"], evidence["champion"]) == ("passed", None)
