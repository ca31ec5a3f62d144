"""When a failing candidate gets no events, and for how long."""

from scorer.worker.circuit_breaker import BATCHES, ENOUGH, OPEN_SECONDS, CircuitBreaker


def test_failures_of_half_of_a_large_batch_open_the_breaker() -> None:
    breaker = CircuitBreaker()
    assert breaker.is_closed("a", 0.0)
    assert not breaker.observe(ENOUGH, ENOUGH // 2 - 1, 1.0)
    assert breaker.observe(ENOUGH, ENOUGH // 2, 2.0)
    assert not breaker.is_closed("a", 2.0 + OPEN_SECONDS - 0.1)
    assert breaker.is_closed("a", 2.0 + OPEN_SECONDS)


def test_consecutive_failures_of_small_batches_open_the_breaker() -> None:
    breaker = CircuitBreaker()
    breaker.is_closed("a", 0.0)
    for _ in range(5):
        assert not any(breaker.observe(2, 1, 1.0) for _ in range(BATCHES - 1))
        assert not breaker.observe(2, 0, 1.0)
    assert [breaker.observe(1, 1, 1.0) for _ in range(BATCHES)] == [False] * (BATCHES - 1) + [True]
    assert not breaker.is_closed("a", 1.0)


def test_batches_without_events_do_not_count_and_another_candidate_starts_closed() -> None:
    breaker = CircuitBreaker()
    breaker.is_closed("a", 0.0)
    assert not breaker.observe(0, 0, 0.0)
    assert breaker.observe(100, 100, 0.0)
    assert breaker.is_closed("b", 1.0)
    assert not breaker.observe(1, 1, 1.0)
