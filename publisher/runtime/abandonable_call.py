"""A thread for calls that may never return. The caller can abandon such a call and continue."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

ABANDON_SECONDS = 1.0
"""How long a shutdown waits for a background thread to end.

The last call of the thread, to a broker, a registry or a model runtime, may take longer. The thread is then abandoned: it is a
daemon.
"""


class CallThread:
    """Makes the submitted calls one at a time, in their order.

    If a call hangs, later calls wait for it, and the caller must create another `CallThread`. The thread does not keep the
    process running.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call, and return the future of its outcome."""
        future: Future[T] = Future()
        self._calls.put((future, call))
        return future

    def close(self) -> None:
        """End the thread after it has made all submitted calls. If a call never returns, the thread never ends."""
        self._calls.put(None)

    def _run(self) -> None:
        while self._make_next():
            pass

    def _make_next(self) -> bool:
        """Wait for the next submitted call, and make it; return False after `close`."""
        # The local variables are deleted before the thread waits again, because they may hold the last reference to a client.
        submitted = self._calls.get()
        if submitted is None:
            return False
        future, call = submitted
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - the future passes every error on
            future.set_exception(error)
        finally:
            del submitted, future, call
        return True


def call_in_thread(name: str, call: Callable[[], T]) -> Future[T]:
    """Make one call in a thread of its own, and return the future of its outcome."""
    thread = CallThread(name)
    future = thread.submit(call)
    thread.close()
    return future
