"""Memory of a process that runs for months: few malloc arenas, and a garbage collector that leaves batches alone.

The Kafka clients' threads come and go with brokers and producers, and glibc gives them up to eight arenas a core, each of which
keeps what it has once held: a process would grow with every outage.
"""

import contextlib
import ctypes
import gc
import os

M_ARENA_MAX = -8  # malloc.h of glibc
ARENAS = 2
GC_THRESHOLD = 100_000  # what a batch makes is many, short-lived and in no cycles: looking for those cost a tenth of the time


def few_arenas() -> None:
    """To be called before threads are begun. `MALLOC_ARENA_MAX` wins where it is set; without glibc nothing happens."""
    if "MALLOC_ARENA_MAX" not in os.environ:
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def rare_collections() -> None:
    """To be called when the process is ready: what there is stays, and cycles are looked for every GC_THRESHOLD objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
