"""The clock, the liveness signal and the cancellation of a piece of work, passed down as one value.

The module depends on no other module of the product, and does no I/O of its own.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field


def now_ms() -> int:
    """Return the wall clock in Unix ms."""
    return time.time_ns() // 1_000_000


def _do_nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Clock:
    """The two clocks of a process; tests replace them.

    Attributes:
        now_ms: returns the wall clock in Unix ms. Record timestamps and deadlines are compared with it.
        monotonic: returns monotonic seconds. Durations and time-outs are measured by it.
    """

    now_ms: Callable[[], int] = now_ms
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Context:
    """The clock, the liveness signal and the cancellation that a caller passes to long work.

    Work that waits calls `check` at least twice a second. Work in several steps, such as scoring a batch, calls `check` between
    its steps. The thread that does the work makes these calls.

    Attributes:
        clock: the clocks to use instead of the functions of the module `time`.
        beat: reports that the thread still makes progress. Never raises.
        raise_if_cancelled: raises the error that ends the work, such as Aborted after a stop was requested.
    """

    clock: Clock = field(default_factory=Clock)
    beat: Callable[[], object] = _do_nothing
    raise_if_cancelled: Callable[[], object] = _do_nothing

    def check(self) -> None:
        """Report liveness, then raise the error that ends the work, if there is one."""
        self.beat()
        self.raise_if_cancelled()
