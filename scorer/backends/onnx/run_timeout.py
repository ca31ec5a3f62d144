"""A deadline for runs of a model in this process: a run that takes too long is told to end, and ends between two operators.

On the CPU its time is that of the thread that runs it, so that a busy machine is nothing that an event is blamed for. An
operator that never returns cannot be ended so; then the process's watchdog acts.
"""

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from scorer.backends.base import InferenceFailed

T = TypeVar("T")
LOOKS = 4  # in each deadline: how late a run is ended
Clock = Callable[[], float]


def cpu_time() -> Clock:
    """The CPU time of the thread that calls, in seconds, for any thread to read while that one lives."""
    clock = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(clock)


def wall_time() -> Clock:
    """For a run on a GPU, whose thread waits."""
    return time.monotonic


class RunTimeout:
    """For the runs of one model, one at a time. `seconds` is how long one may take, by the clock that `clock` gives when it
    begins. Its thread ends with it."""

    def __init__(self, seconds: float, clock: Callable[[], Clock]) -> None:
        self.seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._options: Any = None
        self._now: Clock = time.monotonic
        self._ends = 0.0
        pause = seconds / LOOKS
        threading.Thread(target=_look_for_ever, args=(weakref.ref(self), pause), name="run-watch", daemon=True).start()

    def __call__(self, options: Any, run: Callable[[], T]) -> T:
        """What `run` returns, which uses these options of ONNX Runtime. Raises InferenceFailed where it was ended."""
        now = self._clock()
        with self._lock:
            self._options, self._now, self._ends = options, now, now() + self.seconds
        try:
            return run()
        except Exception as error:
            if options.terminate:
                raise InferenceFailed(f"the model did not answer within {self.seconds:g} s") from error
            raise
        finally:
            with self._lock:
                self._options, options.terminate = None, False

    def look(self) -> None:
        """End the run of now, if it is one and its time is over."""
        with self._lock:
            if self._options is not None and self._now() >= self._ends:
                self._options.terminate = True


def _look_for_ever(found: "weakref.ref[RunTimeout]", pause: float) -> None:
    while (watch := found()) is not None:
        watch.look()
        del watch
        time.sleep(pause)
