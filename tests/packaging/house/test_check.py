"""The parts of the check: its counts, its exit code, and tests that need a program which is not installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.__main__ import MAX_REPEATED, STEPS, TORCH, Outcome, attempt, attempt_beside, count, main, report, run_pytest, split
from tests.support.debian import NOT_RUN_FILE, PACKAGES, install_line
from tests.support.environment import ROOT, choose

RESULTS = """<testsuites><testsuite name="pytest">
<testcase classname="a" name="ok"/><testcase classname="a" name="bad"><failure message="m"/></testcase>
<testcase classname="a" name="broken"><error message="m"/></testcase><testcase classname="a" name="out"><skipped/></testcase>
</testsuite></testsuites>"""
ONCE = """
from pathlib import Path

def test_flaky():
    runs = Path(__file__).with_name("runs")
    runs.write_text("x" * (len(runs.read_text()) + 1 if runs.exists() else 1))
    assert runs.read_text() != "x"

def test_good(): pass
"""
BAD = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_bad(number):
    assert False
"""
NEEDY = """
import pytest
@pytest.mark.debian("skopeo")
def test_needy(): pass
def test_plain(): pass
"""


def test_results_are_counted() -> None:
    assert count(RESULTS) == (1, 2, ("a::out",))


def test_the_report_ends_with_the_counts_and_names_tests_that_were_not_run() -> None:
    lines = report([Outcome("lint", 0.5, passed=1), Outcome("pytest", 9.0, 7, 2, (("tests/x.py::test_x", "skopeo"),))])
    assert lines[-1] == "8 passed, 2 failed"
    assert install_line(["skopeo"]) in lines[-2]
    assert any("NOT RUN" in line and "tests/x.py::test_x" in line for line in lines)
    assert [line.split()[:2] for line in lines[2:4]] == [["lint", "ok"], ["pytest", "FAILED"]]


def test_arguments_after_the_divider_are_for_pytest() -> None:
    assert split(["--only", "pytest", "--", "-k", "x"]) == (["--only", "pytest"], ["-k", "x"])
    assert split(["--only", "lint"]) == (["--only", "lint"], [])


def test_an_unknown_step_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--only", "lnit"])
    assert caught.value.code == 2
    assert "lnit" in capsys.readouterr().err


def test_the_debian_packages_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--debian-packages"]) == 0
    assert set(capsys.readouterr().out.split()) == set(PACKAGES.values())


def test_an_environment_with_the_gpu_runtime_is_not_changed(tmp_path: Path) -> None:
    assert choose(tmp_path) == tmp_path / ".venv"
    (tmp_path / ".venv/lib/python3.12/site-packages/onnxruntime_gpu-1.31.1.dist-info").mkdir(parents=True)
    assert choose(tmp_path) == tmp_path / ".venv-tests"


def test_the_tests_that_need_torch_are_those_of_their_own_step(pytestconfig: pytest.Config) -> None:
    """No other run collects these tests, and the step fails without them."""
    assert "network" in TORCH
    assert STEPS["network"][:2] == ("pytest", "tests/network")
    assert "tests/network" in pytestconfig.getini("norecursedirs")
    assert list((ROOT / "tests" / "network").glob("test_*.py"))


def test_a_step_fails_if_its_environment_cannot_be_created(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    python = tmp_path / ".venv" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    outcome = attempt("network", python.parents[1], [])
    assert (outcome.step, outcome.passed, outcome.failed) == ("network", 0, 1)
    assert "failed: " in capfd.readouterr().err


def test_a_step_beside_others_prints_its_output_when_it_has_ended(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "bin" / "mypy"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 2 errors\necho the reason >&2\nexit 1\n")
    program.chmod(0o755)
    outcome = attempt_beside("types", tmp_path)
    assert (outcome.step, outcome.passed, outcome.failed) == ("types", 0, 1)
    assert capfd.readouterr().out.splitlines() == ["", "== types: mypy", "2 errors", "the reason"]


def run_check(folder: Path, tests: str) -> Outcome:
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\n")
    pytest_command = [sys.executable, "-m", "pytest", "-p", "tests.support.missing_programs", "-p", "no:cacheprovider"]
    return run_pytest(pytest_command, ["test_it.py"], {**os.environ, "PYTHONPATH": str(ROOT)}, folder)


def test_a_failed_test_that_passes_alone_is_named_as_flaky(tmp_path: Path) -> None:
    outcome = run_check(tmp_path, ONCE)
    assert (outcome.passed, outcome.failed, len(outcome.flaky)) == (2, 0, 1)
    assert any(line.startswith("FLAKY") and "test_flaky" in line for line in report([outcome]))


@pytest.mark.parametrize("count", [1, MAX_REPEATED + 1])
def test_a_test_that_fails_again_has_failed(tmp_path: Path, count: int, capfd: pytest.CaptureFixture[str]) -> None:
    outcome = run_check(tmp_path, BAD.format(count=count))
    assert (outcome.passed, outcome.failed, outcome.flaky) == (0, count, ())
    assert ("again, one after the other" in capfd.readouterr().out) == (count <= MAX_REPEATED)


@pytest.mark.parametrize("ci", ["", "true"])
def test_a_missing_program_is_not_run_here_and_fails_in_ci(tmp_path: Path, ci: str) -> None:
    (tmp_path / "test_needy.py").write_text(NEEDY)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "PATH": str(tmp_path), "CI": ci, NOT_RUN_FILE: str(tmp_path / "list")}
    options = ["-p", "tests.support.missing_programs", "-p", "no:cacheprovider", "--strict-markers"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    completed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    listed = (tmp_path / "list").read_text()
    if ci:
        assert (completed.returncode, listed) == (1, "")
        assert "1 passed, 1 error" in completed.stdout
        assert install_line(["skopeo"]) in completed.stdout
    else:
        assert (completed.returncode, listed.split("\t")[0]) == (0, "skopeo")
        assert "1 passed, 1 deselected" in completed.stdout
        assert "NOT RUN" in completed.stdout
