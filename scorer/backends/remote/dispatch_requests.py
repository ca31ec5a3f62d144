"""Dispatch of one batch as several parallel requests to healthy servers. The outputs are returned in the order of the batch.

An event is marked as failing only if the server answers a known good request directly after the event's request failed.
Every other failure is attributed to the server, and the request is repeated. `load_balancing.py` selects the server and limits
the requests in flight.
"""

# A request changes nothing on a server, so it may be repeated. One thread runs a batch. Each probe has its own thread, and puts
# its result into the queue of the thread that runs the batch.

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc
import numpy as np
from numpy.typing import NDArray

from scorer.backends.base import BackendUnavailable, InferenceFailed, check_rows
from scorer.backends.remote.load_balancing import ConcurrencyLimit, Endpoints

Tensors = dict[str, NDArray[Any]]
DeclaredTensors = Mapping[str, tuple[str, Sequence[int] | None]]
"""The dtype (numpy's name, or "string") and the shape of each tensor, by name. -1 means any length, None any shape."""

CHUNK_ROWS = 512  # below about 128 rows the cost of a request exceeds the cost of its rows
CHUNK_BYTES = 2 * 1_024 * 1_024  # within the 4 MB that gRPC servers accept by default
TRIES = 3  # failed requests of one chunk before their cause is determined
RUN_DEADLINES = 3.0  # time limit of a batch as a multiple of the deadline of a request

GONE = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
)
"""gRPC codes that report that a server, or the version on a server, is unavailable."""
OVERLOAD = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)


class RemoteVersion(Protocol):
    """One model version on several servers, which are numbered from 0. `at` is the number of a server.

    The thread that runs a batch calls `send` and `read`. Other threads call `prepare`.

    Attributes:
        target: the folder from which the servers load the version's files; None if this scorer neither loads nor unloads the
            version.
    """

    target: Path | None

    def send(self, at: int, tensors: Tensors, seconds: float) -> Any:
        """Send a request to the server `at` with a deadline of `seconds`, and return the gRPC future."""

    def read(self, reply: Any) -> Tensors:
        """Decode the outputs of a response. Raises InferenceFailed if the response is invalid."""

    def unload(self) -> None:
        """Unload the version from every server and delete its files. Do nothing if this scorer did not load the version."""

    def prepare(self, at: int, seconds: float) -> None:
        """Check that the version is ready on the server `at`. If `target` is set, load the version first.

        Raises:
            grpc.RpcError: The server does not answer.
            VersionNotReady: The version is not ready yet, or cannot be loaded.
        """

    def stated(self, at: int) -> tuple[DeclaredTensors, DeclaredTensors]:
        """Return the inputs and the outputs that the server `at` declares. Both are empty if it declares no tensors.

        Raises:
            grpc.RpcError: The server does not answer.
            ModelRefused: The model has no signature with the name that requests use.
        """


class VersionNotReady(Exception):
    """The server has not loaded the version yet. If `final` is True, the server can never load it."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


@dataclass(slots=True)
class RequestChunk:
    """The rows [start, stop) of a batch that one request contains. `tries` counts how often these rows were sent."""

    start: int
    stop: int
    tries: int = 0


@dataclass(slots=True, frozen=True)
class SentRequest:
    """A request that was sent to a server, in flight or completed.

    Attributes:
        run: the sequence number of the batch.
        chunk: the rows of the batch that the request contains.
        at: the number of the server.
        sent_at: the time of sending, in monotonic seconds.
        call: the gRPC future.
    """

    run: int
    chunk: RequestChunk
    at: int
    sent_at: float
    call: Any


@dataclass(slots=True, frozen=True)
class ProbeResult:
    """The result of a probe of the server with the number `at`. `fault` is None if the server is ready."""

    at: int
    fault: str | None


class BatchDispatcher:
    """The dispatcher of batches to the servers of one model version.

    Args:
        remote: the version on the servers.
        addresses: the addresses of the servers.
        deadline: the deadline of a request in seconds.
        control: the input tensors of one event, which are sent to test a server.
        constants: constant inputs, which are added to every request.
        clock: returns monotonic seconds.
    """

    # As soon as a server has scored a batch, the first row of this batch is used to test servers.

    def __init__(
        self,
        remote: RemoteVersion,
        addresses: Sequence[str],
        deadline: float,
        control: Tensors,
        constants: Tensors | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoints = Endpoints(addresses)
        self.window = ConcurrencyLimit()
        self.remote = remote
        self._deadline = deadline
        self._control = control
        self._constants = constants or {}
        self._has_responded = False
        self._clock = clock
        self._inbox: queue.SimpleQueue[SentRequest | ProbeResult] = queue.SimpleQueue()
        self._run = 0

    def run(self, tensors: Tensors) -> Tensors:
        """Compute (B, ...) outputs from (B, ...) inputs.

        Raises:
            InferenceFailed: The servers are healthy but cannot score this batch. A smaller batch may succeed.
            BackendUnavailable: All servers are unavailable.
        """
        self._run += 1
        for one in self.endpoints.all:
            one.in_flight = 0
        rows = len(next(iter(tensors.values())))
        waiting = deque(_chunks(tensors, rows))
        in_flight: dict[int, SentRequest] = {}
        parts: dict[int, Tensors] = {}
        give_up_at = self._clock() + RUN_DEADLINES * self._deadline
        try:
            while waiting or in_flight:
                if self._clock() >= give_up_at and waiting:
                    if parts:
                        limit = RUN_DEADLINES * self._deadline
                        raise InferenceFailed(f"the model servers did not answer all of {rows} events within {limit:.1f} s")
                    raise self._unavailable()
                self._launch(tensors, waiting, in_flight)
                self._handle_report(waiting, in_flight, parts)
        finally:
            for sent in in_flight.values():
                sent.call.cancel()
        if not self._has_responded:
            self._control = {name: tensor[:1].copy() for name, tensor in tensors.items()}
            self._has_responded = True
        ordered = [parts[start] for start in sorted(parts)]
        return ordered[0] if len(ordered) == 1 else {name: np.concatenate([p[name] for p in ordered]) for name in ordered[0]}

    def warm(self, at: int, seconds: float) -> None:
        """Send a test event to the server `at`. Raises grpc.RpcError if the server cannot score it."""
        try:
            self._send(at, self._control, seconds).result()
        except grpc.RpcError as error:
            if self._has_responded or error.code() in (*GONE, *OVERLOAD):
                raise

    def _send(self, at: int, rows: Tensors, seconds: float) -> Any:
        return self.remote.send(at, rows | self._constants, seconds)

    def _launch(self, tensors: Tensors, waiting: deque[RequestChunk], in_flight: dict[int, SentRequest]) -> None:
        """Start the probes that are due, and send waiting requests up to the limit of requests in flight."""
        now = self._clock()
        for at in self.endpoints.due(now):
            self.endpoints.all[at].probing = True
            threading.Thread(target=self._probe, args=(at,), name="server-probe", daemon=True).start()
        while waiting and self.window.room(len(in_flight)):
            if (to := self.endpoints.select()) is None:
                return
            chunk = waiting.popleft()
            chunk.tries += 1
            rows = {name: tensor[chunk.start : chunk.stop] for name, tensor in tensors.items()}
            call = self._send(to, rows, self._deadline)
            sent = SentRequest(self._run, chunk, to, now, call)
            in_flight[chunk.start] = sent
            self.endpoints.all[to].in_flight += 1
            call.add_done_callback(lambda _, sent=sent: self._inbox.put(sent))

    def _probe(self, at: int) -> None:
        fault = None
        try:
            self.remote.prepare(at, self._deadline)
            self.warm(at, self._deadline)
        except (grpc.RpcError, VersionNotReady) as error:
            fault = explain(error)
        self._inbox.put(ProbeResult(at, fault))

    def _handle_report(
        self, waiting: deque[RequestChunk], in_flight: dict[int, SentRequest], parts: dict[int, Tensors]
    ) -> None:
        """Wait for the result of one request or one probe, and handle it.

        Raises BackendUnavailable if no request and no probe is running, or if no result arrives in time.
        """
        if not in_flight and not any(one.probing for one in self.endpoints.all):
            raise self._unavailable()
        try:
            report = self._inbox.get(timeout=2 * self._deadline)
        except queue.Empty:
            raise self._unavailable() from None
        if isinstance(report, ProbeResult):
            self._handle_probe(report)
        elif report.run == self._run:
            del in_flight[report.chunk.start]
            self.endpoints.all[report.at].in_flight -= 1
            if (outputs := self._outcome(report, len(in_flight) + 1)) is None:
                waiting.appendleft(report.chunk)
            else:
                check_rows(outputs, report.chunk.stop - report.chunk.start)
                parts[report.chunk.start] = outputs

    def _handle_probe(self, report: ProbeResult) -> None:
        self.endpoints.all[report.at].probing = False
        if report.fault is None:
            self.endpoints.succeeded(report.at)
        else:
            self.endpoints.failed(report.at, self._clock(), report.fault)

    def _outcome(self, sent: SentRequest, in_flight: int) -> Tensors | None:
        """Return the outputs of a completed request; None if its rows must be sent again.

        Raises InferenceFailed if the rows are the cause of a failure.
        """
        try:
            reply = sent.call.result()
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            code = error.code() if isinstance(error, grpc.RpcError) else grpc.StatusCode.CANCELLED
            self._handle_failure(sent, code, explain(error), self._clock())
            return None
        self.endpoints.succeeded(sent.at)
        self.window.record_response(in_flight)
        return self.remote.read(reply)

    def _handle_failure(self, sent: SentRequest, code: grpc.StatusCode, fault: str, now: float) -> None:
        """Determine the cause of a failed request. Raises InferenceFailed if the rows of the request are the cause."""
        chunk = sent.chunk
        alone = chunk.stop - chunk.start == 1
        if code in OVERLOAD:
            self.window.record_missed_deadline(sent.sent_at, now)
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                self.endpoints.record_missed_deadline(sent.at, now)
            if chunk.tries < TRIES:
                return
        elif code in GONE:
            self.endpoints.failed(sent.at, now, fault)
            if chunk.tries < TRIES or self.endpoints.select() is None:
                return
        elif not alone:
            self.endpoints.succeeded(sent.at)
            raise InferenceFailed(fault)
        if self._answers(sent.at):
            raise InferenceFailed(fault)
        self.endpoints.failed(sent.at, self._clock(), fault)

    def _answers(self, at: int) -> bool:
        """Return whether the server scores a test event now. If it does, the rows caused the failure, not the server."""
        try:
            self._send(at, self._control, self._deadline).result()
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            return not self._has_responded and isinstance(error, grpc.RpcError) and error.code() not in (*GONE, *OVERLOAD)
        return True

    def _unavailable(self) -> BackendUnavailable:
        fault = self.endpoints.describe_faults() or f"no answer within {RUN_DEADLINES * self._deadline:.1f} s"
        return BackendUnavailable(f"the model servers are unavailable: {fault}", self.endpoints.wait(self._clock()))


def explain(error: BaseException) -> str:
    """Format an error as text. A gRPC error becomes its code and the first line of its details."""
    if isinstance(error, grpc.RpcError):
        details = (error.details() or "").strip().splitlines()
        return f"{error.code().name}: {details[0][:300]}" if details else str(error.code().name)
    return str(error) or type(error).__name__


def _chunks(tensors: Tensors, rows: int) -> list[RequestChunk]:
    """Split rows into chunks of at most CHUNK_ROWS rows and about CHUNK_BYTES bytes. A string counts as 64 bytes."""
    row_bytes = sum((64 if t.dtype == object else t.itemsize) * (t.size // max(1, rows)) for t in tensors.values())
    size = max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, row_bytes)))
    return [RequestChunk(start, min(start + size, rows)) for start in range(0, rows, size)]
