"""Limit the time of runs of a model in this process: a run that takes too long is ended between two operators.

On the CPU the CPU time of the running thread is limited, so that a busy machine does not cause a failure. An operator that
never returns cannot be ended; the watchdog ends the process.
"""

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from scorer.backends.base import InferenceFailed

T = TypeVar("T")
CHECKS = 4  # per deadline, which limits the delay after it
Clock = Callable[[], float]


def cpu_time() -> Clock:
    """Return a clock of the calling thread's CPU time in seconds, readable from other threads while it lives."""
    clock = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(clock)


def wall_time() -> Clock:
    """Return a wall clock, for runs on a GPU whose thread waits."""
    return time.monotonic


class RunTimeout:
    """Limits the time of the runs of one model, one run at a time. Its thread ends with this object.

    Args:
        seconds: the time limit of a run.
        clock: returns the clock of a run, at its start and in its thread.
    """

    def __init__(self, seconds: float, clock: Callable[[], Clock]) -> None:
        self.seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._options: Any = None
        self._now: Clock = time.monotonic
        self._ends = 0.0
        pause = seconds / CHECKS
        threading.Thread(target=_check_until_collected, args=(weakref.ref(self), pause), name="run-watch", daemon=True).start()

    def __call__(self, options: Any, run: Callable[[], T]) -> T:
        """Return the result of `run`, which uses these options of ONNX Runtime. Raises InferenceFailed if the run was ended."""
        now = self._clock()
        with self._lock:
            self._options = options
            self._now = now
            self._ends = now() + self.seconds
        try:
            return run()
        except Exception as error:
            if options.terminate:
                raise InferenceFailed(f"the model did not answer within {self.seconds:g} s") from error
            raise
        finally:
            with self._lock:
                self._options = None
                options.terminate = False

    def check(self) -> None:
        """End the current run if it has exceeded the limit."""
        with self._lock:
            if self._options is not None and self._now() >= self._ends:
                self._options.terminate = True


def _check_until_collected(reference: "weakref.ref[RunTimeout]", pause: float) -> None:
    while (watch := reference()) is not None:
        watch.check()
        del watch
        time.sleep(pause)
