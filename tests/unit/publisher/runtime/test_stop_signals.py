"""The signals that stop a service, in a separate process."""

import subprocess
import sys

import pytest

PROGRAM = """
import signal, sys, threading
from publisher.runtime.stop_signals import STOPS, stop_on_signals

stopping = threading.Event()
lock = threading.Lock()  # as the lock of the Event that the main thread waits for

def stop():
    with lock:
        print("stopping", flush=True)
    stopping.set()

stop_on_signals(stop)
with lock:
    for name in sys.argv[1:]:
        signal.raise_signal(signal.Signals[name])
stopping.wait()
"""


@pytest.mark.parametrize("names", [["SIGTERM"], ["SIGINT"], ["SIGTERM", "SIGINT", "SIGTERM"]])
def test_a_signal_stops_a_process_that_holds_the_lock_of_its_stop_and_further_signals_change_nothing(names: list[str]) -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM, *names], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "stopping\n")
