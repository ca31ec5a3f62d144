"""Ejection, back-off, probes and the concurrency limit, on a scripted clock."""

from hypothesis import given
from hypothesis import strategies as st

from scorer.backends.remote.load_balancing import (
    FIRST_BACKOFF,
    FIRST_LIMIT,
    LARGEST_LIMIT,
    LONGEST_BACKOFF,
    MISSES,
    ConcurrencyLimit,
    Endpoints,
)


def test_the_server_with_the_fewest_requests_is_picked() -> None:
    servers = Endpoints(["a:1", "b:1", "c:1"])
    servers.all[0].in_flight, servers.all[1].in_flight = 2, 1
    assert servers.select() == 2


def test_a_server_that_refuses_is_ejected_until_a_probe_succeeds() -> None:
    servers = Endpoints(["a:1"])
    servers.failed(0, now=10.0, fault="UNAVAILABLE")
    assert servers.select() is None
    assert servers.describe_faults() == "a:1: UNAVAILABLE"
    assert servers.due(10.0) == []
    assert servers.due(10.0 + FIRST_BACKOFF) == [0]
    servers.all[0].probing = True
    assert servers.due(10.0 + FIRST_BACKOFF) == []
    servers.succeeded(0)
    assert servers.select() == 0
    assert servers.describe_faults() == ""


def test_backoff_doubles_up_to_a_limit() -> None:
    servers = Endpoints(["a:1"])
    waits = []
    for _ in range(40):
        servers.failed(0, now=0.0, fault="")
        waits.append(servers.wait(0.0))
    assert waits[:3] == [FIRST_BACKOFF, 2 * FIRST_BACKOFF, 4 * FIRST_BACKOFF]
    assert waits[-1] == LONGEST_BACKOFF


def test_a_few_missed_deadlines_eject_and_the_probe_is_due_at_once() -> None:
    servers = Endpoints(["a:1", "b:1"])
    for _ in range(3 * MISSES):  # an answer in between resets the count
        servers.record_missed_deadline(0, now=1.0)
        servers.succeeded(0)
    for _ in range(MISSES - 1):
        servers.record_missed_deadline(0, now=1.0)
    assert servers.select() == 0
    servers.record_missed_deadline(0, now=1.0)
    assert servers.select() == 1
    assert servers.due(1.0) == [0]


@given(st.lists(st.tuples(st.sampled_from(["succeeded", "failed", "record_missed_deadline"]), st.integers(0, 2)), max_size=50))
def test_a_picked_server_is_never_an_ejected_one(reports: list[tuple[str, int]]) -> None:
    servers = Endpoints(["a:1", "b:1", "c:1"])
    for now, (report, at) in enumerate(reports):
        arguments = {"succeeded": (), "failed": (float(now), "UNAVAILABLE"), "record_missed_deadline": (float(now),)}[report]
        getattr(servers, report)(at, *arguments)
        selected = servers.select()
        if selected is None:
            assert all(server.open for server in servers.all)
            assert servers.wait(float(now)) <= LONGEST_BACKOFF
        else:
            assert not servers.all[selected].open


def test_the_window_grows_by_one_only_if_it_is_used_up() -> None:
    window = ConcurrencyLimit(4.0)
    window.record_response(3)
    assert window.limit == 4.0
    for _ in range(4):
        window.record_response(4)
    assert 4.9 < window.limit <= 5.0


def test_missed_deadlines_of_earlier_requests_shrink_the_window_once() -> None:
    window = ConcurrencyLimit(8.0)
    for sent_at in (1.0, 1.1, 1.2):
        window.record_missed_deadline(sent_at, now=2.0)
    assert window.limit == 4.0
    window.record_missed_deadline(sent_at=2.5, now=3.5)
    assert window.limit == 2.0


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40), st.floats(0, 100), st.floats(0, 5)), max_size=60))
def test_the_window_stays_within_its_limits(reports: list[tuple[bool, int, float, float]]) -> None:
    window = ConcurrencyLimit()
    assert window.limit == FIRST_LIMIT
    for in_time, in_flight, sent_at, took in reports:
        if in_time:
            window.record_response(in_flight)
        else:
            window.record_missed_deadline(sent_at, sent_at + took)
        assert 1.0 <= window.limit <= LARGEST_LIMIT
        assert window.room(0)
        assert not window.room(int(LARGEST_LIMIT))
