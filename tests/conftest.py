"""Tests that need a program which only Debian has: reported as NOT RUN where it is missing, a failure where CI is set.

`@pytest.mark.debian("skopeo")` names the program, one of those in `debian.py`. What was not run is written to the file that
the environment variable NOT_RUN_FILE names, for `python3 -m tests`. Tests run in several processes (pytest-xdist): each tells
the one that started it.
"""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.debian import FAILED_FILE, NOT_RUN_FILE, PACKAGES
from tests.support.grouping import GroupScheduling, start_order
from tests.support.shared_broker import BrokerOnDemand

settings.register_profile("busy machine", deadline=None)  # how long an example takes says nothing about what it proves
settings.register_profile("quick", settings.get_profile("busy machine"), max_examples=30)
settings.load_profile("busy machine")
pytest_plugins = ["tests.support.every_setting", "tests.support.fixtures"]
NOT_RUN = pytest.StashKey[dict[str, str]]()
"""Test to package."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backwards", action="store_true", help="the last test first: no test may depend on the order of others")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "debian(program): needs a program of Debian, one of those listed in tests/support/debian.py"
    )
    config.stash[NOT_RUN] = {}
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        broker = BrokerOnDemand()
        config.add_cleanup(broker.close)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored, by what tests start too


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:
    """Keep the tests of a group in one process."""
    return GroupScheduling(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests and deselect those whose program is missing; with CI set they stay and fail."""
    items.sort(key=lambda item: start_order(item.nodeid))
    if config.getoption("backwards", False):
        items.reverse()
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
    """In one of several processes: tell the one that started it."""
    if (told := getattr(session.config, "workeroutput", None)) is not None:
        told["not_run"] = session.config.stash[NOT_RUN]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """In the process that started the others: hear one out."""
    node.config.stash[NOT_RUN] |= getattr(node, "workeroutput", {}).get("not_run", {})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name what was not run, for the reader and for the command that started pytest."""
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
    """The first program that the test needs and this machine lacks. Raises UsageError for one that nothing lists."""
    for mark in item.iter_markers("debian"):
        for program in mark.args:
            if program not in PACKAGES:
                raise pytest.UsageError(
                    f"{item.nodeid}: {program} is not among the programs of tests/support/debian.py; add it there"
                )
            if shutil.which(program) is None:
                return str(program)
    return None
