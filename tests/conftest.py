"""The plugins and the scheduling of all tests. Tests run in several processes (pytest-xdist), which share one broker."""

import signal
from typing import Any

import pytest
from hypothesis import settings

from tests.support.grouping import GroupScheduling, start_order
from tests.support.shared_broker import BrokerOnDemand

settings.register_profile("busy machine", deadline=None)  # the duration of an example proves nothing
settings.register_profile("quick", settings.get_profile("busy machine"), max_examples=30)
settings.load_profile("busy machine")
pytest_plugins = ["tests.support.every_setting", "tests.support.fixtures", "tests.support.missing_programs"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backwards", action="store_true", help="the last test first: no test may depend on the order of others")


def pytest_configure(config: pytest.Config) -> None:
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        broker = BrokerOnDemand()
        config.add_cleanup(broker.close)
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # with `&`, a shell ignores it, also for processes that tests start


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:
    """Keep the tests of a group in one process."""
    return GroupScheduling(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests."""
    items.sort(key=lambda item: start_order(item.nodeid))
    if config.getoption("backwards", False):
        items.reverse()
