"""How many events to take, and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.kafka.headers import Headers
from publisher.session.protocol import Record
from scorer.intake.columns import BATCH_BYTES, chunk
from scorer.loop.batching import FEWEST, RecordSize, full, limited_by, take_limit, within
from scorer.loop.pacing import MAXIMUM_INTERVAL, MINIMUM_INTERVAL, Pacing
from scorer.servables.cost import CostModel

costs = st.floats(0, 0.1)


@given(a=costs, b=st.floats(1e-7, 1e-3), sizes=st.lists(st.integers(1, 4096), min_size=2, max_size=30, unique=True))
def test_the_cost_model_finds_the_line_it_was_shown(a: float, b: float, sizes: list[int]) -> None:
    model = CostModel.of((size, a + b * size) for size in sizes)
    for size in sizes:
        assert model.seconds(size) == pytest.approx(a + b * size, rel=1e-2, abs=1e-6)


@given(st.lists(st.tuples(st.integers(1, 4096), st.floats(0, 10)), min_size=1, max_size=50))
def test_neither_part_of_the_cost_is_ever_negative(samples: list[tuple[int, float]]) -> None:
    a, b = CostModel.of(samples).line()
    assert a >= 0
    assert b >= 0


def test_a_model_that_has_seen_nothing_limits_nothing() -> None:
    assert take_limit(CostModel(), target=0.02, oldest_age=0.0, max_events=4096) == 4096


def test_old_batches_are_forgotten() -> None:
    model = CostModel.of([(1, 1.0), (100, 100.0)] * 10)
    for size in (1, 100) * 500:
        model.observe(size, size * 0.001)
    assert model.seconds(50) == pytest.approx(0.05, rel=0.05)


@given(
    a=st.floats(0, 0.01), b=st.floats(1e-6, 1e-3), target=st.floats(0.001, 1), age=st.floats(0, 2), most=st.integers(1, 10_000)
)
def test_the_limit_meets_the_target_or_there_is_a_backlog(a: float, b: float, target: float, age: float, most: int) -> None:
    model = CostModel.of((size, a + b * size) for size in (1, 64, 1024))
    limit = take_limit(model, target=target, oldest_age=age, max_events=most)
    assert 1 <= limit <= most
    backlog = model.seconds(1) > target - age
    if backlog:
        assert limit == most
    else:
        assert model.seconds(limit) <= (target - age) * (1 + 1e-9)
        assert limit == most or model.seconds(limit + 1) > (target - age) * (1 - 1e-9)


def test_an_older_event_gets_a_smaller_batch() -> None:
    model = CostModel.of([(1, 0.001), (1_000, 0.011)])
    limits = [take_limit(model, target=0.02, oldest_age=age, max_events=100_000) for age in (0.0, 0.005, 0.010, 0.015)]
    assert limits == sorted(limits, reverse=True)
    assert len(set(limits)) == len(limits)


@given(commits=st.lists(st.floats(0, 1), max_size=50), began=st.floats(0, 100), later=st.floats(0, 1))
def test_transactions_keep_their_distance_and_never_wait_for_long(commits: list[float], began: float, later: float) -> None:
    pacing = Pacing()
    for seconds in commits:
        pacing.committed(seconds)
    pacing.begin(began)
    wait = pacing.wait(began + later)
    assert 0 <= wait <= MAXIMUM_INTERVAL * (1 + 1e-9)
    if pacing.usual_commit:
        assert wait + later >= MINIMUM_INTERVAL * (1 - 1e-9)
    else:
        assert wait == 0, "batches have no commits of their own"


def test_a_slow_broker_gets_fewer_transactions() -> None:
    waits = {}
    for seconds in (0.001, 0.004, 0.008, 0.5):
        pacing = Pacing()
        for _ in range(100):
            pacing.committed(seconds)
        pacing.begin(0.0)
        waits[seconds] = pacing.wait(0.0)
    expected = {0.001: MINIMUM_INTERVAL, 0.004: 0.008, 0.008: 0.016 * 8 / 5, 0.5: MAXIMUM_INTERVAL}
    assert waits == pytest.approx(expected, rel=0.01)


def test_after_a_full_batch_the_next_transaction_begins_at_once() -> None:
    pacing = Pacing()
    pacing.committed(1.0)
    pacing.begin(5.0, full=True)
    assert pacing.wait(5.0) == 0.0
    pacing.begin(5.0)
    assert pacing.wait(5.0) > 0.0
    found = {(end, events): full(end, events) for end in ("empty", "events", "bytes", "isolation") for events in (1, FEWEST)}
    assert {one for one, is_full in found.items() if is_full} == {("events", FEWEST), ("bytes", FEWEST), ("bytes", 1)}


def test_the_first_transaction_never_waits() -> None:
    assert Pacing().wait(0.0) == 0.0


@given(sizes=st.lists(st.integers(0, 3 * BATCH_BYTES), min_size=1, max_size=200), most=st.integers(1, 200))
def test_a_batch_holds_no_more_bytes_than_expected_and_at_least_one_event(sizes: list[int], most: int) -> None:
    """Where the largest event is known, the limit is passed by the last event of the batch at most."""
    largest, taken = max(sizes), [sizes[0]]
    while (more := chunk(most - len(taken), sum(taken), largest)) > 0:
        came = sizes[len(taken) : len(taken) + more]
        taken += came
        if len(came) < more:
            break
    assert 1 <= len(taken) <= most
    assert sum(taken[:-1]) <= BATCH_BYTES


def test_small_events_are_read_in_one_call() -> None:
    assert chunk(4_095, 200, 200) == 4_095
    assert chunk(4_095, 0, 0) == 4_095
    assert chunk(0, 200, 200) == 0


@pytest.mark.parametrize(
    ("end", "asked", "largest", "limit"),
    [
        ("empty", 4_096, 4_096, "empty"),
        ("bytes", 4_096, 4_096, "bytes"),
        ("isolation", 4_096, 4_096, "isolation"),
        ("events", 4_096, 4_096, "size"),
        ("events", 2_800, 2_800, "bytes"),
        ("events", 100, 4_096, "latency"),
        ("events", 100, 2_800, "latency"),
    ],
)
def test_what_kept_a_batch_from_being_larger_is_named(end: str, asked: int, largest: int, limit: str) -> None:
    assert limited_by(end, asked, largest, max_events=4_096) == limit


@given(
    size=st.integers(0, 20_000),
    key=st.one_of(st.none(), st.binary(max_size=40)),
    headers=st.one_of(st.none(), st.lists(st.tuples(st.text("abc", max_size=9), st.one_of(st.none(), st.binary(max_size=90))))),
    count=st.integers(FEWEST, 4_096),
)
def test_the_records_of_a_batch_fit_one_request(size: int, key: bytes | None, headers: Headers, count: int) -> None:
    sizes = RecordSize()
    assert sizes.most(1_000_000, 4_096) == 4_096
    sizes.observe([("scores", bytes(size), key, 0, 0, headers)] * count)
    most = sizes.most(1_000_000, 4_096)
    bare = size + len(key or b"") + sum(len(name) + len(held or b"") for name, held in headers or ())
    assert most == FEWEST or (FEWEST < most <= 4_096 and most * bare < 1_000_000)


def test_larger_records_count_at_once_and_smaller_ones_by_and_by() -> None:
    def records(size: int) -> list[Record]:
        return [("scores", bytes(size), None, 0, 0, None)] * FEWEST

    sizes = RecordSize()
    sizes.observe(records(9_000)[1:])
    assert sizes.most(1_000_000, 4_096) == 4_096
    sizes.observe(records(300))
    small = sizes.most(1_000_000, 4_096)
    sizes.observe(records(600))
    large = sizes.most(1_000_000, 4_096)
    sizes.observe(records(300))
    assert large < sizes.most(1_000_000, 4_096) < small < 4_096
    assert sizes.most(1_000_000, 500) == 500


@pytest.mark.parametrize(
    ("a", "b", "seconds", "most"),
    [
        (0.0, 0.01, 1.0, 100),
        (0.2, 0.01, 1.0, 80),
        (5.0, 0.01, 1.0, 50),  # slow whatever the size: smaller batches would not help
        (0.0, 10.0, 1.0, 1),
        (0.0, 1e-6, 1.0, 4_096),
        (0.0, 0.0, 1.0, 4_096),
    ],
)
def test_no_batch_is_expected_to_outlast_its_deadline(a: float, b: float, seconds: float, most: int) -> None:
    cost = CostModel.of((size, a + b * size) for size in (1, 10, 100))
    assert within(cost, seconds, 4_096) == pytest.approx(most, abs=1)
