"""The parent of `scorer run`: one or more workers in one consumer group. It scores nothing and has no Kafka client.

Of several workers, worker k is the same scorer with the replica `<replica>-k` and the k-th port after `http.listen`. Workers
are forked before this process has a second thread, so that imports are loaded once. Each worker holds the reading end of a
pipe whose writing end only the supervisor has: the end of the supervisor, also by SIGKILL, is a SIGTERM to every worker. The
supervisor sees how a worker ends, and so whether the events in flight are suspected (`in_flight_journal.py`).
"""

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

from model_registry.errors import RegistryError
from model_registry.sandbox import describe_end
from publisher.errors import USAGE, Fatal
from publisher.runtime import logs
from publisher.runtime.configuration import SettingsError
from publisher.runtime.watchdog import BROKEN
from scorer.crash_isolation.in_flight_journal import InFlightJournal, journal_path
from scorer.models.registry_access import open_cache
from scorer.service import gpu_assignment
from scorer.service.restart_policy import Restarts
from scorer.settings import Settings

log = logging.getLogger(__name__)

STOPS = (signal.SIGTERM, signal.SIGINT)
BY_LIBRARY = 1
"""The code of exit(EXIT_FAILURE) in C, as decoders of images do. A worker's own errors have other codes, or its hands empty."""
GRACE_SECONDS = 5.0  # beyond twice the transaction timeout, when a worker that hangs ends itself

Work = Callable[..., None]
"""`work(settings, on_serving=told, in_hand=note)` scores until SIGTERM or SIGINT; it calls `told(address)` when it begins."""


def run(settings: Settings, workers: int, work: Work, log_level: str, gpus: Sequence[str] = ()) -> None:
    """Keep `workers` processes scoring until SIGTERM or SIGINT, which drain them all. Raises Fatal and SettingsError.

    Args:
        settings: The configuration of one worker alone; see `of_worker`.
        workers: The number of processes.
        work: What each process does.
        log_level: The level of the workers' logs.
        gpus: The GPUs that workers use in turn, as values of CUDA_VISIBLE_DEVICES; empty if none uses one.
    """
    each = [of_worker(settings, number) for number in range(workers)] if workers > 1 else [settings]
    gc.collect()
    gc.freeze()
    with contextlib.closing(_Wakeup()) as wakeup:
        _Supervisor(each, work, log_level, wakeup, gpus).run()
    log.info("all workers have ended")


def of_worker(settings: Settings, number: int) -> Settings:
    """Return the settings of worker `number`, from 0. Raises SettingsError for an invalid replica or port."""
    host, _, port = settings.http.listen.rpartition(":")
    listen = f"{host}:{int(port) + number if int(port) else 0}"
    replica = f"{settings.replica}-{number}"
    if int(port) + number > 65_535:
        raise SettingsError(f"http.listen: worker {number} would listen on {listen}; begin at a lower port")
    try:
        http = settings.http.model_dump() | {"listen": listen}
        return type(settings).model_validate(settings.model_dump() | {"replica": replica, "http": http})
    except ValidationError as error:
        if error.errors()[0]["loc"] != ("replica",):
            raise
        raise SettingsError(f"replica: {replica!r}, of worker {number}, is too long; give a shorter one") from None


class _Wakeup:
    """Makes SIGTERM and SIGINT waitable together with other objects."""

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


class _Worker:
    """One process at a time, and its messages."""

    def __init__(self, number: int, settings: Settings, gpu: str | None) -> None:
        self.number = number
        self._gpu = gpu
        self.settings = settings
        self.in_hand = _note(settings)
        self.said: Fatal | None = None  # why it does not go on, in its own words
        self.restart_at: float | None = 0.0  # None while it runs
        self._process: Any = None
        self._hears: Any = None

    def start(self, work: Work, log_level: str, lifeline: tuple[int, int]) -> None:
        """Fork. Signals are blocked until the child has its own handlers."""
        fork = multiprocessing.get_context("fork")
        self._hears, tells = fork.Pipe(duplex=False)
        self.said, self.restart_at = None, None
        self._process = fork.Process(
            target=_child, args=(self.settings, work, log_level, tells, lifeline, self.in_hand, self._gpu)
        )
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        tells.close()
        device = f" on GPU {self._gpu}" if self._gpu is not None else ""
        log.info("worker %d is process %d%s", self.number, self._process.pid, device)

    @property
    def running(self) -> bool:
        return self.restart_at is None

    def waitables(self) -> list[Any]:
        """Return the objects that become ready when it sends a message or ends."""
        return [self._process.sentinel, *([self._hears] if self._hears else [])]

    def hear(self) -> bool:
        """Read its messages; return whether it started to serve."""
        served = False
        try:
            while self._hears and self._hears.poll():
                told = self._hears.recv()
                if isinstance(told, Fatal):
                    self.said = told
                else:
                    served = True
        except (EOFError, OSError):
            self._hears.close()
            self._hears = None
        return served

    def exit_code(self, wait_seconds: float = 0.0) -> int | None:
        """Return its exit code, the negated signal that killed it, or None while it runs."""
        self._process.join(wait_seconds)
        code: int | None = self._process.exitcode
        return code

    def ended(self, code: int) -> None:
        """Handle its end. The journal of events in flight is kept only after a death.

        Deaths are a signal, a hang, a broken model, and an exit by a library.
        """
        if code >= 0 and code not in (BROKEN, BY_LIBRARY):
            self.in_hand.clear()
            self.in_hand.end_load()

    def send(self, number: signal.Signals) -> None:
        if self.exit_code() is None:
            os.kill(self._process.pid, number)

    def why(self, code: int) -> Fatal:
        """Return the reason of its end as an error of the whole command."""
        if self.said:
            return self.said
        return Fatal(
            f"worker {self.number} {describe_end(code)}", "what it said before is in the log", code if code > 0 else 128 - code
        )


class _Supervisor:
    def __init__(self, settings: Sequence[Settings], work: Work, log_level: str, wakeup: _Wakeup, gpus: Sequence[str]) -> None:
        self._workers = [
            _Worker(number, each, gpus[number % len(gpus)] if gpus else None) for number, each in enumerate(settings)
        ]
        self._work = work
        self._log_level = log_level
        self._wakeup = wakeup
        self._restarts = Restarts()
        self._grace = 2 * settings[0].kafka.transaction_timeout_ms / 1_000 + GRACE_SECONDS
        self._lifeline = os.pipe()

    def run(self) -> None:
        failed: Fatal | None = None
        try:
            while not self._wakeup.stopping and failed is None:
                self._start_what_is_due()
                self._wait()
                failed = self._look()
        finally:
            unclean = self._stop()
            for end in self._lifeline:
                os.close(end)
        if wrong := failed or unclean:
            raise wrong

    def _start_what_is_due(self) -> None:
        for worker in self._workers:
            if worker.restart_at is not None and time.monotonic() >= worker.restart_at:
                worker.start(self._work, self._log_level, self._lifeline)

    def _wait(self) -> None:
        """Wait until a worker sends a message or ends, a restart is due, or a signal arrives."""
        due = [worker.restart_at for worker in self._workers if worker.restart_at is not None]
        timeout = max(0.0, min(due) - time.monotonic()) if due else None
        watched = [item for worker in self._running() for item in worker.waitables()]
        connection.wait([self._wakeup.reader, *watched], timeout)

    def _look(self) -> Fatal | None:
        """Handle the changes of the workers; return an error if all must end."""
        for worker in self._running():
            now = time.monotonic()
            code = worker.exit_code()
            if worker.hear():
                self._restarts.serving(worker.number, now)
            if code is None or self._wakeup.stopping:
                continue
            worker.ended(code)
            worker.restart_at = self._restarts.ended(worker.number, code, now)
            if worker.restart_at is None:
                return worker.why(code)
            said = f": {worker.said}" if worker.said else ""
            log.error(
                "worker %d %s%s; starting it again in %.1f s", worker.number, describe_end(code), said, worker.restart_at - now
            )
        return None

    def _stop(self) -> Fatal | None:
        """Drain all workers, and kill those that do not end in time; return the error of the first that failed."""
        running = self._running()
        for worker in running:
            worker.send(signal.SIGTERM)
            worker.in_hand.end_load()  # a kill from now on, by us or by who waits for us, is no version's fault
        deadline = time.monotonic() + self._grace
        wrong: list[Fatal] = []
        for worker in running:
            code = worker.exit_code(max(0.0, deadline - time.monotonic()))
            worker.hear()
            if code is not None:
                worker.ended(code)
            if code is None:
                worker.send(signal.SIGKILL)
                worker.exit_code(self._grace)
                wrong.append(Fatal(f"worker {worker.number} did not end within {self._grace:.0f} s and was killed"))
            elif code not in (0, -signal.SIGTERM, -signal.SIGINT):  # by a signal: it had not begun yet
                wrong.append(worker.why(code))
        return wrong[0] if wrong else None

    def _running(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.running]


def _note(settings: Settings) -> InFlightJournal:
    try:
        return InFlightJournal(journal_path(open_cache(settings.model).root, settings.owner))
    except OSError as error:
        why = f"model.cache: cannot write there: {error}"
        raise Fatal(why, "name another folder, or let this user write to it", USAGE) from error


def _child(
    settings: Settings,
    work: Work,
    log_level: str,
    tells: Any,
    lifeline: tuple[int, int],
    in_hand: InFlightJournal,
    gpu: str | None,
) -> None:
    if gpu is not None:
        os.environ[gpu_assignment.VISIBLE] = gpu  # before anything in this process, or a child of it, initialises CUDA
    signal.set_wakeup_fd(-1)
    for number in STOPS:
        signal.signal(number, signal.SIG_DFL)
    reader, writer = lifeline
    os.close(writer)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    threading.Thread(target=_end_with_the_supervisor, args=(reader,), name="lifeline", daemon=True).start()
    logs.configure({"scorer": settings.owner}, log_level)
    try:
        work(settings, on_serving=lambda address: _tell(tells, address), in_hand=in_hand)
    except (Fatal, RegistryError) as error:
        _tell(tells, Fatal(str(error), error.hint, error.exit_code))
        sys.exit(error.exit_code)


def _tell(tells: Any, message: Fatal | str) -> None:
    with contextlib.suppress(OSError):
        tells.send(message)


def _end_with_the_supervisor(reader: int) -> None:
    """End in order when the supervisor has ended."""
    while os.read(reader, 1):
        continue
    log.warning("the supervisor is gone; ending")
    os.kill(os.getpid(), signal.SIGTERM)
