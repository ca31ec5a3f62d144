"""The time limit of a model's runs in this process. A run that exceeds the limit ends after its current operator.

On the CPU, the limit applies to the CPU time of the running thread, so that a busy machine does not cause failures.
"""

# An operator that never returns cannot be ended. In this case the watchdog ends the process.

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from scorer.backends.base import InferenceFailed

T = TypeVar("T")
CHECKS = 4  # checks per time limit: a run is ended at most a quarter of the limit too late
Clock = Callable[[], float]


def cpu_time() -> Clock:
    """Return a clock of the calling thread's CPU time in seconds. Other threads may read the clock while this thread runs."""
    clock = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(clock)


def wall_time() -> Clock:
    """Return a clock of elapsed time in seconds. Use it for runs on a GPU, because the CPU thread only waits for the GPU."""
    return time.monotonic


class RunTimeout:
    """The time limit of the runs of one model. Only one run at a time is allowed.

    A background thread checks the limit until this object is garbage-collected.

    Args:
        seconds: the time limit of a run.
        clock: a function that returns a clock. It is called at the start of each run, in the thread of the run, so that the
            clock can measure the CPU time of this thread.
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
        """Call `run` and return its result. Raises InferenceFailed if the run exceeded the time limit.

        `options` are ONNX Runtime's run options. `run` must use them, because a run is ended through its options.
        """
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
