"""What the process of a comparison says, and what it makes of the candidate."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from scorer.rollout.canary_analysis.verdict import CanaryDecision
from scorer.rollout.controller import comparison_step, plan
from scorer.rollout.controller.comparison_step import ComparisonProcess, format_duration
from tests.support.waiting import until

PLAN = plan.parse(
    {"candidate": "2", "steps": [{"compare": {"last": "30d"}}, {"promote": True}], "rules": {"cost": "1.5x"}}, "plan"
)
RULES = [
    {"rule": "errors", "value": 0.0, "limit": 0.005, "beyond": False},
    {"rule": "psi", "value": 3, "limit": 0.2, "beyond": True},
]
Ended = tuple[CanaryDecision, str, dict[str, Any]] | None


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has another program stand for Python: it notes its arguments, prints this, and ends so."""

    def make(ending: str, report: object = None) -> Path:
        program = tmp_path / "program"
        program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\ncat {tmp_path}/report\n{ending}\n')
        program.chmod(0o755)
        (tmp_path / "report").write_text("" if report is None else json.dumps(report))
        monkeypatch.setattr(sys, "executable", str(program))
        return tmp_path / "called"

    return make


def looked(made: ComparisonProcess, times: int = 1) -> Ended:
    """What it says when the process has ended, so many times."""
    found: list[Ended] = []
    for _ in range(times):
        assert made.poll("r", PLAN, "sha256:x") is None, "it begins"
        until(lambda: made._process is None or made._process.poll() is not None, "the end of the process")
        found.append(made.poll("r", PLAN, "sha256:x"))
    assert found[:-1] == [None] * (times - 1)
    return found[-1]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(comparison_step, "RETRY_SECONDS", 0.0)
    return ComparisonProcess(Path("scorer.yaml"), ["a=b"])


def test_the_command_is_the_one_that_a_person_types(says: Any, made: ComparisonProcess) -> None:
    called = says("exit 0", {"rules": RULES[:1], "events": 1_000, "largest_differences": [1]})
    assert looked(made) == (
        CanaryDecision.PROMOTE,
        "compare: 1,000 events, within every limit",
        {"rules": RULES[:1], "events": 1_000},
    )
    said = called.read_text().strip()
    assert said.startswith(
        "-m scorer compare scorer.yaml sha256:x --last 30d --max-errors 0.005 --max-flips 0.05 --max-psi 0.2"
    )
    assert said.endswith("--max-cost 1.5 --set=a=b --json")


def test_what_is_beyond_a_limit_is_rejected(says: Any, made: ComparisonProcess) -> None:
    says("exit 1", {"rules": RULES, "events": 5})
    found = looked(made)
    assert found is not None
    assert found[:2] == (CanaryDecision.ROLL_BACK, "compare: psi 3, the limit is 0.2")


def test_a_candidate_that_is_refused_is_rejected(says: Any, made: ComparisonProcess) -> None:
    says("exit 3")
    found = looked(made)
    assert found is not None
    assert found[0] is CanaryDecision.ROLL_BACK


@pytest.mark.parametrize(
    ("ending", "report", "waits"),
    [
        ("exit 1", {"rules": [], "events": 0}, "compare found no events"),
        ("exit 4", None, "compare ended with exit code 4: its error is in the log"),
        ("exit 2", None, "compare ended with exit code 2: its error is in the log"),
    ],
)
def test_what_says_nothing_of_the_candidate_is_done_again(
    says: Any, made: ComparisonProcess, ending: str, report: object, waits: str
) -> None:
    says(ending, report)
    assert looked(made, 3) is None
    assert made.waiting_for == waits


def test_a_candidate_that_kills_the_process_twice_is_rejected(says: Any, made: ComparisonProcess) -> None:
    says("kill -9 $$")
    assert looked(made, 2) == (CanaryDecision.ROLL_BACK, "compare was ended by signal 9", {})


def test_another_rollout_begins_anew_and_what_runs_is_ended(says: Any, made: ComparisonProcess) -> None:
    says("kill -9 $$")
    assert looked(made) is None
    says("exec sleep 600")
    assert made.poll("other", PLAN, "sha256:y") is None
    process = made._process
    assert process is not None
    assert made.poll("third", PLAN, "sha256:z") is None
    assert process.poll() is not None
    made.close()
    made.close()


@pytest.mark.parametrize(("seconds", "said"), [(90, "90s"), (5_400, "90m"), (46_800, "13h"), (1_126_800, "313h")])
def test_durations_are_written_as_people_do(seconds: int, said: str) -> None:
    assert format_duration(seconds) == said
