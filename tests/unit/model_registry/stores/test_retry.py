"""Attempts and their delays, decided from given times."""

import httpcore
from hypothesis import given
from hypothesis import strategies as st

from model_registry.stores.http_transport import ProgressStream
from model_registry.stores.retry import LONGEST_SECONDS, MAX_ATTEMPTS, AttemptLimit, retry_after

MINUTE = 60.0


def test_backoff_grows_and_ends() -> None:
    attempts = AttemptLimit(MINUTE, now=0)
    waits = [attempts.delay(0, random_share=1.0) for _ in range(MAX_ATTEMPTS)]
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, None]
    for retry_seconds, wait in ((7.0, 7.0), (0.0, 0.125), (61.0, None)):  # the server's value is the minimum
        assert AttemptLimit(MINUTE, now=0).delay(0, random_share=0.5, retry_after=retry_seconds) == wait


def test_progress_restarts_the_count() -> None:
    attempts = AttemptLimit(10.0, now=0)
    assert attempts.delay(9.0, random_share=1.0) == 0.25
    attempts.progressed(9.5)
    assert attempts.delay(19.0, random_share=1.0) == 0.25
    assert attempts.delay(19.6, random_share=0.0) is None


def test_the_time_of_a_transfer_does_not_count_but_the_transfer_does() -> None:
    attempts = AttemptLimit(10.0, now=0)
    for number in range(1, MAX_ATTEMPTS):
        attempts.transferred(100.0 * number)
        assert attempts.delay(100.0 * number, random_share=0.0) == 0.0
    assert attempts.delay(1000.0, random_share=0.0) is None


@given(st.lists(st.floats(0, 1), min_size=MAX_ATTEMPTS, max_size=30), st.floats(0.1, 1000))
def test_the_total_wait_is_bounded(random_shares: list[float], limit: float) -> None:
    attempts = AttemptLimit(limit, now=0)
    now = 0.0
    tries = 0
    for random_share in random_shares:
        wait = attempts.delay(now, random_share)
        if wait is None:
            break
        assert 0 <= wait <= LONGEST_SECONDS
        now, tries = now + wait, tries + 1
    assert now <= limit
    assert tries < MAX_ATTEMPTS


def test_the_header_is_seconds_or_a_date() -> None:
    assert retry_after("120", 0) == 120
    assert retry_after(" 1.5 ", 0) == 1.5
    assert retry_after("Thu, 01 Jan 1970 00:02:00 GMT", 90.0) == 30
    assert retry_after("Thu, 01 Jan 1970 00:02:00 GMT", 500.0) == 0
    for invalid in (None, "", "soon", "-5", "1e9", "9" * 400, "nan", "inf", "Thu, 99 Foo 1970"):
        assert retry_after(invalid, 0) is None


@given(st.text(max_size=40))
def test_any_header_reads_or_not(text: str) -> None:
    delay = retry_after(text, 0)
    assert delay is None or delay >= 0


def test_an_answer_without_progress_times_out() -> None:
    now, limits, answers = 0.0, list[float | None](), [(1, 6.0), (1 << 16, 3.0), (10, 9.0), (1, 0.0)]

    class Slow(httpcore.NetworkStream):
        def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002 - as it is called
            nonlocal now
            limits.append(timeout)
            size, seconds = answers.pop(0)
            now += seconds
            return bytes(size)

        def write(self, buffer: bytes, timeout: float | None = None) -> None:
            """Another request."""

    stream = ProgressStream(Slow(), 10.0, lambda: now)
    for _ in range(3):
        stream.read(1 << 16)
    stream.write(b"")
    stream.read(1)
    assert limits == [10.0, 4.0, 10.0, 10.0]
