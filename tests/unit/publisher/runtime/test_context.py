"""The context that carries clock, liveness and cancellation."""

import pytest

from publisher.errors import Aborted
from publisher.runtime.context import Clock, Context


def test_a_check_reports_liveness_before_it_raises_the_cancellation() -> None:
    beats: list[str] = []

    def cancel() -> None:
        raise Aborted("stop requested")

    with pytest.raises(Aborted, match="stop requested"):
        Context(beat=lambda: beats.append("beat"), raise_if_cancelled=cancel).check()
    assert beats == ["beat"]


def test_a_beat_does_not_raise_the_cancellation() -> None:
    def cancel() -> None:
        raise Aborted("stop requested")

    Context(raise_if_cancelled=cancel).beat()


def test_a_context_without_arguments_checks_nothing_and_uses_the_clocks_of_the_process() -> None:
    context = Context()
    context.check()
    earlier = context.clock.monotonic()
    assert context.clock.monotonic() >= earlier
    assert context.clock.now_ms() > 1_600_000_000_000


def test_a_clock_is_replaced_as_a_whole() -> None:
    context = Context(clock=Clock(now_ms=lambda: 7, monotonic=lambda: 3.5))
    assert (context.clock.now_ms(), context.clock.monotonic()) == (7, 3.5)
