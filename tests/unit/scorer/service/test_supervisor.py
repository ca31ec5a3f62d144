"""The supervisor with workers that hang in three ways, or crash before or after they serve."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from publisher.runtime import watchdog
from scorer.service.supervisor import GRACE_SECONDS
from scorer.service.worker_main import DRAIN_SECONDS
from tests.benchmarks.bench.workload import configuration

PROGRAM = """
import ctypes, os, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from publisher.runtime import logs, watchdog
from publisher.errors import Fatal
from publisher.runtime.stop_signals import stop_on_signals
from scorer.service import supervisor
from scorer.settings import load

def loop(settings, on_serving, journal):
    ignore_sigterm(on_serving)
    while True:
        pass

def sleep(settings, on_serving, journal):
    ignore_sigterm(on_serving)
    while True:
        time.sleep(3_600)

def call(settings, on_serving, journal):
    # a call into C that keeps the interpreter lock, so that no Python code of the process runs
    ignore_sigterm(on_serving)
    mutex = ctypes.create_string_buffer(64)
    while True:
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)  # the second time for ever

def ignore_sigterm(on_serving):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(1, b"ignores SIGTERM\\n")  # one write: two processes share the output
    on_serving("nowhere")

def leave_thread(settings, on_serving, journal):
    # Python waits for the threads of an executor at the end of a process
    stopping = threading.Event()
    stop_on_signals(stopping.set)
    ThreadPoolExecutor(1).submit(time.sleep, 3_600)
    print("serving", flush=True)
    on_serving("nowhere")
    stopping.wait()

def fail_with_thread(settings, on_serving, journal):
    ThreadPoolExecutor(1).submit(time.sleep, 3_600)
    raise Fatal("the worker cannot continue", "", 3)

def crash(settings, on_serving, journal):
    os.kill(os.getpid(), signal.SIGSEGV)

def die(settings, on_serving, journal):
    # each time with another journal: by a code, by a signal, by the code of a hang, by a library
    lives = Path(settings.replica)
    life = len(lives.read_text()) if lives.exists() else 0
    lives.write_text("x" * (life + 1))
    print(journal.read(), flush=True)
    on_serving("nowhere")
    if life == 4:
        signal.pause()
    journal.write({("flights", 0): life + 1})
    ends = [lambda: sys.exit(4), lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: os._exit(watchdog.BROKEN)]
    [*ends, lambda: ctypes.CDLL(None).exit(1)][life]()

def drain(settings, on_serving, journal):
    signal.signal(signal.SIGTERM, lambda *_: print("stopping", flush=True))
    on_serving("nowhere")
    print("serving", flush=True)
    while not Path("drained").exists():
        signal.sigtimedwait([], 0.05)

supervisor.GRACE_SECONDS = 0.0
settings = load(Path(sys.argv[1])).settings
logs.configure({}, "INFO")
try:
    supervisor.run(settings, int(sys.argv[3]), globals()[sys.argv[2]])
except Fatal as error:
    print(error, flush=True)
    sys.exit(error.exit_code)
"""


def supervised(folder: Path, work: str, workers: int = 2, timeout_ms: int = 1_000) -> subprocess.Popen[str]:
    """Start a supervisor of workers with this work, which have twice the timeout to end."""
    config = json.loads(configuration("test", "127.0.0.1:1", "exactly-once"))
    config["model"]["cache"] = str(folder / "cache")
    config |= {"replica": "r", "kafka": {"bootstrap_servers": "127.0.0.1:1", "transaction_timeout_ms": timeout_ms}}
    (folder / "scorer.yaml").write_text(json.dumps(config))
    command = [sys.executable, "-c", PROGRAM, str(folder / "scorer.yaml"), work, str(workers)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_worker_that_hangs_after_a_stop_is_ended_by_its_watchdog_before_the_supervisor_kills_it() -> None:
    assert DRAIN_SECONDS + watchdog.CHECK_SECONDS < GRACE_SECONDS


@pytest.mark.parametrize("work", ["loop", "sleep", "call"])
def test_a_worker_that_does_not_end_in_time_prints_its_stacks_and_is_killed_and_reported(tmp_path: Path, work: str) -> None:
    process = supervised(tmp_path, work)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ignores SIGTERM\n"] * 2
    process.send_signal(signal.SIGTERM)
    output, log = process.communicate(timeout=60)
    assert process.returncode == 4
    assert "did not end within 2 s and was killed" in output
    stacks = re.split(
        r"worker \d \(process \d+\) did not end within 2 s after SIGTERM; the stacks of its threads are above", log
    )
    assert len(stacks) == 3
    for stack in stacks[:2]:  # each stack precedes the line about its worker
        assert re.search(rf'File "<string>", line \d+ in {work}\n', stack)
        assert "in _end_with_supervisor" in stack  # the other threads are printed too


def test_a_worker_ends_after_its_shutdown_despite_a_running_thread(tmp_path: Path) -> None:
    process = supervised(tmp_path, "leave_thread", workers=1, timeout_ms=300_000)
    assert process.stdout is not None
    assert process.stdout.readline() == "serving\n"
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "a thread or a child process has not ended" in log
    assert "in _python_exit" in log, "the stack of the thread that waits"


def test_a_worker_that_fails_with_a_running_thread_keeps_its_exit_code(tmp_path: Path) -> None:
    process = supervised(tmp_path, "fail_with_thread", workers=1, timeout_ms=300_000)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (3, "the worker cannot continue\n")


def test_a_crash_before_any_worker_serves_ends_the_command_with_its_code(tmp_path: Path) -> None:
    process = supervised(tmp_path, "crash")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGSEGV
    assert "was ended by SIGSEGV" in output


def test_a_worker_is_restarted_and_its_events_in_flight_are_suspects_only_after_a_death(tmp_path: Path) -> None:
    process = supervised(tmp_path, "die", workers=1)
    assert process.stdout is not None
    journals = [process.stdout.readline().strip() for _ in range(5)]
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "worker 0 ended with code 4; starting it again in 0.5 s" in log
    assert journals == ["{}", "{}", "{('flights', 0): 2}", "{('flights', 0): 3}", "{('flights', 0): 4}"]


def test_later_signals_do_not_shorten_the_drain_time(tmp_path: Path) -> None:
    process = supervised(tmp_path, "drain", workers=1, timeout_ms=300_000)
    assert process.stdout is not None
    assert process.stdout.readline() == "serving\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "stopping\n"
    for number in (signal.SIGTERM, signal.SIGINT):
        process.send_signal(number)
    (tmp_path / "drained").touch()
    output, log = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "")
    assert "all workers have ended" in log
