"""Read partitions through a child process, the sandbox, because the content of a partition may crash its reader.

A partition is read through the sandbox (`sandbox_program.py`) if its last reader died or the reader cannot decompress a batch.
An unreadable batch is skipped. Then the reader itself reads the partition again.
"""

# A compressed batch may expand to any size. The reader continues after ENOUGH_BYTES of records, or at the end of the partition.

import contextlib
import logging
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from confluent_kafka import Message

from publisher.kafka.clients import KafkaSettings
from publisher.kafka.partitions import Partition
from publisher.kafka.sandbox_program import (
    ANSWER_SECONDS,
    Answer,
    Ended,
    Failed,
    NoAnswerYet,
    Read,
    Records,
    Rejected,
    RepeatCarefully,
    Row,
    SandboxStart,
    Unreadable,
    read_frame,
    write_frame,
)

log = logging.getLogger(__name__)

ENOUGH_BYTES = 8 << 20  # of records until a partition leaves the sandbox: more than a reader usually fetches uncommitted
CAREFUL_BYTES = 2 << 20  # of records until careful mode ends: a usual fetch of a partition returns half of it
SILENT_SECONDS = 3 * ANSWER_SECONDS  # a process without an answer for this long is replaced
RESTART_SECONDS = 1.0  # before the next request, after an error or the death of a careful process
BLIND_DEATHS = 2  # after so many deaths of careful processes at one offset, the record at this offset is skipped


@dataclass(frozen=True, slots=True)
class UnreadableBatch:
    """A batch that cannot be read, and the offsets that are skipped because of it.

    Attributes:
        partition: the partition.
        first: the first offset that is skipped.
        last: the last offset that is skipped.
        codec: the compression codec; empty if unknown.
        size: the bytes of the batch in the log; 0 if unknown.
        records: the number of records in the batch; 0 if unknown.
        reason: why the batch cannot be read.
    """

    partition: Partition
    first: int
    last: int
    codec: str
    size: int
    records: int
    reason: str

    def __str__(self) -> str:
        details = f" ({self.codec}, {self.size} bytes in the log, {self.records} records)" if self.codec else ""
        return f"the batch at offsets {self.first} to {self.last}{details} cannot be read: {self.reason}"


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """A result of the sandbox for one partition.

    Attributes:
        partition: the partition.
        rows: the records; may be empty.
        unreadable: the batch that cannot be read and is skipped; None if there is none.
        released: whether the sandbox no longer reads the partition, so that the reader must read it again.
    """

    # A partition is released too if the broker rejects the fetch, because the reader itself handles that error.

    partition: Partition
    rows: list[Row] = field(default_factory=list)
    unreadable: UnreadableBatch | None = None
    released: bool = False


class Child(Protocol):
    """The contract of a sandbox process: it reads partitions, one request at a time.

    `ask` sends a request. `answer` waits up to `seconds` for the answer; it returns None if there is none yet, and raises
    EOFError after the process has died. `close` ends the process.
    """

    def ask(self, question: Read) -> None: ...

    def answer(self, seconds: float) -> Answer | None: ...

    def close(self) -> None: ...


class ReaderProcess:
    """A sandbox process, which runs `sandbox_program.py`; implements `Child`.

    Args:
        limit: the memory for one batch in bytes.
        careful: whether to start in careful mode, in which each fetch returns one batch.
    """

    def __init__(
        self, settings: KafkaSettings, client_id: str, limit: int, properties: Mapping[str, Any], *, careful: bool
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "publisher.kafka.sandbox_program"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        threading.Thread(target=self._receive, name="sandbox", daemon=True).start()
        self._send(SandboxStart(pickle.dumps((settings, client_id, dict(properties))), limit, careful))

    def ask(self, question: Read) -> None:
        self._send(question)

    def answer(self, seconds: float) -> Answer | None:
        try:
            answer = self._answers.get(timeout=seconds) if seconds > 0 else self._answers.get_nowait()
        except queue.Empty:
            return None
        if answer is None:
            raise EOFError
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()

    def _send(self, message: SandboxStart | Read) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the process has died: `answer` reports it
            write_frame(self._process.stdin, message)

    def _receive(self) -> None:
        assert self._process.stdout is not None
        try:
            with contextlib.suppress(OSError, ValueError), self._process.stdout as stream:
                while (answer := read_frame(stream, Answer)) is not None:
                    self._answers.put(answer)
        finally:
            self._answers.put(None)


@dataclass(slots=True)
class _Suspect:
    """A partition that is read in the sandbox.

    Attributes:
        at: the next offset to read.
        left: how many more bytes of records the sandbox reads before it releases the partition to the reader.
        deaths: how many processes have died in careful mode (one batch per fetch) while they read from the offset `at`.
    """

    at: int
    left: int
    deaths: int = 0


class Sandboxed:
    """Reads partitions of a consumer (the reader) through a child process (the sandbox). The reader's thread owns the instance.

    `partition in sandboxed` tests whether the sandbox reads a partition. The child process runs only while there is such a
    partition.

    Args:
        child: starts a process. Its argument is true for careful mode, in which each fetch returns one batch.
    """

    def __init__(self, child: Callable[[bool], Child], clock: Callable[[], float] = time.monotonic) -> None:
        self._new_child = child
        self._clock = clock
        self._suspects: dict[Partition, _Suspect] = {}
        self._child: Child | None = None
        self._careful = False
        self._careful_left = 0
        self._requested: tuple[Partition, int] | None = None
        self._requested_at = self._due = 0.0

    def __bool__(self) -> bool:
        return bool(self._suspects)

    def __contains__(self, partition: object) -> bool:
        return partition in self._suspects

    def __iter__(self) -> Any:
        return iter(list(self._suspects))

    def add(self, partition: Partition, offset: int) -> None:
        """Read this partition in the sandbox, from this offset on."""
        self._suspects.setdefault(partition, _Suspect(offset, ENOUGH_BYTES)).at = offset

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Stop reading these partitions in the sandbox."""
        for partition in partitions:
            self._suspects.pop(partition, None)
        self._end_if_unused()

    def take(self, seconds: float, readable: Callable[[Partition], bool] = lambda _: True) -> SandboxResult | None:
        """Return the next result of the sandbox; None if no result arrives within `seconds`.

        Only partitions for which `readable(partition)` is true are read.
        """
        if self._requested is None and not self._ask(readable):
            return None
        assert self._child is not None
        assert self._requested is not None
        partition, at = self._requested
        try:
            answer = self._child.answer(seconds)
        except EOFError:
            answer = None
        else:
            if answer is None and self._clock() - self._requested_at < SILENT_SECONDS:
                return None
        self._requested = None
        suspect = self._suspects.get(partition)
        result = None
        if answer is None:
            result = self._died(partition, suspect)
        elif suspect is not None and suspect.at == at:
            result = self._handle_answer(partition, suspect, answer)
        elif not isinstance(answer, Records | Ended | NoAnswerYet):
            self._end()  # the answer is for a partition that is no longer read here
        self._end_if_unused()
        return result

    def close(self) -> None:
        self._suspects.clear()
        self._end()

    def _ask(self, readable: Callable[[Partition], bool]) -> bool:
        now = self._clock()
        next_partition = next((partition for partition in self._suspects if readable(partition)), None)
        if next_partition is None or now < self._due:
            return False
        if self._child is None:
            self._child = self._new_child(self._careful)
        suspect = self._suspects[next_partition]
        self._child.ask(Read(*next_partition, suspect.at))
        self._requested = (next_partition, suspect.at)
        self._requested_at = now
        return True

    def _handle_answer(self, partition: Partition, suspect: _Suspect, answer: Answer) -> SandboxResult | None:
        match answer:
            case Records(rows, ended):
                suspect.at = rows[-1].offset + 1
                suspect.deaths = 0
                size = sum(len(row.value or b"") + len(row.key or b"") for row in rows)
                suspect.left -= size
                self._count_careful_bytes(size)
                cleared = ended or suspect.left <= 0
                if not cleared:  # the other partitions are read first
                    self._suspects[partition] = self._suspects.pop(partition)
                return self._finish_result(partition, SandboxResult(partition, rows, released=cleared))
            case Ended():
                return self._finish_result(partition, SandboxResult(partition, released=True))
            case Unreadable():
                return self._skip_batch(partition, suspect, answer)
            case RepeatCarefully():
                self._restart_in_careful_mode()
            case Failed(error):
                log.warning("the sandbox process cannot read %s[%d]: %s", *partition, error)
                self._due = self._clock() + RESTART_SECONDS
            case Rejected(error):
                log.warning("the sandbox process no longer reads %s[%d]: %s", *partition, error)
                return self._finish_result(partition, SandboxResult(partition, released=True))
            case NoAnswerYet():
                pass
        return None

    def _restart_in_careful_mode(self) -> None:
        """End the process. The next process runs in careful mode (one batch per fetch), until it has read CAREFUL_BYTES."""
        self._end()
        self._careful = True
        self._careful_left = CAREFUL_BYTES

    def _count_careful_bytes(self, size: int) -> None:
        """Count bytes that were read in careful mode (one batch per fetch), and end this mode after CAREFUL_BYTES."""
        # Careful mode starts after a fetch of several batches with an unreadable one. Such a fetch has fewer bytes than
        # CAREFUL_BYTES, so the process has passed the unreadable batch by then.
        self._careful_left -= size
        if self._careful and self._careful_left <= 0:
            self._end()
            self._careful = False

    def _skip_batch(self, partition: Partition, suspect: _Suspect, answer: Unreadable) -> SandboxResult:
        """Skip an unreadable batch, end the process, and return the result that names the batch."""
        # Reading the batch has blocked a thread of the process for ever. The next request starts a new process.
        last = max(answer.last, suspect.at)
        batch = UnreadableBatch(partition, suspect.at, last, answer.codec, answer.size, answer.records, answer.reason)
        log.warning("%s[%d]: %s", *partition, batch)
        suspect.at = last + 1
        suspect.deaths = 0
        self._end()
        self._careful = False
        return SandboxResult(partition, unreadable=batch)

    def _died(self, partition: Partition, suspect: _Suspect | None) -> SandboxResult | None:
        """Handle the end of a process that died, or did not answer in time, during a request for this partition.

        `suspect` is the state of the partition; None if the sandbox no longer reads it.
        """
        # If BLIND_DEATHS processes that fetch one batch per request have died at one offset, the batch there is assumed to be
        # the cause, and this offset is skipped.
        careful = self._careful
        self._restart_in_careful_mode()
        if suspect is None:
            return None
        suspect.deaths += careful
        if suspect.deaths < BLIND_DEATHS:
            self._due = self._clock() + (RESTART_SECONDS if careful else 0.0)
            return None
        return self._skip_batch(partition, suspect, Unreadable(suspect.at, "", 0, 0, "it ends every process that reads it"))

    def _finish_result(self, partition: Partition, result: SandboxResult) -> SandboxResult:
        if result.released:
            del self._suspects[partition]
        return result

    def _end_if_unused(self) -> None:
        """End the process if no partition is read in the sandbox."""
        if not self._suspects:
            self._end()
            self._careful = False

    def _end(self) -> None:
        self._requested = None
        if self._child is not None:
            self._child.close()
            self._child = None


def sandboxed(settings: KafkaSettings, client_id: str, limit: int, **properties: Any) -> Sandboxed:
    """Create the sandbox of a reader with these client settings; `limit` is the memory for one batch in bytes."""
    return Sandboxed(lambda careful: ReaderProcess(settings, client_id, limit, properties, careful=careful))


def messages_of(partition: Partition, rows: Iterable[Row]) -> list[Message]:
    """Convert records of the sandbox to confluent-kafka messages."""
    topic, number = partition
    return [
        Message(
            topic=topic,
            partition=number,
            offset=row.offset,
            key=row.key,
            value=row.value,
            headers=row.headers,  # type: ignore[arg-type]
            timestamp=row.timestamp,
            leader_epoch=row.leader_epoch,
        )
        for row in rows
    ]
