"""A pytest plugin for tests that need a program which only Debian has: they are reported as NOT RUN where it is missing.

`@pytest.mark.debian("skopeo")` names the program, one of those in `debian.py`. If the environment variable CI is `true`, a
test whose program is missing fails. The tests that were not run are written to the file that the environment variable
NOT_RUN_FILE names, the failed tests to that of FAILED_FILE, for `python3 -m tests`. Each process of pytest-xdist reports its
tests to the main process. This module imports little, because tests start pytest with this plugin alone.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.debian import FAILED_FILE, NOT_RUN_FILE, PACKAGES

NOT_RUN = pytest.StashKey[dict[str, str]]()
"""Test to package."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "debian(program): needs a program of Debian, one of those listed in tests/support/debian.py"
    )
    config.stash[NOT_RUN] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests whose program is missing; with CI set they stay and fail."""
    missing = {item: program for item in items if (program := missing_program(item))}
    if os.environ.get("CI") == "true" or not missing:
        return
    config.stash[NOT_RUN] |= {item.nodeid: PACKAGES[program] for item, program in missing.items()}
    items[:] = [item for item in items if item not in missing]
    config.hook.pytest_deselected(items=list(missing))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    program = missing_program(item)
    if program:
        pytest.fail(
            f"{program} is not installed: apt-get install -y --no-install-recommends {PACKAGES[program]}", pytrace=False
        )
    return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In one of several processes, report its tests to the main process."""
    if (report := getattr(session.config, "workeroutput", None)) is not None:
        report["not_run"] = session.config.stash[NOT_RUN]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """In the main process, read the report of a process that has ended."""
    node.config.stash[NOT_RUN] |= getattr(node, "workeroutput", {}).get("not_run", {})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the tests that were not run, for the reader and for the command that started pytest."""
    not_run = config.stash[NOT_RUN]
    if not_run:
        terminalreporter.section("NOT RUN")
        for test, package in not_run.items():
            terminalreporter.write_line(f"NOT RUN {test}: needs the Debian package {package}")
    if NOT_RUN_FILE in os.environ:
        Path(os.environ[NOT_RUN_FILE]).write_text("".join(f"{package}\t{test}\n" for test, package in not_run.items()))
    if FAILED_FILE in os.environ:
        failed = dict.fromkeys(row.nodeid for kind in ("failed", "error") for row in terminalreporter.stats.get(kind, ()))
        Path(os.environ[FAILED_FILE]).write_text("".join(f"{test}\n" for test in failed))


def missing_program(item: pytest.Item) -> str | None:
    """Return the first missing program that the test needs. Raises UsageError for a program that is not listed."""
    for mark in item.iter_markers("debian"):
        for program in mark.args:
            if program not in PACKAGES:
                raise pytest.UsageError(
                    f"{item.nodeid}: {program} is not among the programs of tests/support/debian.py; add it there"
                )
            if shutil.which(program) is None:
                return str(program)
    return None
