"""The in-flight journal: the events that a worker is scoring.

If a worker dies, the journal names the events that may have caused the death, and the candidate version if it scored some of
them. The journal also stores the number of process deaths attributed to a candidate, and the version that is being loaded
(`load_journal.py`).
"""

# A worker writes the journal before it scores a batch, and clears it afterwards. A worker dies if it is killed by a signal,
# hangs, has a broken model, or is ended by a library. After any other end the supervisor clears the journal. The journal is a
# memory-mapped file in the cache, so that a restarted container can read it, or shared memory if the cache is not writable.

import errno
import mmap
import os
import struct
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from model_registry.untrusted_input import json_documents
from publisher.kafka.partitions import Partition

SIZE = 1 << 16  # bytes
MAX_PARTITIONS = 1_000  # in one entry; fewer if their names are long
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)  # the disk or the quota is full
LENGTH = struct.Struct("<I")  # precedes each entry
BLAME_AT = SIZE - 512  # bytes from the start of the file
LOADS_AT = BLAME_AT - 4_096
ROOM = LOADS_AT - LENGTH.size
LOADS_ROOM = BLAME_AT - LOADS_AT - LENGTH.size
BLAME_ROOM = SIZE - BLAME_AT - LENGTH.size
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)  # for example a cache in a container's image

Entry = TypeVar("Entry")


class _JournalEntry(msgspec.Struct, array_like=True):
    rows: list[tuple[str, int, int]] = []
    candidate: str = ""


class _CandidateDeaths(msgspec.Struct, array_like=True):
    candidate: str = ""
    deaths: int = 0


class _LoadEntry(msgspec.Struct, array_like=True):
    loading: str = ""
    deaths: dict[str, int] = {}


class InFlightJournal:
    """The journal of one worker, in the file `path`, or in memory that is shared by forked processes.

    Memory is used if `path` is None, or if the disk is read-only or full.

    Raises:
        OSError: The file cannot be opened for another reason.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._memory = _file(path) if path else mmap.mmap(-1, SIZE)
        self._encode = msgspec.json.Encoder().encode

    def write(self, ends: Mapping[Partition, int], candidate: str = "") -> None:
        """Record the events in flight.

        Args:
            ends: the end offset of each partition. The events in flight start at the committed offset and are before the end
                offset.
            candidate: the identity of the candidate version that scores some of the events; "" if no candidate does.
        """
        rows = [(topic, partition, end) for (topic, partition), end in islice(ends.items(), MAX_PARTITIONS)]
        while len(body := self._encode((rows, candidate))) > ROOM:
            del rows[len(rows) // 2 :]
        self._write(0, body)

    def clear(self) -> None:
        """Record that no event is in flight."""
        LENGTH.pack_into(self._memory, 0, 0)

    def read(self) -> dict[Partition, int]:
        """Return the recorded end offset of each partition; an empty dict if no event is in flight or the entry is invalid."""
        entry = self._read(0, ROOM, _JournalEntry) or _JournalEntry()
        return {(topic, partition): end for topic, partition, end in entry.rows}

    def candidate(self) -> str:
        """Return the candidate that scores some of the events in flight; "" if no candidate does."""
        return (self._read(0, ROOM, _JournalEntry) or _JournalEntry()).candidate

    def record_death(self, candidate: str) -> None:
        """Attribute another death of a process to this candidate, and forget the deaths attributed to other candidates."""
        self._write(BLAME_AT, self._encode((candidate, self.deaths(candidate) + 1)))

    def forget_deaths(self) -> None:
        """Forget the deaths attributed to candidates."""
        LENGTH.pack_into(self._memory, BLAME_AT, 0)

    def deaths(self, candidate: str) -> int:
        """Return the number of deaths of processes that are attributed to this candidate."""
        blame = self._read(BLAME_AT, BLAME_ROOM, _CandidateDeaths) or _CandidateDeaths()
        return blame.deaths if blame.candidate == candidate else 0

    def write_loads(self, loading: str, deaths: Mapping[str, int]) -> None:
        """Store the version that is being loaded ("" for none), and for each version the number of deaths during its loads."""
        self._write(LOADS_AT, self._encode((loading, deaths)))
        self._memory.flush()

    def loads(self) -> tuple[str, dict[str, int]]:
        """Return the version that is being loaded ("" for none), and for each version the number of deaths during its loads."""
        loads = self._read(LOADS_AT, LOADS_ROOM, _LoadEntry) or _LoadEntry()
        return loads.loading, loads.deaths

    def end_load(self) -> None:
        """Record that no version is being loaded. Call this method if the process is stopped or ends by itself."""
        loading, deaths = self.loads()
        if loading:
            self.write_loads("", deaths)

    def _write(self, at: int, body: bytes) -> None:
        begin = at + LENGTH.size
        LENGTH.pack_into(self._memory, at, 0)  # a process that dies during the copy leaves an empty entry
        self._memory[begin : begin + len(body)] = body
        LENGTH.pack_into(self._memory, at, len(body))

    def _read(self, at: int, room: int, kind: type[Entry]) -> Entry | None:
        """Return the entry of type `kind` that begins at the byte `at` of the file; None if it is empty or invalid.

        `room` is the largest size of the entry in bytes.
        """
        (length,) = LENGTH.unpack_from(self._memory, at)
        begin = at + LENGTH.size
        try:
            return json_documents.decode(self._memory[begin : begin + min(length, room)], kind)
        except json_documents.UnreadableDocument:
            return None


def journal_path(cache: Path, owner: str) -> Path:
    """Return the path of the journal of the worker `owner` in the cache folder."""
    return cache / "in-hand" / owner


def _file(path: Path) -> mmap.mmap:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in READ_ONLY:
            return mmap.mmap(-1, SIZE)
        raise
    try:
        os.posix_fallocate(descriptor, 0, SIZE)  # otherwise a write to a disk that is full by then kills the process
        return mmap.mmap(descriptor, SIZE)
    except OSError as error:
        if error.errno in NO_ROOM:
            return mmap.mmap(-1, SIZE)
        raise
    finally:
        os.close(descriptor)
