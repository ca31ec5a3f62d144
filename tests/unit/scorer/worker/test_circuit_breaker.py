"""When a candidate is left alone, and for how long."""

from scorer.worker.circuit_breaker import BATCHES, ENOUGH, OPEN_SECONDS, CircuitBreaker


def test_half_of_a_batch_that_is_large_enough_is_too_much_at_once() -> None:
    breaker = CircuitBreaker()
    assert breaker.is_closed("a", 0.0)
    assert not breaker.observe(ENOUGH, ENOUGH // 2 - 1, 1.0)
    assert breaker.observe(ENOUGH, ENOUGH // 2, 2.0)
    assert not breaker.is_closed("a", 2.0 + OPEN_SECONDS - 0.1)
    assert breaker.is_closed("a", 2.0 + OPEN_SECONDS)


def test_small_batches_have_to_fail_in_a_row() -> None:
    breaker = CircuitBreaker()
    breaker.is_closed("a", 0.0)
    for _ in range(5):
        assert not any(breaker.observe(2, 1, 1.0) for _ in range(BATCHES - 1))
        assert not breaker.observe(2, 0, 1.0)
    assert [breaker.observe(1, 1, 1.0) for _ in range(BATCHES)] == [False] * (BATCHES - 1) + [True]
    assert not breaker.is_closed("a", 1.0)


def test_batches_without_its_events_say_nothing_and_another_candidate_begins_anew() -> None:
    breaker = CircuitBreaker()
    breaker.is_closed("a", 0.0)
    assert not breaker.observe(0, 0, 0.0)
    assert breaker.observe(100, 100, 0.0)
    assert breaker.is_closed("b", 1.0)
    assert not breaker.observe(1, 1, 1.0)
