"""The black box: a note of the events that a worker has in hand while its model looks at them.

The note lies in memory that outlives the worker, and on disk where the cache can be written, so that a container that starts
again finds it. A worker writes the note before it scores a batch and clears it afterwards. Its supervisor clears it after every
end but a death (a signal, a hang, an exit that a library makes). A note that a worker finds at its start tells which events may
have killed.
"""

import errno
import mmap
import os
import struct
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import msgspec

from publisher.kafka.partitions import Partition

SIZE = 1 << 16  # bytes
MOST = 1_000  # partitions in one note, fewer where their names are long
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
LENGTH = struct.Struct("<I")
ROOM = SIZE - LENGTH.size
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)  # a cache that was filled beforehand, in a container's image


class InHand:
    """One worker's note, at `path` or, where that cannot be written, in memory that forked processes share. Raises OSError."""

    def __init__(self, path: Path | None = None) -> None:
        self._memory = _file(path) if path else mmap.mmap(-1, SIZE)
        self._encode = msgspec.json.Encoder().encode

    def note(self, ends: Mapping[Partition, int]) -> None:
        """The events from the committed offset of each partition up to this offset are in hand."""
        rows = [(topic, partition, end) for (topic, partition), end in islice(ends.items(), MOST)]
        while len(body := self._encode(rows)) > ROOM:
            del rows[len(rows) // 2 :]
        memory = self._memory
        LENGTH.pack_into(memory, 0, 0)  # whoever dies in here has noted nothing
        memory[LENGTH.size : LENGTH.size + len(body)] = body
        LENGTH.pack_into(memory, 0, len(body))

    def clear(self) -> None:
        """Nothing is in hand."""
        LENGTH.pack_into(self._memory, 0, 0)

    def read(self) -> dict[Partition, int]:
        """What the note says; nothing where it is empty or is no note."""
        (length,) = LENGTH.unpack_from(self._memory)
        body = self._memory[LENGTH.size : LENGTH.size + min(length, SIZE)]
        try:
            rows = msgspec.json.decode(body, type=list[tuple[str, int, int]])
        except msgspec.DecodeError:
            return {}
        return {(topic, partition): end for topic, partition, end in rows}


def path_of(cache: Path, owner: str) -> Path:
    """Where the note of a scorer lies, beside the versions in its cache."""
    return cache / "in-hand" / owner


def _file(path: Path) -> mmap.mmap:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in READ_ONLY:
            return mmap.mmap(-1, SIZE)
        raise
    try:
        os.posix_fallocate(opened, 0, SIZE)  # a disk that is full later must not end who writes the note
        return mmap.mmap(opened, SIZE)
    except OSError as error:
        if error.errno in NO_ROOM:
            return mmap.mmap(-1, SIZE)
        raise
    finally:
        os.close(opened)
