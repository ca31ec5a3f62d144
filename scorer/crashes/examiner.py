"""A process of its own that decodes and scores for a worker, and may die of it: the worker lives on and learns.

After a worker's death its successor begins with an examiner in place of a model: decoder and model are in the child alone, so
that both together need the memory of one worker, on a GPU too, until the suspects are answered.
"""

import contextlib
import ctypes
import logging
import math
import multiprocessing
import resource
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import Any

from model_registry.package import Package
from model_registry.package.signature import Signature
from publisher.errors import Fatal
from publisher.process import logs
from publisher.process.outages import MODEL, Away
from scorer import backends
from scorer.backends import InferenceFailed, ModelRefused
from scorer.events.decoder import Decoded
from scorer.events.record_parts import Parts
from scorer.servables.loaded import LoadedModel, made_ready, with_decoder
from scorer.settings import Settings

log = logging.getLogger(__name__)

KNOWN = (Away, InferenceFailed, ModelRefused, Fatal)
"""Errors that mean the same in the worker. Any other is told by its name and text."""
PATIENCE, SPARE_SECONDS = 3.0, 2.0  # CPU time for one call: so many deadlines of the model, and this for the decoder
ANSWER_SECONDS = 30.0  # for an answer that takes no CPU time: a decoder that waits for ever
LOOK_SECONDS = 0.5
AGAIN_SECONDS = 0.5
PR_SET_PDEATHSIG = 1


class ExaminerDied(Away):
    """The examiner died over what it was asked, or did not answer. The message says how."""

    def __init__(self, message: str) -> None:
        super().__init__(MODEL, message, retry_seconds=AGAIN_SECONDS)


class Examiner:
    """Loads models that live, with their decoders, in a child process, started again when it has died. `alive` is called
    while the thread that made this one waits for the child. Threads take turns."""

    def __init__(self, settings: Settings, alive: Callable[[], None]) -> None:
        self._settings = settings
        self._alive = alive
        self._owner = threading.get_ident()
        self._opened: dict[str, Package] = {}
        self._turn = threading.Lock()
        self._closed = False
        self._process: Any = None
        self._pipe: Any = None
        self._context = multiprocessing.get_context("forkserver")
        library = ["scorer.backends.onnx.onnx_runtime"] if settings.model.backend == "onnx-runtime" else []
        self._context.set_forkserver_preload([__name__, *library])

    def load(self, package: Package) -> LoadedModel:
        """See `servable.Load`. A package that kills two children in a row, before any event came, is refused."""
        try:
            return self._loaded(package)
        except ExaminerDied as error:
            log.warning("the examiner %s while it made %s ready; trying again", error, package.version)
        try:
            return self._loaded(package)
        except ExaminerDied as error:
            raise ModelRefused(f"a process {error} while it made this version ready, twice") from error

    def _loaded(self, package: Package) -> LoadedModel:
        digest = package.digest
        try:
            examined = Examined(self, digest, self.ask("open", digest, package, seconds=math.inf))
            self._opened[digest] = package
            return made_ready(examined, examined, package.golden, self._settings, self._broken)
        except BaseException:
            self._opened.pop(digest, None)
            raise

    def ask(self, what: str, digest: str, *arguments: Any, seconds: float = ANSWER_SECONDS) -> Any:
        """One question to the child, and `seconds` for the answer. Raises what the child raises, and ExaminerDied."""
        while not self._turn.acquire(timeout=LOOK_SECONDS):
            self._show_life()
        try:
            if self._closed:
                raise self._gone()
            if self._process is None:
                self._start()
            return self._call((what, digest, *arguments), seconds)
        finally:
            self._turn.release()

    def _broken(self, error: InferenceFailed) -> ExaminerDied:
        """The child has a model that answers nothing any more: it ends, and that is a death as any other."""
        with self._turn:
            self._end()
        return ExaminerDied(f"was ended, because its model answers nothing any more: {error}")

    def _show_life(self) -> None:
        if threading.get_ident() == self._owner:
            self._alive()

    @staticmethod
    def _gone() -> Away:
        return Away(MODEL, "it is being loaded into this process again", retry_seconds=AGAIN_SECONDS)

    def free(self, digest: str) -> None:
        self._opened.pop(digest, None)
        with contextlib.suppress(Away):
            self.ask("free", digest)

    def close(self) -> None:
        """End the child for good. A question that comes later, or waits for its answer now, is answered by Away."""
        self._closed = True
        if (process := self._process) is not None:
            process.kill()
        with self._turn:
            self._end()

    def _start(self) -> None:
        """A new child that has opened what the last one had. Raises Away."""
        self._pipe, theirs = self._context.Pipe()
        process = self._context.Process(target=_examine, args=(theirs, self._settings), daemon=True)
        process.start()
        theirs.close()
        self._process = process
        if self._closed:
            self._end()
            raise self._gone()
        try:
            for digest, package in list(self._opened.items()):
                self._call(("open", digest, package), math.inf)
        except (ModelRefused, ExaminerDied) as error:  # no event has been seen yet
            self._end()
            raise Away(MODEL, f"the examiner cannot load it: {error}", retry_seconds=AGAIN_SECONDS) from error

    def _call(self, question: tuple[Any, ...], seconds: float) -> Any:
        with contextlib.suppress(OSError):  # it has died: that is told below
            self._pipe.send(question)
        looks = seconds / LOOK_SECONDS
        while not connection.wait([self._pipe, self._process.sentinel], LOOK_SECONDS):
            self._show_life()
            looks -= 1  # a machine that was asleep has not looked
            if looks <= 0:
                self._end()
                raise ExaminerDied(f"did not answer within {seconds:g} s")
        try:
            good, answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(LOOK_SECONDS)
            code = self._process.exitcode
            self._end()
            raise self._gone() if self._closed else ExaminerDied(how(code)) from None
        if good:
            return answer
        try:
            raise answer
        finally:
            del answer  # it keeps this frame, whose callers' keep the batch

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
        self._process = self._pipe = None


class Examined:
    """A model and its decoder in the child. Both raise ExaminerDied too."""

    def __init__(self, examiner: Examiner, digest: str, signature: Signature) -> None:
        self._examiner = examiner
        self._digest = digest
        self._signature = signature

    def decode(self, values: Sequence[bytes | None], parts: Parts | None = None) -> Decoded:
        decoded: Decoded = self._examiner.ask("decode", self._digest, list(values), parts and parts.listed())
        return decoded

    def signature(self) -> Signature:
        return self._signature

    def run(self, tensors: dict[str, Any]) -> dict[str, Any]:
        outputs: dict[str, Any] = self._examiner.ask("run", self._digest, tensors)
        return outputs

    def close(self) -> None:
        self._examiner.free(self._digest)


def how(code: int | None) -> str:
    """How a process ended, by its exit code or the negated signal that killed it."""
    if code is not None and code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"


def _examine(pipe: connection.Connection, settings: Settings) -> None:
    """The child's life: one answer to each question, until the worker is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logs.configure({"scorer": settings.owner, "process": "examiner"}, "WARNING")
    opened: dict[str, Any] = {}
    backend = backends.find(settings.model)
    while True:
        try:
            what, digest, *arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = True, _answer(backend, opened, settings, what, digest, *arguments)
        except KNOWN as error:
            answer = False, error
        except Exception as error:
            log.exception("the examiner could not %s", what)
            answer = False, RuntimeError(f"{type(error).__name__}: {error}")
        pipe.send(answer)


def _answer(
    backend: backends.Backend, opened: dict[str, Any], settings: Settings, what: str, digest: str, *arguments: Any
) -> Any:
    if what == "open":
        _limit_cpu(None)
        (package,) = arguments
        opened[digest] = with_decoder(backend, package, settings)
        return opened[digest][0].signature()
    if what == "free":
        if found := opened.pop(digest, None):
            found[0].close()
        return None
    model, decoder = opened[digest]
    _limit_cpu(PATIENCE * settings.model.deadline_ms / 1_000 + SPARE_SECONDS)
    return decoder.decode(*arguments) if what == "decode" else model.run(*arguments)


def _limit_cpu(seconds: float | None) -> None:
    """From now on this process may take so much CPU time, then it ends by SIGXCPU: a busy machine is no event's fault."""
    used, (_, most) = resource.getrusage(resource.RUSAGE_SELF), resource.getrlimit(resource.RLIMIT_CPU)
    limit = most if seconds is None else math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, most))
