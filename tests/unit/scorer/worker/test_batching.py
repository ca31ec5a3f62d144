"""The size of a batch, and the time at which it is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.kafka.headers import Headers
from publisher.transactions.session import Record
from scorer.decoding.batch import End
from scorer.models.latency_model import LatencyModel
from scorer.worker.batching import MIN_EVENTS, BatchLimiter, LookUpLimit, is_full, within_deadline, within_target
from tests.unit.scorer.models.test_latency_model import expected, fitted


def test_a_model_without_samples_limits_no_batch() -> None:
    assert within_target(LatencyModel(), target=0.02, oldest_age=0.0, max_events=4096) == 4096


def test_a_batch_that_takes_no_longer_than_the_interval_is_not_cut() -> None:
    model = LatencyModel()
    for size in (10, 20):
        model.observe(size, 0.00049 * size)
    limits = [within_target(model, target=0.02, oldest_age=0.015, max_events=100, interval=i) for i in (0.0, 0.010, 0.015)]
    assert limits == [10, 20, 30]
    assert within_target(model, target=0.02, oldest_age=1.0, max_events=100, interval=0.015) == 100, "a backlog"


@given(
    a=st.floats(0, 0.01),
    b=st.floats(1e-6, 1e-3),
    target=st.floats(0.001, 1),
    age=st.floats(0, 2),
    max_events=st.integers(1, 10_000),
)
def test_the_limit_meets_the_target_or_there_is_a_backlog(
    a: float, b: float, target: float, age: float, max_events: int
) -> None:
    model = fitted((size, a + b * size) for size in (1, 64, 1024))
    limit = within_target(model, target=target, oldest_age=age, max_events=max_events)
    assert 1 <= limit <= max_events
    backlog = expected(model, 1) > target - age
    if backlog:
        assert limit == max_events
    else:
        assert expected(model, limit) <= (target - age) * (1 + 1e-9)
        assert limit == max_events or expected(model, limit + 1) > (target - age) * (1 - 1e-9)


def test_an_older_event_gets_a_smaller_batch() -> None:
    model = fitted([(1, 0.001), (1_000, 0.011)])
    limits = [within_target(model, target=0.02, oldest_age=age, max_events=100_000) for age in (0.0, 0.005, 0.010, 0.015)]
    assert limits == sorted(limits, reverse=True)
    assert len(set(limits)) == len(limits)


def test_a_full_batch_starts_a_transaction_at_once() -> None:
    ends: tuple[End, ...] = ("empty", "events", "bytes")
    full_batches = {(end, events) for end in ends for events in (1, MIN_EVENTS) if is_full(end, events, 10 * MIN_EVENTS)}
    assert full_batches == {("events", MIN_EVENTS), ("bytes", MIN_EVENTS), ("bytes", 1)}
    assert is_full("events", 8, 8), "the settings allow no larger batch"
    assert not is_full("events", 7, 8)


@pytest.mark.parametrize(
    ("end", "age", "max_events", "record", "limited"),
    [
        ("empty", 0.0, 4_096, 10, "empty"),
        ("bytes", 0.0, 4_096, 10, "bytes"),
        ("events", 0.0, 4_096, 10, "size"),
        ("events", 0.0, 4_096, 400, "bytes"),
        ("events", 0.019, 4_096, 10, "latency"),
        ("events", 0.019, 4_096, 400, "latency"),
        ("events", 0.0, 100, 10, "bytes"),
    ],
)
def test_the_limit_of_a_batch_is_named(end: End, age: float, max_events: int, record: int, limited: str) -> None:
    batch_limiter = limiter()
    batch_limiter.observe([("scores", bytes(record), None, 0, 0, None)] * MIN_EVENTS, "empty")
    cheap = fitted([(1, 2e-6), (1_000, 1e-3)])
    assert 1 <= batch_limiter.limit(cheap, LatencyModel(), age, max_events) <= max_events
    assert batch_limiter.limited_by(end) == limited


def limiter(max_events: int = 4_096) -> BatchLimiter:
    """Return a limiter for requests of a megabyte."""
    return BatchLimiter(target=0.02, deadline=1.0, max_events=max_events, request_bytes=1_000_000)


def largest_batch(batch_limiter: BatchLimiter) -> int:
    """Return the largest batch without known costs."""
    return batch_limiter.limit(LatencyModel(), LatencyModel(), 0.0, 4_096)


@given(
    size=st.integers(0, 20_000),
    key=st.one_of(st.none(), st.binary(max_size=40)),
    headers=st.one_of(st.none(), st.lists(st.tuples(st.text("abc", max_size=9), st.one_of(st.none(), st.binary(max_size=90))))),
    count=st.integers(MIN_EVENTS, 4_096),
)
def test_the_records_of_a_batch_fit_one_request(size: int, key: bytes | None, headers: Headers, count: int) -> None:
    batch_limiter = limiter()
    assert largest_batch(batch_limiter) == 4_096
    batch_limiter.observe([("scores", bytes(size), key, 0, 0, headers)] * count, "empty")
    events = largest_batch(batch_limiter)
    record_bytes = size + len(key or b"") + sum(len(name) + len(content or b"") for name, content in headers or ())
    assert events == MIN_EVENTS or (MIN_EVENTS < events <= 4_096 and events * record_bytes < 1_000_000)


def test_the_records_of_the_fullest_partition_fit() -> None:
    def records(fullest: int) -> list[Record]:
        other_partitions = [1 + at % 3 for at in range(MIN_EVENTS - fullest)]
        return [("scores", bytes(360), None, partition, 0, None) for partition in [0] * fullest + other_partitions]

    spread = limiter()
    spread.observe(records(MIN_EVENTS // 4), "events")
    first_limit = largest_batch(spread)
    assert first_limit == int(2_375 / 0.925), "the estimate grows gradually"
    spread.observe(records(MIN_EVENTS // 4), "empty")
    assert largest_batch(spread) == first_limit, "a batch that empties the partitions changes no estimate"
    for _ in range(50):
        spread.observe(records(MIN_EVENTS // 4), "bytes")
    assert largest_batch(spread) == 4_096
    spread.observe(records(MIN_EVENTS), "events")
    assert largest_batch(spread) == 2_375, "a larger share counts at once"


def test_partitions_of_two_topics_are_two() -> None:
    spread, records = limiter(), [(topic, bytes(360), None, 0, 0, None) for topic in ("scores", "letters")] * MIN_EVENTS
    for _ in range(50):
        spread.observe(records, "events")
    assert largest_batch(spread) == 4_096


def test_larger_records_count_at_once_and_smaller_records_gradually() -> None:
    def records(size: int) -> list[Record]:
        return [("scores", bytes(size), None, 0, 0, None)] * MIN_EVENTS

    sizes = limiter()
    sizes.observe(records(9_000)[1:], "events")
    assert largest_batch(sizes) == 4_096
    sizes.observe(records(300), "events")
    limit_of_small = largest_batch(sizes)
    sizes.observe(records(600), "events")
    limit_of_large = largest_batch(sizes)
    sizes.observe(records(300), "events")
    assert limit_of_large < largest_batch(sizes) < limit_of_small < 4_096
    small_limiter = limiter(500)
    small_limiter.observe(records(300), "events")
    assert largest_batch(small_limiter) == 500


@pytest.mark.parametrize(
    ("a", "b", "seconds", "expected_limit"),
    [
        (0.0, 0.01, 1.0, 100),
        (0.2, 0.01, 1.0, 80),
        (5.0, 0.01, 1.0, 50),  # the fixed cost exceeds the limit: smaller batches would not help
        (0.0, 10.0, 1.0, 1),
        (0.0, 1e-6, 1.0, 4_096),
        (0.0, 0.0, 1.0, 4_096),
    ],
)
def test_no_batch_is_expected_to_outlast_its_deadline(a: float, b: float, seconds: float, expected_limit: int) -> None:
    cost = fitted((size, a + b * size) for size in (1, 10, 100))
    assert within_deadline(cost, seconds, 4_096) == pytest.approx(expected_limit, abs=1)


def test_batches_shrink_while_look_ups_take_long_and_grow_again() -> None:
    limit = LookUpLimit(1_000)
    sizes = []
    for _ in range(11):
        limit.halve(limit.limit)
        sizes.append(limit.limit)
    assert sizes[:3] == [500, 250, 125]
    assert sizes[-1] == 1
    for _ in range(11):
        limit.double()
    assert limit.limit == 1_000


@pytest.mark.parametrize(("partitions", "limit"), [(1, 8_000_000), (4, 8_000_000), (16, 16_000_000)])
def test_feature_records_fit_in_eight_megabytes_or_in_one_request_of_each_partition(partitions: int, limit: int) -> None:
    scores: list[Record] = [("scores", bytes(60), None, row % 16, 0, None) for row in range(MIN_EVENTS)]
    features: list[Record] = [("log", bytes(7_960), None, row % partitions, 0, None) for row in range(MIN_EVENTS)]
    sizes = limiter()
    for _ in range(50):
        sizes.observe(scores, "events", [features])
    assert 0.85 * limit / 8_000 < largest_batch(sizes) <= max(MIN_EVENTS, 0.95 * limit / 8_000)


def test_a_sample_of_feature_records_does_not_limit_batches() -> None:
    scores: list[Record] = [("scores", bytes(60), None, row % 4, 0, None) for row in range(MIN_EVENTS)]
    features: list[Record] = [("log", bytes(960), None, row % 4, 0, None) for row in range(MIN_EVENTS)]
    sampled = limiter()
    for _ in range(50):
        sampled.observe(scores, "events", [features[::100]])
    assert largest_batch(sampled) == 4_096
