"""The sandbox: a process that decodes and scores for a worker, and may die.

After the death of a worker its successor starts with a sandbox instead of a model: decoder and model are only in the child, so
that both together need the memory of one worker, on a GPU too, until the suspects are answered.
"""

import contextlib
import logging
import math
import multiprocessing
import resource
import threading
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import connection
from typing import Any

from model_registry import sandbox
from model_registry.package import Package
from model_registry.package.signature import Signature
from model_registry.sandbox import Sandbox, SandboxDied
from publisher.errors import Fatal
from publisher.runtime import logs
from publisher.runtime.dependencies import MODEL, DependencyUnavailable
from scorer.backends import select
from scorer.backends.base import Backend, InferenceFailed, ModelRefused
from scorer.decoding.record_metadata import RecordMetadata
from scorer.decoding.types import Decoded
from scorer.models.loaded_model import LoadedModel, open_with_decoder, prepare_model
from scorer.settings import Settings

log = logging.getLogger(__name__)

KNOWN = (DependencyUnavailable, InferenceFailed, ModelRefused, Fatal)
"""Errors that mean the same in the worker. Any other is told by its name and text."""
PATIENCE, SPARE_SECONDS = 3.0, 2.0  # CPU time for one call: so many deadlines of the model, and this for the decoder
ANSWER_SECONDS = 30.0  # for an answer that takes no CPU time: a decoder that waits for ever
LOOK_SECONDS = 0.5
AGAIN_SECONDS = 0.5


class SandboxProcessDied(DependencyUnavailable):
    """The sandbox died during a request, or did not answer. The message has the cause."""

    def __init__(self, message: str) -> None:
        super().__init__(MODEL, message, retry_seconds=AGAIN_SECONDS)


class SandboxProcess:
    """Loads models with their decoders in a child process, which is restarted after a death.

    `alive` is called while the creating thread waits for the child. Threads take turns.
    """

    def __init__(self, settings: Settings, alive: Callable[[], None]) -> None:
        self._settings = settings
        self._alive = alive
        self._owner = threading.get_ident()
        self._opened: dict[str, Package] = {}
        self._turn = threading.Lock()
        self._closed = False
        self._sandbox: Sandbox | None = None
        self._context = multiprocessing.get_context("forkserver")
        library = ["scorer.backends.onnx.onnx_runtime"] if settings.model.backend == "onnx-runtime" else []
        self._context.set_forkserver_preload([__name__, *library])

    def load(self, package: Package) -> LoadedModel:
        """See `servable.LoadPackage`. A package that kills two children in a row before any event is refused."""
        try:
            return self._loaded(package)
        except SandboxProcessDied as error:
            log.warning("the examiner %s while it made %s ready; trying again", error, package.version)
        try:
            return self._loaded(package)
        except SandboxProcessDied as error:
            raise ModelRefused(f"a process {error} while it made this version ready, twice") from error

    def _loaded(self, package: Package) -> LoadedModel:
        digest = package.digest
        try:
            examined = SandboxedModel(self, digest, self.ask("open", digest, package, seconds=self._load_seconds))
            self._opened[digest] = package
            return prepare_model(examined, examined, package.golden, self._settings, self._broken)
        except BaseException:
            self._opened.pop(digest, None)
            raise

    def ask(self, what: str, digest: str, *arguments: Any, seconds: float = ANSWER_SECONDS) -> Any:
        """Send a request to the child with a time limit. Raises what the child raises, and SandboxProcessDied."""
        while not self._turn.acquire(timeout=LOOK_SECONDS):
            self._show_life()
        try:
            if self._closed:
                raise self._gone()
            return self._call(self._sandbox or self._start(), (what, digest, *arguments), seconds)
        finally:
            self._turn.release()

    def _broken(self, error: InferenceFailed) -> SandboxProcessDied:
        """End a child whose model answers no event any longer; it counts as a death."""
        with self._turn:
            self._end()
        return SandboxProcessDied(f"was ended, because its model answers nothing any more: {error}")

    def _show_life(self) -> None:
        if threading.get_ident() == self._owner:
            self._alive()

    @staticmethod
    def _gone() -> DependencyUnavailable:
        return DependencyUnavailable(MODEL, "it is being loaded into this process again", retry_seconds=AGAIN_SECONDS)

    def free(self, digest: str) -> None:
        self._opened.pop(digest, None)
        with contextlib.suppress(DependencyUnavailable):
            self.ask("free", digest)

    def close(self) -> None:
        """End the child for good. Pending and later requests raise DependencyUnavailable."""
        self._closed = True
        if (running := self._sandbox) is not None:
            running.kill()
        with self._turn:
            self._end()

    @property
    def _load_seconds(self) -> float:
        return self._settings.model.load_seconds

    def _start(self) -> Sandbox:
        """Start a child that loads what the previous one had loaded. Raises DependencyUnavailable."""
        started = self._sandbox = Sandbox(self._context, _examine, self._settings)
        if self._closed:
            self._end()
            raise self._gone()
        try:
            for digest, package in list(self._opened.items()):
                self._call(started, ("open", digest, package), self._load_seconds)
        except (ModelRefused, SandboxProcessDied) as error:  # no event has been seen yet
            self._end()
            raise DependencyUnavailable(MODEL, f"the examiner cannot load it: {error}", retry_seconds=AGAIN_SECONDS) from error
        return started

    def _call(self, child: Sandbox, question: tuple[Any, ...], seconds: float) -> Any:
        try:
            return child.ask(*question, seconds=seconds, waiting=self._show_life, poll=LOOK_SECONDS)
        except SandboxDied as error:
            self._end()
            raise self._gone() if self._closed else SandboxProcessDied(str(error)) from None

    def _end(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
        self._sandbox = None


class SandboxedModel:
    """A model and its decoder in the child. Both may raise SandboxProcessDied."""

    def __init__(self, examiner: SandboxProcess, digest: str, signature: Signature) -> None:
        self._examiner = examiner
        self._digest = digest
        self._signature = signature

    def decode(self, values: Sequence[bytes | None], parts: RecordMetadata | None = None) -> Decoded:
        decoded: Decoded = self._examiner.ask("decode", self._digest, list(values), parts and parts.listed())
        return decoded

    def signature(self) -> Signature:
        return self._signature

    def run(self, tensors: dict[str, Any]) -> dict[str, Any]:
        outputs: dict[str, Any] = self._examiner.ask("run", self._digest, tensors)
        return outputs

    def close(self) -> None:
        self._examiner.free(self._digest)


def _examine(pipe: connection.Connection, settings: Settings) -> None:
    """Run the child: answer requests until the worker ends."""
    sandbox.confine()
    logs.configure({"scorer": settings.owner, "process": "examiner"}, "WARNING")
    sandbox.serve(pipe, partial(_answer, select.backend_for(settings.model), {}, settings), KNOWN)


def _answer(backend: Backend, opened: dict[str, Any], settings: Settings, what: str, digest: str, *arguments: Any) -> Any:
    if what == "open":
        _limit_cpu(None)
        (package,) = arguments
        opened[digest] = open_with_decoder(backend, package, settings)
        return opened[digest][0].signature()
    if what == "free":
        if found := opened.pop(digest, None):
            found[0].close()
        return None
    model, decoder = opened[digest]
    _limit_cpu(PATIENCE * settings.model.deadline_ms / 1_000 + SPARE_SECONDS)
    return decoder.decode(*arguments) if what == "decode" else model.run(*arguments)


def _limit_cpu(seconds: float | None) -> None:
    """Limit the CPU time of this process, which then ends by SIGXCPU: a busy machine does not count against an event."""
    used, (_, most) = resource.getrusage(resource.RUSAGE_SELF), resource.getrlimit(resource.RLIMIT_CPU)
    limit = most if seconds is None else math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, most))
