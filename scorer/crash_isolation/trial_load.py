"""A version is tried in a process of its own before this process loads it.

The trial process loads the version as this process would, probes whether a score depends on its batch, runs its golden
examples, warms it up and ends. If it dies, needs too much memory or does not end in time, the version is refused and this
process is unaffected. A trial costs one more load, 86 MB for the interpreter and what the version needs, all of which is free
again before this process loads the version.

An accepted version is noted in the cache, so that a restart and the other workers of a machine do not try it again; so is a
version that ran out of time, because trying that again takes long.
"""

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
from publisher.runtime.dependencies import DependencyUnavailable
from publisher.runtime.malloc_tuning import limit_malloc_arenas
from scorer.backends.base import ModelRefused
from scorer.crash_isolation.in_flight_journal import InFlightJournal
from scorer.crash_isolation.load_journal import LoadJournal
from scorer.models.load_guard import ACCEPTED, DIED, REFUSED, SUPERSEDED, TOO_LARGE, TOO_LONG, Superseded
from scorer.models.loaded_model import LoadedModel, loader
from scorer.models.registry_access import open_cache
from scorer.models.servable import LoadPackage
from scorer.settings import Settings

log = logging.getLogger(__name__)

KNOWN = (DependencyUnavailable, ModelRefused, Fatal)
LEAST_BYTES = 64 << 20  # a version may always need so much: less is needed by no model, and no container is that full
RESERVE = 20  # one part in so many of the container's memory stays free
INTERPRETER_BYTES = 120 << 20  # of a trial process before it loads a version, measured: 82 MB with ONNX Runtime
NICENESS = 5  # on a machine without a free core the scorer goes first
USUAL_STACK = 8 << 20
STACK_SHARE = 0.75  # of the stack of this process's threads: what needs almost all of it passes no trial
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
"""The settings that a trial depends on."""


class _TrialOutcome(msgspec.Struct, frozen=True):
    """The outcome of a trial on disk. `refused`: the reason, "" for an accepted version. `environment`: see the function."""

    environment: str
    identity: str
    refused: str = ""


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """What one trial may take."""

    bytes: int
    seconds: float

    def __str__(self) -> str:
        return f"{in_words(self.bytes)} of memory (model.load_bytes) and {self.seconds:g} s (model.load_seconds)"


class TrialLoads:
    """Fulfils `LoadGuard`.

    `workers` processes will load the version, each with the same memory. `on_outcome` is called with one of OUTCOMES after each
    trial. With `remember` the outcome is noted in the cache, by the package's digest.
    """

    def __init__(
        self,
        settings: Settings,
        in_hand: InFlightJournal,
        workers: int = 1,
        on_outcome: Callable[[str], None] = lambda _: None,
        *,
        remember: bool = True,
    ) -> None:
        self._settings = settings
        self._workers = workers
        self._on_outcome = on_outcome
        self._journal = LoadJournal(in_hand)
        self.refusal = self._journal.refusal
        self.loading = self._journal.loading
        self.age_seconds = self._journal.age_seconds
        self._folder = open_cache(settings.model).root / "trials" if remember else None
        self._context = multiprocessing.get_context("spawn")

    def attempt(self, package: Package, identity: str, is_wanted: Callable[[], bool]) -> None:
        """See LoadGuard."""
        if self._settings.model.backend != "onnx-runtime":  # the version is loaded by a server
            return
        with self._alone(package.digest, is_wanted):
            noted, now = self._read(package.digest), environment(self._settings)
            if noted and noted.environment == now:
                if noted.refused and noted.identity == identity:
                    raise ModelRefused(f"{noted.refused}; it is not tried again until it is promoted again")
                if not noted.refused and not self._journal.deaths(identity):
                    return
            self._write(package.digest, self._tried(package, is_wanted), now, identity)

    def _tried(self, package: Package, is_wanted: Callable[[], bool]) -> str:
        """Try a version: "" if it is fit, or why it is not if that is to be noted. Raises ModelRefused and Superseded."""
        limits = limits_of(self._settings, self._workers)
        began = time.monotonic()
        try:
            self._run(package, limits, is_wanted)
        except ModelRefused:
            self._on_outcome(REFUSED)
            raise
        except _TooLarge:
            self._on_outcome(TOO_LARGE)
            raise ModelRefused(f"a trial process needed more than {in_words(limits.bytes)} of memory; {REMEDY}") from None
        except SandboxDied as error:
            if error.in_time:
                self._on_outcome(DIED)
                raise ModelRefused(f"a trial process {error} after {error.after:.1f} s; it had {limits}; {REMEDY}") from None
            self._on_outcome(TOO_LONG)
            return f"a trial process was not ready with it within {limits.seconds:g} s; {REMEDY}"
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
            child.ask("try", package, limits.bytes, seconds=limits.seconds, waiting=waiting)
        finally:
            child.close()

    @contextlib.contextmanager
    def _alone(self, digest: str, is_wanted: Callable[[], bool]) -> Iterator[None]:
        """Wait while another process tries the same version on this machine, if the cache can be written. Raises Superseded."""
        held = None
        while self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                held = atomic_files.open_locked(self._folder / f"{hex_digits(digest)}.lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not is_wanted():
                    raise Superseded from None
                threading.Event().wait(sandbox.POLL_SECONDS)
            except OSError as error:
                log.info("a version is tried without a lock: %s", error)
                break
        try:
            yield
        finally:
            if held is not None:
                os.close(held)

    def _read(self, digest: str) -> _TrialOutcome | None:
        if self._folder is None:
            return None
        try:
            return msgspec.json.decode((self._folder / f"{hex_digits(digest)}.json").read_bytes(), type=_TrialOutcome)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def _write(self, digest: str, refused: str, now: str, identity: str) -> None:
        """Note the outcome where the cache can be written. Raises ModelRefused if it is a refusal."""
        if self._folder is not None:
            note = msgspec.json.encode(_TrialOutcome(now, identity, refused))
            try:
                atomic_files.replace(self._folder / f"{hex_digits(digest)}.json", [note])
            except OSError as error:
                log.info("the outcome of a trial is not noted: %s", error)
        if refused:
            raise ModelRefused(refused)


REMEDY = "mend the model, or raise the limit and promote it again"


class _TooLarge(Exception):
    """A trial process has more memory than it may have."""


def tried_loader(settings: Settings, *, remember: bool = True) -> LoadPackage:
    """As `loader`, for a command: each version is tried first. `remember`: the digest of each package is that of its bytes."""
    load = loader(settings)
    trials = TrialLoads(settings, InFlightJournal(), remember=remember)

    def tried(package: Package) -> LoadedModel:
        trials.attempt(package, "", lambda: True)
        return load(package)

    return tried


def limits_of(settings: Settings, workers: int) -> TrialLimits:
    """What a version may take in a trial: as configured, or this worker's part of what the container has free."""
    if stated := settings.model.load_bytes:
        return TrialLimits(int(stated), settings.model.load_seconds)
    return TrialLimits(share_of(memory_limits.container_memory(), workers), settings.model.load_seconds)


def share_of(container: memory_limits.Memory, workers: int) -> int:
    """The part of one of the workers in the memory that is free, beside the trial process itself and a reserve."""
    return max(LEAST_BYTES, (container.free - container.limit // RESERVE - INTERPRETER_BYTES) // workers)


def environment(settings: Settings) -> str:
    """A digest of what the outcome of a trial depends on beside the version: settings, runtimes and the container's memory."""
    stated = settings.model_dump(mode="json", include={name: set(keys) for name, keys in TRIED.items()})
    runtimes = {name: version for name in RUNTIMES if (version := _installed(name))}
    text = json.dumps([stated, runtimes, memory_limits.container_limit()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def in_words(size: int) -> str:
    """A number of bytes, for people."""
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _serve(pipe: connection.Connection, settings: Settings) -> None:
    """The life of a trial process."""
    sandbox.confine()
    limit_malloc_arenas()
    os.nice(NICENESS)
    logs.configure({"scorer": settings.owner, "process": "trial"}, "WARNING")
    sandbox.serve(pipe, lambda _, package, most: _try(settings, package, most), KNOWN)


def _try(settings: Settings, package: Package, most: int) -> None:
    """Load a version with so much memory, and see whether it is fit to serve. Raises ModelRefused.

    It runs in a thread with a smaller stack than those of a scorer have.
    """
    load = loader(settings, probe=True)
    if settings.model.device == "cpu":  # a GPU's driver maps far more memory than it uses
        memory_limits.limit_data(most)
    threading.stack_size(stack_bytes(resource.getrlimit(resource.RLIMIT_STACK)[0]))
    call_in_thread("trial", lambda: _probe(load, package, most)).result()


def _probe(load: LoadPackage, package: Package, most: int) -> None:
    """Every probe of a version before it is served, one after the other."""
    try:
        loaded = load(package)  # its golden examples and the warm-up included
        loaded.model.close()
    except (ModelRefused, MemoryError) as error:
        if isinstance(error, MemoryError) or "alloc" in str(error):  # the runtime has no error of its own for it
            raise ModelRefused(f"{error or 'no memory'}; it may need {in_words(most)} (model.load_bytes); {REMEDY}") from None
        raise


def stack_bytes(limit: int) -> int:
    """The stack of a trial's thread, for this soft limit of stacks: a part of what threads get by default."""
    usual = USUAL_STACK if limit == resource.RLIM_INFINITY else min(limit, USUAL_STACK)
    return int(usual * STACK_SHARE) & ~0xFFFF
