"""Memory of a process that runs for months: few malloc arenas, a garbage collector that leaves batches alone, and once a minute
what is not used any more goes back to the system.

The Kafka clients' threads come and go with brokers and producers, and glibc gives them up to eight arenas a core, each of which
keeps what it has once held: a process would grow with every outage. Calls that fail leave cycles of exceptions and frames.
"""

import contextlib
import ctypes
import functools
import gc
import os
import threading
import time

M_ARENA_MAX = -8  # malloc.h of glibc
ARENAS = 2
GC_THRESHOLD = 100_000  # what a batch makes is many, short-lived and in no cycles: looking for those cost a tenth of the time
TIDY_SECONDS = 60.0


def limit_malloc_arenas() -> None:
    """To be called before threads are begun. `MALLOC_ARENA_MAX` wins where it is set; without glibc nothing happens."""
    if "MALLOC_ARENA_MAX" not in os.environ:
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def start_gc_thread() -> None:
    """To be called when the process is ready: what there is stays. From now on cycles are looked for every GC_THRESHOLD objects
    and every TIDY_SECONDS, when free memory is given back too. To call it again begins no second thread."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    _begin_tidying()


@functools.cache
def _begin_tidying() -> None:
    threading.Thread(target=_tidy, name="tidy", daemon=True).start()


def _tidy() -> None:
    while True:
        time.sleep(TIDY_SECONDS)
        gc.collect()
        with contextlib.suppress(AttributeError, OSError):  # without glibc
            ctypes.CDLL(None).malloc_trim(0)
