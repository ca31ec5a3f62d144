"""When a scorer is alive and ready, and what it says where it is not."""

import pytest

from publisher.process.outages import COMMITS, MODEL_REGISTRY, Outages
from publisher.session.protocol import Counters
from scorer.observe.progress import LONG_SECONDS, Progress, not_live, not_ready

NOW = 1_000.0


def ready(counters: Counters, outages: Outages | None = None, *, joined: bool = True) -> str | None:
    """What /readyz says at NOW of a scorer that is at its start, or in its group."""
    progress = Progress(NOW, state="not yet in the consumer group", joined=joined)
    return not_ready(outages or Outages(), counters, progress, lambda: NOW)


@pytest.mark.parametrize(
    ("age", "said"),
    [
        (None, None),
        (0.0, None),
        (LONG_SECONDS, None),
        (LONG_SECONDS + 1, "a transaction has been open for 31 s"),
        (3_600.0, "a transaction has been open for 3600 s"),
    ],
)
def test_a_scorer_whose_transaction_stays_open_for_long_is_not_ready(age: float | None, said: str | None) -> None:
    counters = Counters(open_since=None if age is None else NOW - age)
    assert ready(counters) == said
    counters.open_since = None
    assert ready(counters) is None


def test_what_is_waited_for_comes_first_and_the_state_of_the_start_last() -> None:
    outages, late = Outages(), Counters(open_since=NOW - 40.0)
    assert ready(Counters(), joined=False) == "not yet in the consumer group"
    assert ready(late, joined=False) == "a transaction has been open for 40 s"
    outages.begin(MODEL_REGISTRY, "no route", goes_on=True)
    assert ready(Counters(), outages) is None
    outages.begin(COMMITS, "timed out")
    assert ready(late, outages) == "commits: timed out"


@pytest.mark.parametrize(("scoring", "age", "live"), [(True, 59.0, True), (True, 60.0, False), (False, 600.0, True)])
def test_a_scoring_thread_that_does_not_move_is_not_alive(scoring: bool, age: float, live: bool) -> None:
    said = not_live(Progress(NOW - age, scoring=scoring), 60.0, lambda: NOW)
    assert (said is None) == live
