"""Wait until a condition is true; all tests wait with these functions."""

import time
from collections.abc import Callable

STEP_SECONDS = 180.0  # the maximum wait for any condition, much longer than needed
LOOK_SECONDS = 0.1


def within(
    done: Callable[[], object],
    seconds: float,
    meanwhile: Callable[[float], object] = lambda _: None,
    every: float = LOOK_SECONDS,
) -> bool:
    """Return whether `done()` becomes true within `seconds`; `done` is called again every `every` seconds.

    `meanwhile(now)` is called between two calls of `done`, with the current time in monotonic seconds.
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
    """Wait until `done()` is true. Raises AssertionError, which names `what`, if it is still false after `seconds`."""
    assert within(done, seconds, every=every), f"{what} did not come within {seconds:g} s"
