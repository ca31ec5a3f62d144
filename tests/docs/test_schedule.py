"""The page on schedules: its crontab line runs as cron starts it, and systemd accepts its units, with the right exit codes."""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from publisher.errors import FINDING, REFUSED, UNREACHABLE, USAGE
from tests.docs import pages
from training.cli import VERBS

PAGE = "deploy/training/schedule.md"
MODEL = "/srv/models/flight-delay"
FIELD = r"(?:\*|\d+)(?:/\d+)?"
UNITS = {"service": "training@.service", "timer": "training@.timer"}
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/"}
"""The environment that cron gives to its commands, apart from the names of the user."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The folder of a model, with an environment in it."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


def unit(name: str) -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]  # keys have capitals
    parsed.read_string(pages.blocks(PAGE)[name])
    return parsed


def test_the_line_of_crontab_starts_a_run(model: Path) -> None:
    (line,) = pages.blocks(PAGE)["crontab"].splitlines()
    times = re.fullmatch(rf"{FIELD}(?: {FIELD}){{4}} (?P<command>.+)", line)
    assert times
    assert "%" not in line, "cron replaces it by a new line"
    command = times["command"].replace(MODEL, str(model))
    assert command != times["command"]
    completed = subprocess.run(
        ["/bin/sh", "-c", command], env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120
    )
    assert completed.returncode == USAGE
    assert "cannot read training.yaml" in completed.stderr


def test_a_service_repeats_only_runs_that_may_succeed() -> None:
    service = unit("service")["Service"]
    assert service["Restart"] == "on-failure"
    final = [int(code) for code in service["RestartPreventExitStatus"].split()]
    assert final == [FINDING, USAGE, REFUSED]
    assert UNREACHABLE not in final
    program, group, verb, config = service["ExecStart"].split()
    assert (Path(program).name, group, config) == ("scorer", "train", "training.yaml")
    assert verb in VERBS
    assert unit("timer")["Install"]["WantedBy"] == "timers.target"


def test_systemd_accepts_the_units(model: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("units")
    for name, file in UNITS.items():
        text = pages.blocks(PAGE)[name]
        assert text.startswith(f"# /etc/systemd/system/{file}\n")
        assert {*unit(name)} - {"DEFAULT"} <= {"Unit", "Service", "Timer", "Install"}
        (folder / file).write_text(text.replace("/srv/models/%i", str(model)).replace("User=scorestream\n", ""))
    if (analyze := shutil.which("systemd-analyze")) is None:  # a machine without systemd
        return
    units = [str(folder / file.replace("@", "@flight-delay")) for file in UNITS.values()]
    completed = subprocess.run([analyze, "verify", *units], capture_output=True, text=True, check=False, timeout=120)
    assert [line for line in completed.stderr.splitlines() if str(folder) in line or "training@" in line] == []
    assert completed.returncode == 0, completed.stderr
