"""A snapshot on disk: one Parquet file per partition, `events/TOPIC/PARTITION.parquet` and `labels/...`, and `manifest.json`.

The same records give the same bytes: rows in order of offset, row groups cut by the sizes of the records, fixed settings. The
column `headers` is a map as written, or null if a record has no headers or they cannot be read.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
from confluent_kafka import Message
from numpy.typing import NDArray
from pyarrow import compute, parquet

from model_registry.untrusted_input import documents
from publisher.errors import REFUSED, Fatal
from publisher.kafka.headers import headers_of
from publisher.kafka.partitions import Partition, Spans
from publisher.kafka.reader import PartitionBatch

Kind = Literal["events", "labels"]
KINDS: tuple[Kind, ...] = ("events", "labels")
MANIFEST = "manifest.json"
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("time_ms", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.map_(pa.string(), pa.binary())),
    ]
)
SETTINGS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": False,
    "column_encoding": {"offset": "DELTA_BINARY_PACKED", "time_ms": "DELTA_BINARY_PACKED"},
    "write_statistics": False,
    "store_schema": False,
}
RECORD_BYTES = 32  # of memory per record in addition to its bytes
TAKEN = 1_000  # records whose bytes exist both here and in the client
READ_ROWS = 16_384


class Frozen(msgspec.Struct, frozen=True):
    """The ranges of a snapshot: `[from, to)` by topic and partition, as of `now_ms` (Unix ms).

    `ids` are the ids of the topics: a recreated topic has another one.
    """

    now_ms: int
    cluster_id: str
    ids: dict[str, str]
    events: dict[str, list[tuple[int, int]]]
    labels: dict[str, list[tuple[int, int]]]

    def spans(self, kind: Kind) -> Spans:
        """Return the range of every partition, in the order of the snapshot's rows."""
        stretches = self.events if kind == "events" else self.labels
        return {(topic, at): span for topic, spans in stretches.items() for at, span in enumerate(spans)}


class File(msgspec.Struct, frozen=True):
    """A file of a snapshot: its SHA-256 in hexadecimal, its number of records, and its size in bytes."""

    sha256: str
    records: int
    bytes: int


class Copied(msgspec.Struct, frozen=True):
    """A complete snapshot. `files` are by path below its folder; `digest` is the SHA-256 of their digests."""

    frozen: Frozen
    files: dict[str, File]
    digest: str

    def records(self, kind: Kind) -> int:
        return sum(file.records for path, file in self.files.items() if path.startswith(f"{kind}/"))


class PartitionFile:
    """Writes the records of one partition. `group_bytes` is its approximate memory."""

    def __init__(self, path: Path, group_bytes: int) -> None:
        self._path = path
        self._limit = group_bytes
        self._waiting: list[Any] = []
        self._size = 0
        self._writer: Any = None
        self.records = 0

    def add(self, batch: PartitionBatch) -> None:
        """Add records. Raises OSError."""
        for start in range(0, len(batch.offsets), TAKEN):
            self._add(batch.offsets[start : start + TAKEN], batch.messages[start : start + TAKEN])

    def _add(self, offsets: Sequence[int], messages: Sequence[Message]) -> None:
        times = [time for _, time in map(Message.timestamp, messages)]
        columns = [offsets, times, list(map(Message.key, messages)), list(map(Message.value, messages))]
        records = pa.record_batch([*columns, headers_of(messages)[0]], schema=SCHEMA)
        ends = self._size + np.cumsum(_sizes(records))
        start = 0
        while (stop := int(np.searchsorted(ends, self._limit)) + 1) <= len(ends):
            self._waiting.append(records.slice(start, stop - start))
            self._flush()
            start = stop
            ends = ends - ends[stop - 1]
        self._waiting.append(records.slice(start))
        self._size = int(ends[-1])

    def close(self) -> None:
        """Write the last row group and close the file. Raises OSError."""
        self._flush()
        if self._writer is not None:
            self._writer.close()

    def _flush(self) -> None:
        """Write the buffered row group at once: a page ends where a piece ends."""
        table = pa.Table.from_batches(self._waiting, SCHEMA).combine_chunks()
        self._waiting = []
        if not len(table):
            return
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = parquet.ParquetWriter(self._path, SCHEMA, **SETTINGS)
        self._writer.write_table(table, row_group_size=len(table))
        self.records += len(table)


def _sizes(records: Any) -> NDArray[np.int64]:
    """Return (n,): the bytes of each record in memory."""
    sizes = RECORD_BYTES + _lengths(records["key"]) + _lengths(records["value"])
    headers = records["headers"]
    if headers.null_count < len(headers):
        upto = np.concatenate([[0], np.cumsum(_lengths(headers.keys) + _lengths(headers.items))])
        sizes += np.diff(upto[headers.offsets.to_numpy()])
    return sizes


def _lengths(texts: Any) -> NDArray[np.int64]:
    """Return (n,): the bytes of each text; 0 for null."""
    lengths: NDArray[np.int64] = compute.fill_null(compute.binary_length(texts), 0).to_numpy().astype(np.int64)
    return lengths


def path_of(kind: Kind, partition: Partition) -> str:
    """Return the path of a partition's file below the folder of the snapshot."""
    return f"{kind}/{partition[0]}/{partition[1]}.parquet"


def finish(folder: Path, frozen: Frozen, records: dict[str, int]) -> Copied:
    """Write the manifest of closed files, given the number of records by path. Raises OSError."""
    files = {path: File(_sha256(folder / path), count, (folder / path).stat().st_size) for path, count in records.items()}
    copied = Copied(frozen, files, digest_of(files))
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(copied), indent=1))
    return copied


def digest_of(files: Mapping[str, File]) -> str:
    """Return the digest of a snapshot with these files by path."""
    listed = "".join(f"{file.sha256}  {path}\n" for path, file in sorted(files.items()))
    return f"sha256:{hashlib.sha256(listed.encode()).hexdigest()}"


def verified(folder: Path, frozen: Frozen) -> Copied:
    """Return the snapshot of this freeze. Raises Fatal (3) if it is incomplete or of another freeze."""
    way_out = f"remove {folder}: it is copied again"
    try:
        copied = documents.decode((folder / MANIFEST).read_bytes(), Copied)
        damaged = [path for path, file in copied.files.items() if _sha256(folder / path) != file.sha256]
    except (OSError, documents.UnreadableDocument) as error:
        raise Fatal(f"the snapshot in {folder} cannot be read: {error}", way_out, REFUSED) from error
    if damaged:
        raise Fatal(f"{folder / damaged[0]} has changed since it was written: its digest differs", way_out, REFUSED)
    if copied.frozen != frozen:
        raise Fatal(f"the snapshot in {folder} belongs to another freeze", way_out, REFUSED)
    return copied


def batches(folder: Path, copied: Copied, kind: Kind) -> Iterator[tuple[Partition, dict[str, list[Any]]]]:
    """Yield the records partition by partition, in order of offset, as lists by column."""
    for partition in copied.frozen.spans(kind):
        if (path := path_of(kind, partition)) in copied.files:
            for batch in parquet.ParquetFile(folder / path).iter_batches(READ_ROWS):
                yield partition, batch.to_pydict()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
