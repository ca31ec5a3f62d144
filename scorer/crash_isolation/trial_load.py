"""Load each version in a trial process before this process loads the version.

If the trial process dies, needs too much memory or does not end in time, the version is refused and this process is unaffected.
A trial costs the time of one more load, 86 MB for the interpreter, and the memory of the version.
"""

# The trial process loads the version as this process would, checks that the score of an event does not depend on the other
# events in its batch, scores the golden examples, warms the model up and ends. Its memory is free again before this process
# loads the version. Two outcomes are stored in the cache: an acceptance, so that a restart and the other workers of a machine
# skip the trial, and an exceeded time limit, because a second trial would take as long.

import contextlib
import fcntl
import hashlib
import json
import logging
import multiprocessing
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from multiprocessing import connection

import msgspec

from model_registry import atomic_files, memory_limits, sandbox
from model_registry.oci.digests import hex_digits
from model_registry.package import Package
from model_registry.sandbox import Sandbox, SandboxDied
from publisher.errors import Fatal
from publisher.runtime import logs
from publisher.runtime.abandonable_call import call_in_thread
from publisher.runtime.dependency_wait import DependencyUnavailable
from publisher.runtime.malloc_tuning import limit_malloc_arenas
from scorer.backends.base import ModelRefused
from scorer.crash_isolation.in_flight_journal import InFlightJournal
from scorer.crash_isolation.load_journal import LoadJournal
from scorer.models.load_guard import ACCEPTED, DIED, REFUSED, SUPERSEDED, TOO_LARGE, TOO_LONG, Superseded
from scorer.models.loaded_model import LoadedModel, loader
from scorer.models.registry_access import open_cache
from scorer.models.servable import LoadPackage
from scorer.settings import Settings
from scorer.tables.lookup import EmptyTables, TableLookup

log = logging.getLogger(__name__)

KNOWN = (DependencyUnavailable, ModelRefused, Fatal)  # errors of the trial process that this process raises as they are
MIN_BYTES = 64 << 20  # the smallest memory limit of a trial, even in a container that is almost full
RESERVE = 20  # 1/20 of the container's memory stays free
INTERPRETER_BYTES = 120 << 20  # of a trial process before it loads a version, measured: 86 MB with ONNX Runtime
NICENESS = 5  # on a machine without a free core the scorer has priority
DEFAULT_STACK = 8 << 20
STACK_SHARE = 0.75  # of the stack of this process's threads, so that an accepted version has a margin
RUNTIMES = ("scorestream", "onnxruntime", "onnxruntime-gpu", "onnxruntime-extensions", "numpy")
TRIED = {
    "model": {
        "backend",
        "device",
        "buckets",
        "deadline_ms",
        "fallback",
        "load_seconds",
        "load_bytes",
        "max_bytes",
        "op_domains",
    },
    "input": {"format", "schema_file", "message"},
    "output": {"format"},
    "batching": {"max_events"},
}
"""The settings on which the outcome of a trial load depends."""


class _TrialOutcome(msgspec.Struct, frozen=True):
    """The outcome of a trial load that is stored on disk.

    Attributes:
        environment: the digest of the settings, runtime versions and memory limit on which the outcome depends.
        identity: the digest and the channel revision of the version, as one key.
        refused: the reason if the version was refused; "" if it was accepted.
    """

    environment: str
    identity: str
    refused: str = ""


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """The limits of one trial load: its memory in bytes, and its duration in seconds."""

    bytes: int
    seconds: float

    def __str__(self) -> str:
        return f"{format_bytes(self.bytes)} of memory (model.load_bytes) and {self.seconds:g} s (model.load_seconds)"


class TrialLoads:
    """The `LoadGuard` that loads each version in a trial process before this process loads the version.

    Args:
        settings: the settings of the worker.
        journal: the in-flight journal, which stores the version that is being loaded.
        workers: the number of workers that share the memory of the container.
        on_outcome: a function that is called after each trial with its outcome, one of `load_guard.OUTCOMES`.
        remember: whether outcomes are stored on disk, under the digest of the package.
    """

    def __init__(
        self,
        settings: Settings,
        journal: InFlightJournal,
        workers: int = 1,
        on_outcome: Callable[[str], None] = lambda _: None,
        *,
        remember: bool = True,
    ) -> None:
        self._settings = settings
        self._workers = workers
        self._on_outcome = on_outcome
        self._journal = LoadJournal(journal)
        self.refusal = self._journal.refusal
        self.loading = self._journal.loading
        self.age_seconds = self._journal.age_seconds
        self._folder = open_cache(settings.model).root / "trials" if remember else None
        self._context = multiprocessing.get_context("spawn")

    def attempt(self, package: Package, identity: str, is_wanted: Callable[[], bool]) -> None:
        """Load a version in a trial process, unless the cache has the outcome of an earlier trial; see `LoadGuard`.

        Raises ModelRefused if the version fails, or failed the earlier trial.
        """
        if self._settings.model.backend != "onnx-runtime":  # the version is loaded by a server
            return
        with self._lock(package.digest, is_wanted):
            outcome = self._read(package.digest)
            current = environment(self._settings)
            if outcome and outcome.environment == current:
                if outcome.refused and outcome.identity == identity:
                    raise ModelRefused(f"{outcome.refused}; this version is not loaded again until the next promotion")
                if not outcome.refused and not self._journal.deaths(identity):
                    return
            self._write(package.digest, self._try_version(package, is_wanted), current, identity)

    def _try_version(self, package: Package, is_wanted: Callable[[], bool]) -> str:
        """Load a version in a trial process. Return "" if the version is accepted, otherwise the reason why it is refused.

        The caller stores the result.

        Raises:
            ModelRefused: The version is refused for a reason that must not be stored, because another trial may succeed.
            Superseded: The version is no longer wanted.
        """
        limits = limits_of(self._settings, self._workers)
        began = time.monotonic()
        try:
            self._run(package, limits, is_wanted)
        except ModelRefused:
            self._on_outcome(REFUSED)
            raise
        except _TooLarge:
            self._on_outcome(TOO_LARGE)
            raise ModelRefused(f"a trial process needed more than {format_bytes(limits.bytes)} of memory; {REMEDY}") from None
        except SandboxDied as error:
            if error.in_time:
                self._on_outcome(DIED)
                raise ModelRefused(
                    f"a trial process {error} after {error.after:.1f} s; its limits were {limits}; {REMEDY}"
                ) from None
            self._on_outcome(TOO_LONG)
            return f"a trial process did not finish loading the version within {limits.seconds:g} s; {REMEDY}"
        except Superseded:
            self._on_outcome(SUPERSEDED)
            raise
        self._on_outcome(ACCEPTED)
        log.info("version %s passed its trial in %.1f s", package.version, time.monotonic() - began)
        return ""

    def _run(self, package: Package, limits: TrialLimits, is_wanted: Callable[[], bool]) -> None:
        child = Sandbox(self._context, _serve, self._settings)

        def waiting() -> None:
            if not is_wanted():
                raise Superseded
            if memory_limits.resident_bytes(child.pid) > limits.bytes + INTERPRETER_BYTES:  # on a GPU allocations have no limit
                raise _TooLarge

        try:
            child.request("try", package, limits.bytes, seconds=limits.seconds, waiting=waiting)
        finally:
            child.close()

    @contextlib.contextmanager
    def _lock(self, digest: str, is_wanted: Callable[[], bool]) -> Iterator[None]:
        """Hold this machine's lock for trials of this version. Wait while another process holds the lock.

        If the cache is not writable, no lock is used. Raises Superseded if `is_wanted` returns False during the wait.
        """
        lock_file = None
        while self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                lock_file = atomic_files.open_locked(self._folder / f"{hex_digits(digest)}.lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not is_wanted():
                    raise Superseded from None
                threading.Event().wait(sandbox.POLL_SECONDS)
            except OSError as error:
                log.info("the trial load runs without a lock against other processes: %s", error)
                break
        try:
            yield
        finally:
            if lock_file is not None:
                os.close(lock_file)

    def _read(self, digest: str) -> _TrialOutcome | None:
        if self._folder is None:
            return None
        try:
            return msgspec.json.decode((self._folder / f"{hex_digits(digest)}.json").read_bytes(), type=_TrialOutcome)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def _write(self, digest: str, refused: str, current_environment: str, identity: str) -> None:
        """Store the outcome of a trial load, if the cache is writable. Raises ModelRefused if the version was refused."""
        if self._folder is not None:
            content = msgspec.json.encode(_TrialOutcome(current_environment, identity, refused))
            try:
                atomic_files.replace(self._folder / f"{hex_digits(digest)}.json", [content])
            except OSError as error:
                log.info("the outcome of the trial load cannot be stored: %s", error)
        if refused:
            raise ModelRefused(refused)


REMEDY = "correct the model, or raise the limit and promote the version again"


class _TooLarge(Exception):
    """The trial process exceeds its memory limit."""


def tried_loader(settings: Settings, *, remember: bool = True, tables: TableLookup | None = None) -> LoadPackage:
    """Return a loader that loads each version in a trial process before it loads the version into this process.

    Args:
        settings: the settings of the scorer.
        remember: whether outcomes are stored in the cache under the digest of the package. If so, the digest of each package
            must be computed from its content.
        tables: the tables of joined fields; see `loader`.
    """
    load = loader(settings, tables=tables)
    trials = TrialLoads(settings, InFlightJournal(), remember=remember)

    def try_and_load(package: Package) -> LoadedModel:
        trials.attempt(package, "", lambda: True)
        return load(package)

    return try_and_load


def limits_of(settings: Settings, workers: int) -> TrialLimits:
    """Return the limits of a trial load. By default, the memory is one worker's share of the container's free memory."""
    if configured := settings.model.load_bytes:
        return TrialLimits(int(configured), settings.model.load_seconds)
    return TrialLimits(share_of(memory_limits.container_memory(), workers), settings.model.load_seconds)


def share_of(container: memory_limits.Memory, workers: int) -> int:
    """Return one worker's share of the free memory of the container in bytes, at least MIN_BYTES."""
    # The memory of the trial process's interpreter, and a reserve that must stay free, are subtracted first.
    return max(MIN_BYTES, (container.free - container.limit // RESERVE - INTERPRETER_BYTES) // workers)


def environment(settings: Settings) -> str:
    """Return a digest of the settings, runtime versions and memory limit, on which the outcome of a version's trial depends."""
    tried_settings = settings.model_dump(mode="json", include={name: set(keys) for name, keys in TRIED.items()})
    runtimes = {name: version for name in RUNTIMES if (version := _installed(name))}
    text = json.dumps([tried_settings, runtimes, memory_limits.container_limit()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def format_bytes(size: int) -> str:
    """Format a number of bytes in MiB or GiB."""
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _serve(pipe: connection.Connection, settings: Settings) -> None:
    """Answer the parent's requests until the parent ends this process. This function runs in the trial process."""
    sandbox.confine()
    limit_malloc_arenas()
    os.nice(NICENESS)
    logs.configure({"scorer": settings.owner, "process": "trial"}, "warning", settings.log.format)
    sandbox.serve(pipe, lambda _, package, max_bytes: _try(settings, package, max_bytes), KNOWN)


def _try(settings: Settings, package: Package, max_bytes: int) -> None:
    """Load a version in the trial process, with limited memory, and in a thread with a smaller stack than a scorer's threads.

    Raises:
        ModelRefused: The version failed the trial.
    """
    load = loader(settings, probe=True, tables=EmptyTables())
    if settings.model.device == "cpu":  # the driver of a GPU maps far more memory than it uses
        memory_limits.limit_data(max_bytes)
    threading.stack_size(stack_bytes(resource.getrlimit(resource.RLIMIT_STACK)[0]))
    call_in_thread("trial", lambda: _probe(load, package, max_bytes)).result()


def _probe(load: LoadPackage, package: Package, max_bytes: int) -> None:
    """Load a version, with all checks and the warm-up, and close it.

    Raises:
        ModelRefused: the version failed a check, or exhausted the memory limit of this process, `max_bytes`.
    """
    try:
        loaded = load(package)  # runs the golden examples and the warm-up
        loaded.model.close()
    except (ModelRefused, MemoryError) as error:
        if isinstance(error, MemoryError) or "alloc" in str(error):  # the runtime has no error class for it
            detail = f": {error}" if str(error) else ""
            limit = f"{format_bytes(max_bytes)} (model.load_bytes)"
            raise ModelRefused(f"loading the version exhausted the memory limit of {limit}{detail}; {REMEDY}") from None
        raise


def stack_bytes(limit: int) -> int:
    """Return the stack size in bytes of the trial's thread: STACK_SHARE of the stack that a scorer's threads have.

    `limit` is the soft limit of the stack size in bytes.
    """
    default = DEFAULT_STACK if limit == resource.RLIM_INFINITY else min(limit, DEFAULT_STACK)
    return int(default * STACK_SHARE) & ~0xFFFF
