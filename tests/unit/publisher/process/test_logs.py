"""Logs that an operator can read while a broker is away."""

import logging

from publisher.process.logs import CLIENTS, MOST_KINDS, REPEAT_SECONDS, Repeats


def record(message: str, name: str = "librdkafka") -> logging.LogRecord:
    return logging.LogRecord(name, logging.ERROR, __file__, 1, message, None, None)


def test_what_a_client_repeats_is_said_once_in_a_while_with_its_number() -> None:
    now = 0.0
    repeats = Repeats(lambda: now)
    said = [repeats.filter(record(f"FAIL [r0#producer-{k}]: refused (after {k} ms)")) for k in range(5)]
    assert said == [True, False, False, False, False]
    assert repeats.filter(record("FAIL [r0#producer-1]: reset"))
    now = REPEAT_SECONDS
    again = record("FAIL [r0#producer-9]: refused (after 9 ms)")
    assert repeats.filter(again)
    assert again.getMessage() == "FAIL [r0#producer-9]: refused (after 9 ms) (4 more like this)"


def test_other_loggers_may_say_the_same_thing_twice() -> None:
    repeats = Repeats(lambda: 0.0)
    assert all(repeats.filter(record("assigned: flights[1]", "scorer.intake.consumer")) for _ in range(3))
    assert "scorer.intake.consumer" not in CLIENTS


def test_the_memory_for_kinds_of_lines_is_bounded() -> None:
    repeats = Repeats(lambda: 0.0)
    kinds = [chr(ord("a") + k % 26) * (1 + k // 26) for k in range(2 * MOST_KINDS)]
    assert all(repeats.filter(record(kind)) for kind in kinds)
    assert len(repeats._said) <= MOST_KINDS
