"""The liveness, readiness and lag of a scorer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.runtime.dependency_wait import COMMITS, MODEL_REGISTRY, Outages
from publisher.transactions.counters import Counters
from scorer.observability.lag import LagClock
from scorer.observability.liveness import LONG_SECONDS, WorkerProgress, not_live, not_ready

NOW = 1_000.0


def ready(counters: Counters, outages: Outages | None = None, *, joined: bool = True) -> str | None:
    """Return the reason of /readyz at NOW. `joined` is whether the scorer has joined its group."""
    progress = WorkerProgress(NOW, state="not yet in the consumer group", joined=joined)
    return not_ready(outages or Outages(), counters, progress, lambda: NOW)


@pytest.mark.parametrize(
    ("age", "reason"),
    [
        (None, None),
        (0.0, None),
        (LONG_SECONDS, None),
        (LONG_SECONDS + 1, "a transaction has been open for 31 s"),
        (3_600.0, "a transaction has been open for 3600 s"),
    ],
)
def test_a_scorer_whose_transaction_stays_open_for_long_is_not_ready(age: float | None, reason: str | None) -> None:
    counters = Counters(open_since=None if age is None else NOW - age)
    assert ready(counters) == reason
    counters.open_since = None
    assert ready(counters) is None


def test_an_outage_is_the_first_reason_and_the_state_of_the_start_up_the_last() -> None:
    outages, late = Outages(), Counters(open_since=NOW - 40.0)
    assert ready(Counters(), joined=False) == "not yet in the consumer group"
    assert ready(late, joined=False) == "a transaction has been open for 40 s"
    outages.begin(MODEL_REGISTRY, "no route", optional=True)
    assert ready(Counters(), outages) is None
    outages.begin(COMMITS, "timed out")
    assert ready(late, outages) == "commits: timed out"


@pytest.mark.parametrize(("scoring", "age", "live"), [(True, 59.0, True), (True, 60.0, False), (False, 600.0, True)])
def test_a_scoring_thread_without_progress_is_not_alive(scoring: bool, age: float, live: bool) -> None:
    fault = not_live(WorkerProgress(NOW - age, scoring=scoring), 60.0, lambda: NOW)
    assert (fault is None) == live


PARTITION = ("flights", 0)
NOW_MS = 1_700_000_000_000


def test_lag_is_the_age_of_the_last_answer_while_records_wait() -> None:
    for waiting, seconds in ((5, 90.0), (0, 0.0)):
        assert LagClock().seconds({PARTITION: waiting}, {PARTITION: NOW_MS - 90_000}, NOW_MS) == {PARTITION: seconds}


def test_an_event_after_a_quiet_hour_is_not_an_hour_late() -> None:
    clock, answered_ms = LagClock(), {PARTITION: NOW_MS}
    clock.seconds({PARTITION: 0}, answered_ms, NOW_MS + 3_600_000)
    assert clock.seconds({PARTITION: 1}, answered_ms, NOW_MS + 3_601_000) == {PARTITION: 1.0}


def test_the_lag_of_a_partition_without_answers_counts_from_the_first_check() -> None:
    clock = LagClock()
    assert clock.seconds({PARTITION: 7}, {}, NOW_MS) == {PARTITION: 0.0}
    assert clock.seconds({PARTITION: 9}, {}, NOW_MS + 120_000) == {PARTITION: 120.0}


def test_the_lag_of_a_reassigned_partition_starts_again() -> None:
    clock = LagClock()
    clock.seconds({PARTITION: 0}, {}, NOW_MS)
    clock.seconds({}, {}, NOW_MS + 60_000)
    assert clock.seconds({PARTITION: 3}, {}, NOW_MS + 120_000) == {PARTITION: 0.0}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10_000), st.booleans()), max_size=20))
def test_lag_is_never_negative_and_grows_no_faster_than_the_clock(checks: list[tuple[int, int, bool]]) -> None:
    clock, now, last_lag = LagClock(), NOW_MS, 0.0
    answered_ms: dict[tuple[str, int], int] = {}
    for waiting, later, has_answers in checks:
        now += later
        answered_ms = {PARTITION: now} if has_answers else answered_ms
        lag = clock.seconds({PARTITION: waiting}, answered_ms, now)[PARTITION]
        assert 0 <= lag <= last_lag + later / 1_000 + 1e-6
        last_lag = lag
