"""Properties of every process: few arenas, released memory, an end if it hangs."""

import os
import subprocess
import sys

import pytest

from publisher.runtime.watchdog import BROKEN

ARENAS = """
import ctypes, threading
from publisher.runtime.malloc_tuning import limit_malloc_arenas
limit_malloc_arenas()
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
    process = subprocess.run(
        [sys.executable, "-c", ARENAS], env={**clean, **environment}, capture_output=True, text=True, check=True
    ).stderr
    assert process.count("Arena ") == arenas


TIDIED = """
import ctypes, gc, time, weakref
from publisher.runtime import malloc_tuning

class Frame: pass

libc = ctypes.CDLL(None)
libc.malloc.argtypes, libc.malloc.restype, libc.free.argtypes = [ctypes.c_size_t], ctypes.c_void_p, [ctypes.c_void_p]

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4_096

malloc_tuning.limit_malloc_arenas()
malloc_tuning.TRIM_SECONDS = 0.2
malloc_tuning.start_gc_thread()
malloc_tuning.start_gc_thread()
cycle = Frame()
cycle.itself = cycle
gone = weakref.ref(cycle)
del cycle
blocks = [libc.malloc(1_000) for _ in range(50_000)]
for block in blocks[:-1]:  # the last one keeps the heap from shrinking by itself
    ctypes.memset(block, 1, 1_000)
held = resident()
for block in blocks[:-1]:
    libc.free(block)
until = time.monotonic() + 20
while time.monotonic() < until and (gone() is not None or held - resident() < 40_000_000):
    time.sleep(0.05)
print(gone() is None, held - resident() >= 40_000_000)
"""


def test_unused_memory_is_released_to_the_system() -> None:
    process = subprocess.run([sys.executable, "-c", TIDIED], capture_output=True, text=True, check=True).stdout
    assert process.split() == ["True", "True"]


HANGS = """
import sys, time
from publisher.runtime import logs, watchdog

logs.configure({}, "INFO")
looks = iter([None, None, "lane 3 has not moved"])
watchdog.watch(lambda: next(looks))
time.sleep(60)
"""


def test_a_process_that_hangs_prints_its_stack_and_ends() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == BROKEN
    assert "lane 3 has not moved; ending the process" in ended.stderr
    assert "time.sleep" in ended.stderr or "<string>" in ended.stderr
