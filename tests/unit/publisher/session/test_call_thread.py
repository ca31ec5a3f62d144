"""Calls in another thread: in order, and nothing of them stays behind."""

import threading
import time
import weakref
from collections.abc import Callable

from publisher.session.call_thread import CallThread, call_apart


class Client:
    """Something that a call holds."""

    def answer(self) -> int:
        """The call."""
        return 7


def until(holds: Callable[[], bool]) -> None:
    """Wait until it does."""
    while not holds():
        time.sleep(0.001)


def alive(name: str) -> bool:
    """Whether a thread of this name is."""
    return any(thread.name == name for thread in threading.enumerate())


def test_what_a_call_held_is_let_go_while_the_thread_waits_for_the_next() -> None:
    thread, client = CallThread("holds"), Client()
    gone = weakref.ref(client)
    future = thread.submit(client.answer)
    assert future.result(10) == 7
    del client, future
    until(lambda: gone() is None)
    assert alive("holds")
    thread.close()
    until(lambda: not alive("holds"))


def test_a_thread_that_is_closed_ends_when_its_call_returns() -> None:
    hangs, thread = threading.Event(), CallThread("hangs")
    future = thread.submit(hangs.wait)
    thread.close()
    assert not future.done()
    hangs.set()
    assert future.result(10)
    until(lambda: not alive("hangs"))


def test_one_call_leaves_no_thread() -> None:
    assert call_apart("once", Client().answer).result(10) == 7
    until(lambda: not alive("once"))
