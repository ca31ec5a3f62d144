"""How many arenas the C library gives to threads."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, threading
from publisher.process.memory import few_arenas
few_arenas()
libc, together = ctypes.CDLL(None), threading.Barrier(8)
def take():
    together.wait()
    libc.malloc(100)
    together.wait()
threads = [threading.Thread(target=take) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.malloc_stats()
"""


@pytest.mark.parametrize(("environment", "arenas"), [({}, 2), ({"MALLOC_ARENA_MAX": "5"}, 5)])
def test_threads_share_arenas(environment: dict[str, str], arenas: int) -> None:
    clean = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**clean, **environment}, capture_output=True, text=True, check=True
    ).stderr
    assert told.count("Arena ") == arenas
