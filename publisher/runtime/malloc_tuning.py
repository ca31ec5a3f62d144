"""Memory settings of a process that runs for months: few malloc arenas, rare garbage collection, a trim every minute."""

# Kafka clients start and end threads for each broker and producer. glibc creates up to eight arenas per core for these threads,
# and each arena keeps its peak size, so a process would grow with every outage. Failed calls leave reference cycles of
# exceptions and frames, which only garbage collection frees.

import contextlib
import ctypes
import functools
import gc
import os
import threading
import time

M_ARENA_MAX = -8  # malloc.h of glibc
ARENAS = 2
GC_THRESHOLD = 100_000  # a batch creates many objects without cycles; the default threshold cost a tenth of the time
TRIM_SECONDS = 60.0


def limit_malloc_arenas() -> None:
    """Limit glibc to ARENAS arenas, unless `MALLOC_ARENA_MAX` is set. Call it before the first thread starts."""
    if "MALLOC_ARENA_MAX" not in os.environ:
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def start_gc_thread() -> None:
    """Exempt the existing objects from garbage collection, and start a thread that frees memory every TRIM_SECONDS.

    Call this function when the process is ready. A second call starts no second thread.
    """
    # The thread collects reference cycles and returns free memory to the system. In between, Python's own collection runs only
    # after GC_THRESHOLD new objects.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    _start_thread()


@functools.cache
def _start_thread() -> None:
    threading.Thread(target=_trim_regularly, name="trim", daemon=True).start()


def _trim_regularly() -> None:
    while True:
        time.sleep(TRIM_SECONDS)
        gc.collect()
        with contextlib.suppress(AttributeError, OSError):  # without glibc
            ctypes.CDLL(None).malloc_trim(0)
