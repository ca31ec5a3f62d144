"""The results of the comparison process, and their effect on the candidate."""

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
ComparisonResult = tuple[CanaryDecision, str, dict[str, Any]] | None


@pytest.fixture
def fake_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace the Python interpreter by a program that records its arguments, prints a report and ends as given."""

    def install(ending: str, report: object = None) -> Path:
        program = tmp_path / "program"
        program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\ncat {tmp_path}/report\n{ending}\n')
        program.chmod(0o755)
        (tmp_path / "report").write_text("" if report is None else json.dumps(report))
        monkeypatch.setattr(sys, "executable", str(program))
        return tmp_path / "called"

    return install


def poll_to_end(comparison: ComparisonProcess, times: int = 1) -> ComparisonResult:
    """Run the process `times` times, and return the result of the last run."""
    results: list[ComparisonResult] = []
    for _ in range(times):
        assert comparison.poll("r", PLAN, "sha256:x") is None, "the process starts"
        until(lambda: comparison._process is None or comparison._process.poll() is not None, "the end of the process")
        results.append(comparison.poll("r", PLAN, "sha256:x"))
    assert results[:-1] == [None] * (times - 1)
    return results[-1]


@pytest.fixture
def comparison(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(comparison_step, "RETRY_SECONDS", 0.0)
    return ComparisonProcess(Path("scorer.yaml"), ["a=b"])


def test_the_command_is_that_of_the_command_line(fake_compare: Any, comparison: ComparisonProcess) -> None:
    recorded_arguments = fake_compare("exit 0", {"rules": RULES[:1], "events": 1_000, "largest_differences": [1]})
    assert poll_to_end(comparison) == (
        CanaryDecision.PROMOTE,
        "compare: 1,000 events, within every limit",
        {"rules": RULES[:1], "events": 1_000},
    )
    command = recorded_arguments.read_text().strip()
    assert command.startswith(
        "-m scorer compare scorer.yaml sha256:x --last 30d --max-errors 0.005 --max-flips 0.05 --max-psi 0.2"
    )
    assert command.endswith("--max-cost 1.5 --set=a=b --json")


def test_a_figure_beyond_its_limit_rejects_the_candidate(fake_compare: Any, comparison: ComparisonProcess) -> None:
    fake_compare("exit 1", {"rules": RULES, "events": 5})
    result = poll_to_end(comparison)
    assert result is not None
    assert result[:2] == (CanaryDecision.ROLL_BACK, "compare: psi 3, the limit is 0.2")


def test_a_candidate_that_is_refused_is_rejected(fake_compare: Any, comparison: ComparisonProcess) -> None:
    fake_compare("exit 3")
    result = poll_to_end(comparison)
    assert result is not None
    assert result[0] is CanaryDecision.ROLL_BACK


@pytest.mark.parametrize(
    ("ending", "report", "message"),
    [
        ("exit 1", {"rules": [], "events": 0}, "compare found no events"),
        ("exit 4", None, "compare ended with exit code 4: its error is in the log"),
        ("exit 2", None, "compare ended with exit code 2: its error is in the log"),
    ],
)
def test_a_run_without_a_result_is_repeated(
    fake_compare: Any, comparison: ComparisonProcess, ending: str, report: object, message: str
) -> None:
    fake_compare(ending, report)
    assert poll_to_end(comparison, 3) is None
    assert comparison.waiting_for == message


def test_a_candidate_that_kills_the_process_twice_is_rejected(fake_compare: Any, comparison: ComparisonProcess) -> None:
    fake_compare("kill -9 $$")
    assert poll_to_end(comparison, 2) == (CanaryDecision.ROLL_BACK, "compare was ended by signal 9", {})


def test_another_rollout_starts_a_new_process_and_ends_the_running_one(
    fake_compare: Any, comparison: ComparisonProcess
) -> None:
    fake_compare("kill -9 $$")
    assert poll_to_end(comparison) is None
    fake_compare("exec sleep 600")
    assert comparison.poll("other", PLAN, "sha256:y") is None
    process = comparison._process
    assert process is not None
    assert comparison.poll("third", PLAN, "sha256:z") is None
    assert process.poll() is not None
    comparison.close()
    comparison.close()


@pytest.mark.parametrize(("seconds", "text"), [(90, "90s"), (5_400, "90m"), (46_800, "13h"), (1_126_800, "313h")])
def test_durations_are_written_as_people_do(seconds: int, text: str) -> None:
    assert format_duration(seconds) == text
