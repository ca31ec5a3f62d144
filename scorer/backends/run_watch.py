"""A deadline for runs of a model in this process: a run that takes too long is told to end, and ends between two operators.

An operator that never returns cannot be ended so; then the process's watchdog acts.
"""

import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol, TypeVar

from scorer.backends import InferenceFailed

T = TypeVar("T")
LOOKS = 4  # in each deadline: how late a run is ended


class Options(Protocol):
    """What ONNX Runtime takes with a run."""

    terminate: bool


class RunWatch:
    """For the runs of one model, one at a time. `seconds` is how long one may take. Its thread ends with it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._options: Options | None = None
        self._ends = 0.0
        threading.Thread(
            target=_look_for_ever, args=(weakref.ref(self), seconds / LOOKS), name="run-watch", daemon=True
        ).start()

    def __call__(self, options: Options, run: Callable[[], T]) -> T:
        """What `run` returns, which uses these options. Raises InferenceFailed where it was ended."""
        with self._lock:
            self._options, self._ends = options, time.monotonic() + self.seconds
        try:
            return run()
        except Exception as error:
            if options.terminate:
                raise InferenceFailed(f"the model did not answer within {self.seconds:g} s") from error
            raise
        finally:
            with self._lock:
                self._options, options.terminate = None, False

    def look(self, now: float) -> None:
        """End the run of now, if it is one and its time is over. `now` is in monotonic seconds."""
        with self._lock:
            if self._options is not None and now >= self._ends:
                self._options.terminate = True


def _look_for_ever(found: "weakref.ref[RunWatch]", pause: float) -> None:
    while (watch := found()) is not None:
        watch.look(time.monotonic())
        del watch
        time.sleep(pause)
