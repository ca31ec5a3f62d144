"""Waiting for an effect, one way for all tests."""

import time
from collections.abc import Callable

STEP_SECONDS = 180.0  # how long anything may take to show; far more than it takes
LOOK_SECONDS = 0.1


def within(
    done: Callable[[], object],
    seconds: float,
    meanwhile: Callable[[float], object] = lambda _: None,
    every: float = LOOK_SECONDS,
) -> bool:
    """Whether `done` holds within `seconds`, with a look `every` so many.

    `meanwhile(now)` is called between two looks; `now` is monotonic seconds.
    """
    deadline = time.monotonic() + seconds
    while not done():
        now = time.monotonic()
        if now > deadline:
            return False
        meanwhile(now)
        time.sleep(every)
    return True


def until(done: Callable[[], object], what: str, seconds: float = STEP_SECONDS, every: float = LOOK_SECONDS) -> None:
    """Wait for an effect. Raises AssertionError if it does not show."""
    assert within(done, seconds, every=every), f"{what} did not come within {seconds:g} s"
