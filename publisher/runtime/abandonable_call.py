"""A thread that makes calls which may never return, one at a time, so that the caller can go on without them."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class CallThread:
    """Calls are made in the order they come. The thread does not keep the process alive: a call that hangs is left to itself,
    and whoever gave it makes another `CallThread`.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Make this call; its outcome is told by the future."""
        future: Future[T] = Future()
        self._calls.put((future, call))
        return future

    def close(self) -> None:
        """No more calls; the thread ends after the last one, if that ever returns."""
        self._calls.put(None)

    def _run(self) -> None:
        while self._make_next():
            pass

    def _make_next(self) -> bool:
        """One call, or False at the end. Nothing of it is held while the thread waits for the next: it may hold a client."""
        given = self._calls.get()
        if given is None:
            return False
        future, call = given
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told to the one who asked
            future.set_exception(error)
        finally:
            del given, future, call
        return True


def call_in_thread(name: str, call: Callable[[], T]) -> Future[T]:
    """Make one call in a thread of its own."""
    thread = CallThread(name)
    future = thread.submit(call)
    thread.close()
    return future
