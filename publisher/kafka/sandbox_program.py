"""The sandbox: a program that reads partitions for its parent process in limited memory, and may die from their content.

`sandboxed_reads.py` starts the program and sends requests. In careful mode each fetch returns one batch, so that the process
knows which batch cannot be read.
"""

# librdkafka decompresses a whole batch before it returns a record, and aborts the process if an allocation fails. In this
# program, the thread that calls `abort` is stopped instead. The main thread then answers with the offsets of the batch, which
# it reads from the header of the fetched batch in memory.

import contextlib
import ctypes
import os
import pickle
import resource
import signal
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
from confluent_kafka import Consumer, Message, TopicPartition

from model_registry import memory_limits
from model_registry.sandbox import confine
from publisher.kafka import clients as kafka
from publisher.kafka.batch_header import BatchHeader, headers_in
from publisher.kafka.error_codes import ABSENT, END, OUT_OF_RANGE, REFUSED, UNDECODABLE, Codes
from publisher.kafka.headers import headers_of

LENGTH = struct.Struct(">I")
ANSWER_SECONDS = 10.0
POLL_SECONDS = 0.05
GATHER_SECONDS = 0.05  # the wait for more batches in careful mode
RECORDS = 1_000  # the largest number in one answer; fewer if they are large
ANSWER_BYTES = 4 << 20
SPARE_BYTES = 64 << 20  # for the stacks and arenas of librdkafka's threads
MIN_BYTES = 32 << 20  # the limit is not lower, even if the container has less memory left
SHARE = 0.7  # of the memory that the container has left
LARGEST_REGION = 1 << 30  # bytes; larger regions of memory contain decompressed data and are not searched
DIED = b"Assertion"  # standard error contains this text if a thread calls `abort`
CAREFUL_PROPERTIES = {"fetch.message.max.bytes": 1, "queued.min.messages": 1}
"""The properties of careful mode: a fetch returns only the batch that contains the position. The next fetch starts after all
records of this batch are consumed."""

REJECTED = Codes(*OUT_OF_RANGE.items(), *ABSENT.items(), *REFUSED.items())

FIXED: dict[str, Any] = {
    "enable.partition.eof": True,
    "receive.message.max.bytes": 2_147_483_647,
    "fetch.wait.max.ms": 10,
    "log_level": 3,
}
"""The properties of every sandbox. Only memory limits the size of a fetch, so that the header of any batch can be read."""


class SandboxStart(msgspec.Struct, array_like=True):
    """The first message to the sandbox.

    Attributes:
        client: the pickled settings, client id and further properties of the consumer.
        limit: the memory for one batch (bytes).
        careful: whether each fetch returns one batch, so that the process knows which batch cannot be read.
    """

    client: bytes
    limit: int
    careful: bool


class Read(msgspec.Struct, array_like=True):
    """A request to the sandbox to read a partition from an offset."""

    topic: str
    partition: int
    offset: int


class Row(msgspec.Struct, array_like=True):
    """One record that the sandbox has read. `unread` is the error if its headers cannot be read; otherwise None."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: tuple[int, int]
    leader_epoch: int | None
    headers: list[tuple[str, bytes | None]] | None
    unread: str | None


class Records(msgspec.Struct, array_like=True, tag=True):
    """An answer of the sandbox: the next records of the partition.

    `ended` means that the partition has no further committed records at present.
    """

    rows: list[Row]
    ended: bool = False


class Ended(msgspec.Struct, array_like=True, tag=True):
    """An answer of the sandbox: the partition currently has no committed record at or after the requested offset.

    `offset` is the current end of the partition for readers of committed records.
    """

    offset: int


class RepeatCarefully(msgspec.Struct, array_like=True, tag=True):
    """An answer of the sandbox: a batch at or after the requested offset cannot be read.

    The parent must start another sandbox in careful mode (one batch per fetch), and repeat the request.
    """


class Unreadable(msgspec.Struct, array_like=True, tag=True):
    """An answer of the sandbox: the batch that contains the requested offset cannot be read.

    Attributes:
        last: the last offset of the batch. If the batch's header was not found in memory, the requested offset.
        codec: the compression codec; empty if unknown.
        size: the bytes of the batch in the log; 0 if unknown.
        records: the number of records; 0 if unknown.
        reason: why the batch cannot be read.
    """

    last: int
    codec: str
    size: int
    records: int
    reason: str


class Failed(msgspec.Struct, array_like=True, tag=True):
    """An answer of the sandbox: its Kafka client reports an error that no other type of answer describes."""

    error: str


class Rejected(msgspec.Struct, array_like=True, tag=True):
    """An answer of the sandbox: the broker rejects the fetch.

    The offset is out of range, the topic does not exist, or a right is missing. The sandbox does not handle these errors,
    because the parent's own consumer receives the same error.
    """

    error: str


class NoAnswerYet(msgspec.Struct, array_like=True, tag=True):
    """An answer of the sandbox: neither a record nor an error has arrived from the broker within ANSWER_SECONDS."""


Answer = Records | Ended | RepeatCarefully | Unreadable | Failed | Rejected | NoAnswerYet


def write_frame(stream: IO[bytes], message: msgspec.Struct) -> None:
    """Write a message to the stream, preceded by its length, and flush the stream."""
    body = msgspec.msgpack.encode(message)
    stream.write(LENGTH.pack(len(body)))
    stream.write(body)
    stream.flush()


def read_frame(stream: IO[bytes], kind: Any) -> Any:
    """Read the next message of the type `kind`; return None at the end of the stream."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    body = stream.read(length)
    return msgspec.msgpack.decode(body, type=kind) if len(body) == length else None


class IsolatedReader:
    """Reads partitions for the parent process, with one consumer and in limited memory."""

    # The process redirects its standard error to a pipe, and reads the pipe from the file descriptor `died`. If librdkafka
    # writes a failed assertion to the standard error, a thread of librdkafka has called `abort`, and was stopped.

    def __init__(self, start: SandboxStart, died: int) -> None:
        settings, client_id, properties = pickle.loads(start.client)
        self._start = start
        self._died = died
        self._dead = False
        extra = CAREFUL_PROPERTIES if start.careful else {}
        self._consumer: Consumer = kafka.reader(settings, client_id, **properties, **FIXED, **extra)
        self._at: Read | None = None
        self._before = resource.getrlimit(resource.RLIMIT_DATA)
        self._limit = memory_limits.data_bytes() + allowed(start.limit)
        self._limit_memory()

    def read(self, request: Read) -> Answer:
        fresh = self._at is None
        if self._at != request and not self._dead:
            self._assign(request)
        self._at = request
        until = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < until:
            try:
                messages = self._poll_messages()
            except (MemoryError, SystemError):  # memory sufficed for decompressing the batch, but not for copying a record
                resource.setrlimit(resource.RLIMIT_DATA, self._before)
                if not (self._start.careful and fresh):
                    return RepeatCarefully()
                self._assign(request)
                continue
            if (answer := self._answer(request, messages, fresh)) is not None:
                return answer
            if self._has_died():
                return self._answer_unreadable(request, fresh, "")
        return NoAnswerYet()

    def _assign(self, request: Read) -> None:
        self._consumer.assign([TopicPartition(request.topic, request.partition, request.offset)])

    def _poll_messages(self) -> list[Message]:
        """Poll the consumer, and return the messages for one answer; an empty list if no message has arrived."""
        first = self._consumer.consume(1, POLL_SECONDS)
        if not first or first[0].error() is not None:
            return first
        most = max(1, min(RECORDS, ANSWER_BYTES // max(1, len(first[0]))))
        return first + self._consumer.consume(most, GATHER_SECONDS if self._start.careful else 0)

    @contextlib.contextmanager
    def room_for(self, answer: Answer) -> Iterator[None]:
        """Lift the memory limit in the `with` block, because encoding a large answer needs memory for a copy."""
        rows = answer.rows if isinstance(answer, Records) else []
        large = sum(len(row.value or b"") + len(row.key or b"") for row in rows) > ANSWER_BYTES // 2
        if large:
            resource.setrlimit(resource.RLIMIT_DATA, self._before)
        yield
        if large:
            self._limit_memory()

    def _answer(self, request: Read, messages: list[Message], fresh: bool) -> Answer | None:
        received = [message for message in messages if message.error() is None]
        if received:
            good_headers, unread = headers_of(received)
            rows = [
                Row(
                    message.offset() or 0,
                    _bytes(message.key()),
                    _bytes(message.value()),
                    message.timestamp(),
                    message.leader_epoch(),
                    [(name, _bytes(value)) for name, value in headers] if headers is not None else None,
                    repr(unread[at].__cause__ or unread[at]) if at in unread else None,
                )
                for at, (message, headers) in enumerate(zip(received, good_headers, strict=True))
            ]
            self._at = Read(request.topic, request.partition, rows[-1].offset + 1)
            # The client reports an end once, so the end is part of the answer with the records before it.
            return Records(rows, any(message.error() in END for message in messages))
        for message in messages:
            error = message.error()
            assert error is not None
            if error in UNDECODABLE:
                return self._answer_unreadable(request, fresh, error.str())
            if error in END:
                return Ended(message.offset() or request.offset)
            if error in REJECTED:
                return Rejected(error.str())
            if not kafka.is_group_auth_noise(error):
                return Failed(error.str())
        return None

    def _has_died(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self._dead = self._dead or DIED in os.read(self._died, 1 << 16)
        return self._dead

    def _answer_unreadable(self, request: Read, fresh: bool, error: str) -> Answer:
        """Return the answer for a batch that cannot be read: Unreadable if it is the requested batch, else RepeatCarefully.

        Args:
            request: the request.
            fresh: whether this request is the first one of the process.
            error: the error of the client; empty if the batch needs too much memory.
        """
        # The batch certainly contains the requested offset if the process fetches one batch per request and this is its first
        # one.
        resource.setrlimit(resource.RLIMIT_DATA, self._before)
        if not (self._start.careful and fresh):
            return RepeatCarefully()
        reason = error or f"it takes more than {self._start.limit} bytes of memory"
        # Use the shortest match: a record may contain the bytes of a header, and no readable record must be skipped.
        header = min(headers_in_memory(request.offset), key=lambda candidate: (candidate.last, -candidate.size), default=None)
        if header is None:
            return Unreadable(request.offset, "", 0, 0, reason)
        return Unreadable(header.last, header.codec, header.size, header.records, reason)

    def _limit_memory(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (self._limit, self._before[1]))


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def headers_in_memory(offset: int) -> Iterator[BatchHeader]:
    """Search the writable memory of this process, and yield the headers of batches that contain this offset."""
    regions = [line.split()[:2] for line in Path("/proc/self/maps").read_text().splitlines()]
    with Path("/proc/self/mem").open("rb", buffering=0) as content:
        for place, rights in regions:
            begin, end = (int(number, 16) for number in place.split("-"))
            if rights.startswith("rw") and end - begin <= LARGEST_REGION:
                with contextlib.suppress(OSError, MemoryError):
                    content.seek(begin)
                    yield from headers_in(content.read(end - begin), offset)


def allowed(limit: int) -> int:
    """Return how many more bytes this process may allocate: `limit` plus SPARE_BYTES, or less if the container has less."""
    # Less if the container has less free memory.
    return min(limit + SPARE_BYTES, max(MIN_BYTES, int(SHARE * memory_limits.container_memory().free)))


def main() -> None:
    """Answer the read requests that the parent process writes to standard input, until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    died, standard_error = os.pipe()
    os.set_blocking(died, False)
    os.dup2(standard_error, 2)
    confine()
    library = ctypes.CDLL(None)
    library.signal.restype = ctypes.c_void_p
    library.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.signal(signal.SIGABRT, ctypes.cast(library.pause, ctypes.c_void_p))  # the aborting thread then waits for ever
    reader = IsolatedReader(read_frame(sys.stdin.buffer, SandboxStart), died)
    while (request := read_frame(sys.stdin.buffer, Read)) is not None:
        answer = reader.read(request)
        with reader.room_for(answer):
            write_frame(answers, answer)
    os._exit(0)  # closing the consumer would never return if one of its threads waits for ever


if __name__ == "__main__":
    main()
