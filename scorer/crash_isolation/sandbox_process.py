"""The sandbox: a child process that decodes and scores events for a worker, so that a crash does not end the worker.

After a worker has died, decoder and model are loaded only in the child, until the events that were in flight are answered. The
worker and the child together therefore need only the memory of one worker, also on a GPU.
"""

import contextlib
import logging
import math
import multiprocessing
import resource
import threading
from collections.abc import Sequence
from functools import partial
from multiprocessing import connection
from typing import Any

from model_registry import sandbox
from model_registry.package import Package
from model_registry.package.signature import Signature
from model_registry.sandbox import Sandbox, SandboxDied
from publisher.errors import Aborted, Fatal
from publisher.runtime import logs
from publisher.runtime.context import Context
from publisher.runtime.dependency_wait import MODEL, DependencyUnavailable
from scorer.backends import select
from scorer.backends.base import Backend, InferenceFailed, ModelRefused
from scorer.decoding import decoder_factory
from scorer.decoding.record_metadata import ListedMetadata, RecordMetadata
from scorer.decoding.table_fields import JoinInput
from scorer.decoding.types import Decoded, FormatMismatch
from scorer.models.loaded_model import LoadedModel, open_with_decoder, prepare_model
from scorer.settings import Settings
from scorer.tables.lookup import TableLookup

log = logging.getLogger(__name__)

KNOWN = (DependencyUnavailable, InferenceFailed, ModelRefused, Fatal)
"""The errors of the child that the worker raises unchanged. Other errors are reported as text: class name and message."""
CPU_DEADLINES = 3.0  # the CPU time of one call, in deadlines of the model
DECODER_SECONDS = 2.0  # CPU time of the decoder in addition
ANSWER_SECONDS = 30.0  # limits a call that takes no CPU time, such as a decoder that waits forever
POLL_SECONDS = 0.5  # between two heartbeats of a waiting worker
CLOSE_SECONDS = 1.0  # the longest wait of `close` for a request that is in progress
RETRY_SECONDS = 0.5  # the delay before a worker retries after a death


class SandboxProcessDied(DependencyUnavailable):
    """The child process of the sandbox died during a request, or did not answer in time. The message states what happened."""

    def __init__(self, message: str) -> None:
        super().__init__(MODEL, message, retry_seconds=RETRY_SECONDS)


class SandboxProcess:
    """Loads models with their decoders in a child process, and restarts the child after a death.

    Any thread may call the methods. Requests from several threads are answered one after another.

    Args:
        settings: the settings of the worker.
        context: the context of the worker. While the thread that created this object waits for the child, it calls
            `context.check`. If the check raises Aborted, the child is ended, and the waiting call raises Aborted.
        tables: the tables of joined fields, which only this process has; None without tables.
    """

    def __init__(self, settings: Settings, context: Context, tables: TableLookup | None = None) -> None:
        self._settings = settings
        self._tables = tables
        self._context = context
        self._owner = threading.get_ident()
        self._opened: dict[str, Package] = {}
        self._turn = threading.Lock()
        self._closed = False
        self._sandbox: Sandbox | None = None
        self._fork_server = multiprocessing.get_context("forkserver")
        library = ["scorer.backends.onnx.onnx_runtime"] if settings.model.backend == "onnx-runtime" else []
        self._fork_server.set_forkserver_preload([__name__, *library])

    def load(self, package: Package) -> LoadedModel:
        """Load a package in the child process; see `servable.LoadPackage`.

        Raises ModelRefused if two children die while they load it.
        """
        try:
            return self._loaded(package)
        except SandboxProcessDied as error:
            log.warning("the sandbox process %s while it loaded version %s; retrying", error, package.version)
        try:
            return self._loaded(package)
        except SandboxProcessDied as error:
            raise ModelRefused(f"two processes in a row failed while they loaded this version; the last one {error}") from error

    def _loaded(self, package: Package) -> LoadedModel:
        digest = package.digest
        try:
            signature, device = self.request("open", digest, package, seconds=self._load_seconds)
            model = SandboxedModel(self, digest, signature, device, self._tables)
            self._opened[digest] = package
            return prepare_model(model, model, package.golden, self._settings, self._end_broken)
        except FormatMismatch as error:
            self.close_model(digest)
            raise ModelRefused(str(error)) from None
        except BaseException:
            self._opened.pop(digest, None)
            raise

    def request(self, request: str, digest: str, *arguments: Any, seconds: float = ANSWER_SECONDS) -> Any:
        """Send a request to the child and return its answer.

        Args:
            request: "open" or "free" a package, "decode" events, or "run" the model.
            digest: the digest of the package.
            arguments: the arguments of the request.
            seconds: the time limit for the answer.

        Raises:
            SandboxProcessDied: The child died or did not answer in time.
            DependencyUnavailable: The sandbox is closed.
            Aborted: `context.check` raised this error.
        """
        while not self._turn.acquire(timeout=POLL_SECONDS):
            self._check()
        try:
            if self._closed:
                raise self._closed_error()
            return self._call(self._sandbox or self._start(), (request, digest, *arguments), seconds)
        finally:
            self._turn.release()

    def _end_broken(self, error: InferenceFailed) -> SandboxProcessDied:
        """End the child, whose model no longer answers events. Return the error to raise."""
        with self._turn:
            self._end()
        return SandboxProcessDied(f"was ended because its model no longer answers: {error}")

    def _check(self) -> None:
        if threading.get_ident() == self._owner:
            self._context.check()

    @staticmethod
    def _closed_error() -> DependencyUnavailable:
        return DependencyUnavailable(MODEL, "it is being loaded into this process again", retry_seconds=RETRY_SECONDS)

    def close_model(self, digest: str) -> None:
        """Close a model in the child."""
        self._opened.pop(digest, None)
        with contextlib.suppress(DependencyUnavailable):
            self.request("free", digest)

    def close(self) -> None:
        """End the child for good. Pending and later requests raise DependencyUnavailable.

        If a request is still in progress after CLOSE_SECONDS, this method returns, and the thread of the request ends the
        child.
        """
        self._closed = True
        if (running := self._sandbox) is not None:
            running.kill()
        if self._turn.acquire(timeout=CLOSE_SECONDS):
            try:
                self._end()
            finally:
                self._turn.release()

    @property
    def _load_seconds(self) -> float:
        return self._settings.model.load_seconds

    def _start(self) -> Sandbox:
        """Start a child, and load the packages that the previous child had loaded. Raises DependencyUnavailable if it fails."""
        started = self._sandbox = Sandbox(self._fork_server, _serve, self._settings)
        if self._closed:
            self._end()
            raise self._closed_error()
        try:
            for digest, package in list(self._opened.items()):
                self._call(started, ("open", digest, package), self._load_seconds)
        except (ModelRefused, SandboxProcessDied) as error:  # no event was in flight
            self._end()
            raise DependencyUnavailable(MODEL, f"the sandbox cannot load it: {error}", retry_seconds=RETRY_SECONDS) from error
        return started

    def _call(self, child: Sandbox, request: tuple[Any, ...], seconds: float) -> Any:
        try:
            return child.request(*request, seconds=seconds, waiting=self._check, poll=POLL_SECONDS)
        except Aborted:
            self._end()  # it would answer the aborted request at the next one
            raise
        except SandboxDied as error:
            self._end()
            if self._closed:
                raise self._closed_error() from None
            raise SandboxProcessDied(str(error)) from None

    def _end(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
        self._sandbox = None


class SandboxedModel:
    """A model and its decoder that run in the child process. `decode` and `run` may raise SandboxProcessDied.

    The child decodes the records. This process joins their events with the rows of tables, because the child has no tables.

    Raises:
        FormatMismatch: the model has joined fields, and `tables` is None.
    """

    def __init__(
        self, process: SandboxProcess, digest: str, signature: Signature, device: str, tables: TableLookup | None = None
    ) -> None:
        self.device = device
        self._process = process
        self._digest = digest
        self._signature = signature
        self._join = decoder_factory.create_join(signature, tables)

    def decode(self, values: Sequence[bytes | None], parts: RecordMetadata | None = None) -> Decoded:
        """Decode events in the child, and join them in this process; see `Decoder.decode`."""
        batch: JoinInput = self._process.request("decode", self._digest, list(values), parts and parts.listed())
        if self._join is None:
            return batch.decoded
        return self._join.join(batch, (parts or ListedMetadata.empty(len(values))).partitions())

    def signature(self) -> Signature:
        """Return the signature of the model."""
        return self._signature

    def run(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Run the model in the child; see `Model.run`."""
        outputs: dict[str, Any] = self._process.request("run", self._digest, tensors)
        return outputs

    def close(self) -> None:
        """Close the model in the child."""
        self._process.close_model(self._digest)


def _serve(pipe: connection.Connection, settings: Settings) -> None:
    """Answer the worker's requests until the worker ends. This function runs in the child process."""
    sandbox.confine()
    logs.configure({"scorer": settings.owner, "process": "examiner"}, "warning", settings.log.format)
    sandbox.serve(pipe, partial(_answer, select.backend_for(settings.model), {}, settings), KNOWN)


def _answer(backend: Backend, opened: dict[str, Any], settings: Settings, request: str, digest: str, *arguments: Any) -> Any:
    if request == "open":
        _limit_cpu(None)
        (package,) = arguments
        opened[digest] = open_with_decoder(backend, package, partial(decoder_factory.create_join_inputs, settings))
        model = opened[digest][0]
        return model.signature(), model.device
    if request == "free":
        if pair := opened.pop(digest, None):
            pair[0].close()
        return None
    model, decoder = opened[digest]
    _limit_cpu(CPU_DEADLINES * settings.model.deadline_ms / 1_000 + DECODER_SECONDS)
    return decoder.read(*arguments) if request == "decode" else model.run(*arguments)


def _limit_cpu(seconds: float | None) -> None:
    """Limit the CPU time that this process may still use; None removes the limit. SIGXCPU ends the process at the limit."""
    # Unlike a limit of wall-clock time, it does not count the time in which a busy machine runs other processes.
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard_limit = resource.getrlimit(resource.RLIMIT_CPU)
    limit = hard_limit if seconds is None else math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard_limit))
