"""Few malloc arenas. The Kafka clients' threads come and go with brokers and producers, and glibc gives them up to eight arenas
a core, each of which keeps what it has once held: a process would grow with every outage."""

import contextlib
import ctypes
import os

M_ARENA_MAX = -8  # malloc.h of glibc
ARENAS = 2


def few_arenas() -> None:
    """To be called before threads are begun. `MALLOC_ARENA_MAX` wins where it is set; without glibc nothing happens."""
    if "MALLOC_ARENA_MAX" not in os.environ:
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
