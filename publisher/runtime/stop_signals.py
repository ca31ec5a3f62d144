"""Handle SIGTERM and SIGINT of a service: the first signal requests its stop, further signals change nothing."""

# A signal handler in Python runs between two instructions of the main thread. At this moment that thread, or an earlier
# handler, may hold the lock of an Event. A handler that sets this Event would then wait for the lock for ever, and the process
# would never stop. The handler here only puts an item into a SimpleQueue, whose `put` is reentrant. Another thread waits for
# the item, and requests the stop.

import signal
import threading
from collections.abc import Callable
from queue import SimpleQueue

STOPS = (signal.SIGTERM, signal.SIGINT)


def stop_on_signals(stop: Callable[[], object]) -> None:
    """Call `stop` once, in a thread of its own, after the first SIGTERM or SIGINT.

    Call this function in the main thread, because only the main thread may set signal handlers.
    """
    arrived: SimpleQueue[None] = SimpleQueue()

    def wait() -> None:
        arrived.get()
        stop()

    threading.Thread(target=wait, name="stop", daemon=True).start()
    for number in STOPS:
        signal.signal(number, lambda *_: arrived.put(None))
