"""The parent process of `scorer run`, which starts and restarts the workers of one consumer group.

The supervisor scores no events and has no Kafka client. If there are several workers, worker k (from 0) has the replica name
`<replica>-k`, and listens on the port of `http.listen` plus k. When the supervisor ends, also by SIGKILL, all workers end.
"""

# Workers are forked while this process has a single thread, and share the imported modules. Each worker holds the reading end
# of a pipe, and only the supervisor holds the writing end. When the pipe is closed, every worker sends itself SIGTERM. The exit
# code of a worker determines whether the events that it was scoring are treated as possible causes of its death
# (`in_flight_journal.py`).

import contextlib
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import Any

from pydantic import ValidationError

from model_registry import stack_dump
from model_registry.errors import RegistryError
from model_registry.sandbox import describe_end
from publisher.errors import USAGE, Fatal
from publisher.runtime import logs
from publisher.runtime.configuration import SettingsError
from publisher.runtime.stop_signals import STOPS
from publisher.runtime.watchdog import BROKEN
from scorer.crash_isolation.in_flight_journal import InFlightJournal, journal_path
from scorer.models.registry_access import open_cache
from scorer.service import gpu_assignment
from scorer.service.restart_policy import RestartPolicy
from scorer.settings import Settings

log = logging.getLogger(__name__)

EXIT_FAILURE = 1
"""The exit code of a process in which a C library, such as an image decoder, calls exit(EXIT_FAILURE).

The worker's own errors end the process with another exit code, or while no event is in flight.
"""
GRACE_SECONDS = 5.0
"""The time that a worker has to end after SIGTERM, in addition to twice the transaction timeout.

This time is longer than DRAIN_SECONDS of `worker_main.py` plus the check interval of the watchdog. A worker that hangs
therefore ends itself before the supervisor kills it.
"""

EXIT_SECONDS = 1.0  # after the shutdown of a worker, for threads and child processes that Python waits for at its exit

Work = Callable[..., None]
"""A function `work(settings, on_serving=..., journal=...)` that scores events until SIGTERM or SIGINT.

The function calls `on_serving(address)`, with the address of its HTTP server, when it is ready.
"""


def run(settings: Settings, workers: int, work: Work, gpus: Sequence[str] = ()) -> None:
    """Run `workers` processes until SIGTERM or SIGINT, then let each finish the batch in flight.

    Args:
        settings: the settings of a single worker; see `worker_settings`.
        workers: the number of processes.
        work: the function that each process runs; see `Work`.
        gpus: values of CUDA_VISIBLE_DEVICES, which the workers get in turn; empty if the workers use no GPU.

    Raises:
        Fatal: A worker ended with an error and is not restarted, or did not end in time.
        SettingsError: The settings are not valid for this number of workers.
    """
    each = [worker_settings(settings, number) for number in range(workers)] if workers > 1 else [settings]
    stack_dump.print_on_signal()  # here, so that every forked worker has the handler from its first instruction
    gc.collect()
    gc.freeze()
    with contextlib.closing(_Wakeup()) as wakeup:
        _Supervisor(each, work, wakeup, gpus).run()
    log.info("all workers have ended")


def worker_settings(settings: Settings, number: int) -> Settings:
    """Return the settings of worker `number`, counted from 0, with its own replica name and port.

    Raises SettingsError if the replica name or the port is invalid.
    """
    host, _, port = settings.http.listen.rpartition(":")
    listen = f"{host}:{int(port) + number if int(port) else 0}"
    replica = f"{settings.replica}-{number}"
    if int(port) + number > 65_535:
        raise SettingsError(f"http.listen: worker {number} would listen on {listen}; set a lower port in http.listen")
    try:
        http = settings.http.model_dump() | {"listen": listen}
        return type(settings).model_validate(settings.model_dump() | {"replica": replica, "http": http})
    except ValidationError as error:
        if error.errors()[0]["loc"] != ("replica",):
            raise
        raise SettingsError(f"replica: the name {replica!r} of worker {number} is too long; give a shorter replica") from None


class _Wakeup:
    """A socket that becomes readable when SIGTERM or SIGINT arrives, so that one call can wait for signals and workers."""

    def __init__(self) -> None:
        self.stopping = False
        self.reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in STOPS:
            signal.signal(number, self._stop)

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        self.reader.close()
        self._writer.close()

    def _stop(self, *_: object) -> None:
        self.stopping = True


class _WorkerProcess:
    """The supervisor's state of one worker: its current process, the messages of the process, and its in-flight journal.

    The in-flight journal records the events that the worker is scoring.

    Attributes:
        error: the error that the process reported before it ended; None if the process reported no error.
        restart_at: the time of the next start in monotonic seconds; None while the process runs.
    """

    def __init__(self, number: int, settings: Settings, gpu: str | None) -> None:
        self.number = number
        self._gpu = gpu
        self.settings = settings
        self.journal = _open_journal(settings)
        self.error: Fatal | None = None
        self.restart_at: float | None = 0.0
        self._process: Any = None
        self._messages: Any = None

    def start(self, work: Work, lifeline: tuple[int, int]) -> None:
        """Fork a process for this worker. `lifeline` is the pipe by which the process notices the end of the supervisor.

        SIGTERM and SIGINT are blocked until the child has reset the inherited handlers.
        """
        fork = multiprocessing.get_context("fork")
        self._messages, sender = fork.Pipe(duplex=False)
        self.error = None
        self.restart_at = None
        self._process = fork.Process(target=_run_child, args=(self.settings, work, sender, lifeline, self.journal, self._gpu))
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        sender.close()
        device = f" on GPU {self._gpu}" if self._gpu is not None else ""
        log.info("worker %d is process %d%s", self.number, self._process.pid, device)

    @property
    def running(self) -> bool:
        return self.restart_at is None

    def waitables(self) -> list[Any]:
        """Return the objects for `connection.wait` that become ready when the process sends a message or ends."""
        return [self._process.sentinel, *([self._messages] if self._messages else [])]

    def read_messages(self) -> bool:
        """Read the available messages of the process. Return whether one of them reports that the process is ready."""
        served = False
        try:
            while self._messages and self._messages.poll():
                message = self._messages.recv()
                if isinstance(message, Fatal):
                    self.error = message
                else:
                    served = True
        except (EOFError, OSError):
            self._messages.close()
            self._messages = None
        return served

    def exit_code(self, wait_seconds: float = 0.0) -> int | None:
        """Return the exit code or the negated signal of the process; None if it still runs after `wait_seconds`."""
        self._process.join(wait_seconds)
        code: int | None = self._process.exitcode
        return code

    def update_journal(self, code: int) -> None:
        """Clear the journal after the process has ended, unless the events in flight may have caused its end."""
        # A death is an end by a signal, a hang, a broken model, or an exit by a library. The journal then keeps the events that
        # were in flight, because they may have caused the death.
        if code >= 0 and code not in (BROKEN, EXIT_FAILURE):
            self.journal.clear()
            self.journal.end_load()

    def send(self, number: signal.Signals) -> None:
        if self.exit_code() is None:
            os.kill(self._process.pid, number)

    def print_stacks(self, seconds: float) -> None:
        """Make the process print the stacks of its threads to stderr, and wait up to `seconds`."""
        if self.exit_code() is None:
            stack_dump.request(self._process.pid)
            self.exit_code(seconds)

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def failure(self, code: int) -> Fatal:
        """Return the error that ends `scorer run`: the error that the process reported, or else one that describes `code`."""
        if self.error:
            return self.error
        return Fatal(f"worker {self.number} {describe_end(code)}", "see its log lines above", code if code > 0 else 128 - code)


class _Supervisor:
    def __init__(self, settings: Sequence[Settings], work: Work, wakeup: _Wakeup, gpus: Sequence[str]) -> None:
        self._workers = [
            _WorkerProcess(number, each, gpus[number % len(gpus)] if gpus else None) for number, each in enumerate(settings)
        ]
        self._work = work
        self._wakeup = wakeup
        self._restarts = RestartPolicy()
        self._grace = 2 * settings[0].kafka.transaction_timeout_ms / 1_000 + GRACE_SECONDS
        self._lifeline = os.pipe()

    def run(self) -> None:
        failed: Fatal | None = None
        try:
            while not self._wakeup.stopping and failed is None:
                self._start_due_workers()
                self._wait()
                failed = self._handle_changes()
        finally:
            unclean = self._stop()
            for end in self._lifeline:
                os.close(end)
        if failure := failed or unclean:
            raise failure

    def _start_due_workers(self) -> None:
        for worker in self._workers:
            if worker.restart_at is not None and time.monotonic() >= worker.restart_at:
                worker.start(self._work, self._lifeline)

    def _wait(self) -> None:
        """Wait until a worker sends a message or ends, a restart is due, or a signal arrives."""
        due = [worker.restart_at for worker in self._workers if worker.restart_at is not None]
        timeout = max(0.0, min(due) - time.monotonic()) if due else None
        watched = [item for worker in self._running() for item in worker.waitables()]
        connection.wait([self._wakeup.reader, *watched], timeout)

    def _handle_changes(self) -> Fatal | None:
        """Handle messages and ends of workers, and schedule restarts. Return an error if all workers must end, else None."""
        for worker in self._running():
            now = time.monotonic()
            code = worker.exit_code()
            if worker.read_messages():
                self._restarts.serving(worker.number, now)
            if code is None or self._wakeup.stopping:
                continue
            worker.update_journal(code)
            worker.restart_at = self._restarts.ended(worker.number, code, now)
            if worker.restart_at is None:
                return worker.failure(code)
            end = f"{describe_end(code)}: {worker.error}" if worker.error else describe_end(code)
            log.error("worker %d %s; starting it again in %.1f s", worker.number, end, worker.restart_at - now)
        return None

    def _stop(self) -> Fatal | None:
        """Send SIGTERM to all workers, and kill the workers that do not end in time. Return the first failure or None."""
        # Before a worker is killed, it prints its stacks. All killed workers together have PRINT_SECONDS to print.
        running = self._running()
        for worker in running:
            worker.send(signal.SIGTERM)
            worker.journal.end_load()  # a kill from now on is not caused by the version that is being loaded
        deadline = time.monotonic() + self._grace
        for worker in running:
            worker.exit_code(max(0.0, deadline - time.monotonic()))
        hung = [worker for worker in running if worker.exit_code() is None]
        killed = [worker for worker in hung if self._kill(worker, stack_dump.PRINT_SECONDS / len(hung))]
        failures: list[Fatal] = []
        for worker in running:
            worker.read_messages()
            if worker in killed:
                failures.append(
                    Fatal(
                        f"worker {worker.number} did not end within {self._grace:.0f} s and was killed",
                        "the log has the stacks of its threads",
                    )
                )
                continue
            code = worker.exit_code()
            assert code is not None
            worker.update_journal(code)
            if code not in (0, -signal.SIGTERM, -signal.SIGINT):  # a signal ends a process that has no handler yet
                failures.append(worker.failure(code))
        return failures[0] if failures else None

    def _kill(self, worker: _WorkerProcess, print_seconds: float) -> bool:
        """Kill a worker that did not end in time, after it has printed its stacks. Return False if it ended meanwhile."""
        worker.print_stacks(print_seconds)
        if worker.exit_code() is not None:
            return False
        log.error(
            "worker %d (process %d) did not end within %.0f s after SIGTERM; the stacks of its threads are above; killing it",
            worker.number,
            worker.pid,
            self._grace,
        )
        worker.send(signal.SIGKILL)
        worker.exit_code(self._grace)
        return True

    def _running(self) -> list[_WorkerProcess]:
        return [worker for worker in self._workers if worker.running]


def _open_journal(settings: Settings) -> InFlightJournal:
    try:
        return InFlightJournal(journal_path(open_cache(settings.model).root, settings.owner))
    except OSError as error:
        message = f"model.cache: cannot write to the folder: {error}"
        raise Fatal(message, "set model.cache to another folder, or let this user write to the folder", USAGE) from error


def _run_child(
    settings: Settings,
    work: Work,
    sender: Any,
    lifeline: tuple[int, int],
    journal: InFlightJournal,
    gpu: str | None,
) -> None:
    """Run `work` in the forked process. If it raises an error, send the error to the supervisor before the process ends."""
    if gpu is not None:
        os.environ[gpu_assignment.VISIBLE] = gpu  # before anything in this process, or a child of it, initialises CUDA
    signal.set_wakeup_fd(-1)
    for number in STOPS:
        signal.signal(number, signal.SIG_DFL)
    reader, writer = lifeline
    os.close(writer)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    threading.Thread(target=_end_with_supervisor, args=(reader,), name="lifeline", daemon=True).start()
    logs.configure({"scorer": settings.owner}, settings.log.level, settings.log.format)
    code = EXIT_FAILURE  # of an unexpected error, as `multiprocessing` ends a process
    try:
        work(settings, on_serving=lambda address: _send(sender, address), journal=journal)
        code = 0
    except (Fatal, RegistryError) as error:
        _send(sender, Fatal(str(error), error.hint, error.exit_code))
        code = error.exit_code
        sys.exit(code)
    except Exception:
        log.exception("unexpected error; the worker ends")
        sys.exit(code)
    finally:
        threading.Thread(target=_limit_exit, args=(code,), name="exit-limit", daemon=True).start()


def _limit_exit(code: int) -> None:
    """End this process with `code` if it still runs EXIT_SECONDS after its work has ended."""
    # Python would wait for the threads of executors, for all non-daemon threads, and for child processes.
    time.sleep(EXIT_SECONDS)
    log.warning("a thread or a child process has not ended %g s after the shutdown; ending without it", EXIT_SECONDS)
    stack_dump.print_own()
    os._exit(code)


def _send(sender: Any, message: Fatal | str) -> None:
    with contextlib.suppress(OSError):
        sender.send(message)


def _end_with_supervisor(reader: int) -> None:
    """Wait until the supervisor has ended, then request the shutdown of this worker process."""
    while os.read(reader, 1):
        continue
    log.warning("the supervisor has ended; stopping")
    os.kill(os.getpid(), signal.SIGTERM)
