"""The wait for unavailable dependencies."""

import threading

import pytest

from publisher.errors import USAGE, Aborted, Fatal
from publisher.runtime.abandonable_call import call_in_thread
from publisher.runtime.context import Context
from publisher.runtime.dependency_wait import BROKERS, DependencyUnavailable, DependencyWaiter, Outages


def test_a_stop_ends_a_start_with_immediately_failing_tries() -> None:
    stopping = threading.Event()
    waiter = DependencyWaiter(lambda: None, lambda: None, Outages(), stopping)

    def step() -> None:
        stopping.set()
        raise DependencyUnavailable("registry", "not there", "wait")

    with pytest.raises(Aborted):
        waiter.retry_until_available(step)


def test_a_stop_abandons_a_step_that_does_not_return() -> None:
    stopping = threading.Event()
    waiter = DependencyWaiter(lambda: None, lambda: None, Outages(), stopping)
    release = threading.Event()
    step = call_in_thread("step", release.wait)
    stopping.set()
    with pytest.raises(Aborted):
        waiter.wait_for(step)
    assert not step.done()
    release.set()
    assert step.result()


def test_a_step_is_repeated_until_its_dependency_answers() -> None:
    outages = Outages()
    waiter = DependencyWaiter(lambda: None, lambda: None, outages, threading.Event())
    observed: list[str | None] = []

    def step() -> int:
        observed.append(outages.summary())
        if len(observed) == 1:
            raise DependencyUnavailable("registry", "timed out")
        return 7

    assert waiter.retry_until_available(step) == 7
    assert observed == [None, "registry: timed out"]
    assert outages.summary() is None


def test_an_error_that_a_person_has_to_correct_is_not_repeated() -> None:
    waiter = DependencyWaiter(lambda: None, lambda: None, Outages(), threading.Event())

    def step() -> None:
        raise Fatal("no such setting", "", USAGE)

    with pytest.raises(Fatal, match="no such setting"):
        waiter.retry_until_available(step)


def checked_until_it_raises(context: Context) -> None:
    while True:
        context.check()


def test_a_broker_that_rejects_the_client_ends_the_wait_of_the_owner_thread() -> None:
    probed = threading.Event()

    def probe() -> None:
        probed.set()
        raise Fatal("wrong password", "", USAGE)

    waiter = DependencyWaiter(probe, lambda: None, Outages(), threading.Event())
    waiter.context.check()
    waiter.start_probe()
    assert probed.wait(10)
    with pytest.raises(Fatal, match="wrong password"):
        checked_until_it_raises(waiter.context)


def test_an_optional_dependency_does_not_delay_the_scorer() -> None:
    outages = Outages()
    outages.begin(BROKERS, "timed out", optional=True)
    assert outages.is_unavailable(BROKERS)
    assert outages.summary() is None
    outages.begin(BROKERS, "timed out")
    assert outages.summary() == "brokers: timed out"
