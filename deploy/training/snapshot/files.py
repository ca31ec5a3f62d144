"""A snapshot on disk: one Parquet file per partition, `events/TOPIC/PARTITION.parquet` and `labels/...`, and `manifest.json`.

The same records give the same bytes: rows are in order of offset, a row group ends when its records reach a given size, and the
settings of the writer are fixed. The column `headers` has a map of each record's headers, or null if the record has no headers
or its headers cannot be read.
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

from model_registry.untrusted_input import json_documents
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
RECORD_BYTES = 32  # of memory per record, in addition to its key, value and headers
TAKEN = 1_000  # records converted at a time: their bytes are in memory twice, here and in the Kafka client
READ_ROWS = 16_384


class Frozen(msgspec.Struct, frozen=True):
    """The offset ranges `[from, to)` of a snapshot, determined at `now_ms` (Unix ms).

    `events` and `labels` map each topic to the ranges of its partitions, in order of partition. `ids` maps each topic to its
    topic id, which changes if the topic is recreated.
    """

    now_ms: int
    cluster_id: str
    ids: dict[str, str]
    events: dict[str, list[tuple[int, int]]]
    labels: dict[str, list[tuple[int, int]]]

    def spans(self, kind: Kind) -> Spans:
        """Return the offset range of each partition of the events or labels, in the order in which the snapshot is read."""
        stretches = self.events if kind == "events" else self.labels
        return {(topic, at): span for topic, spans in stretches.items() for at, span in enumerate(spans)}


class File(msgspec.Struct, frozen=True):
    """A file of a snapshot: its SHA-256 in hexadecimal, its number of records, and its size in bytes."""

    sha256: str
    records: int
    bytes: int


class Copied(msgspec.Struct, frozen=True):
    """A complete snapshot on disk, as `manifest.json` describes it.

    `files` maps the path of each file, relative to the folder of the snapshot, to its digest and size. `digest` is the SHA-256
    of the digests and paths of all files.
    """

    frozen: Frozen
    files: dict[str, File]
    digest: str

    def records(self, kind: Kind) -> int:
        return sum(file.records for path, file in self.files.items() if path.startswith(f"{kind}/"))


class PartitionFile:
    """Writes the records of one partition to a Parquet file.

    `group_bytes` is the approximate size of a row group, which is held in memory until it is written.
    """

    def __init__(self, path: Path, group_bytes: int) -> None:
        self._path = path
        self._limit = group_bytes
        self._waiting: list[Any] = []
        self._size = 0
        self._writer: Any = None
        self.records = 0

    def add(self, batch: PartitionBatch) -> None:
        """Add the records of a batch, and write the row groups that are full. Raises OSError."""
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
        """Write the buffered records as one row group.

        The buffered pieces are first combined to one piece. Otherwise a Parquet page would end where a piece ends, and the same
        records could give different bytes.
        """
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
    """Return the number of bytes of each record in memory, (n,)."""
    sizes = RECORD_BYTES + _lengths(records["key"]) + _lengths(records["value"])
    headers = records["headers"]
    if headers.null_count < len(headers):
        upto = np.concatenate([[0], np.cumsum(_lengths(headers.keys) + _lengths(headers.items))])
        sizes += np.diff(upto[headers.offsets.to_numpy()])
    return sizes


def _lengths(texts: Any) -> NDArray[np.int64]:
    """Return the number of bytes of each text, (n,); 0 for null."""
    lengths: NDArray[np.int64] = compute.fill_null(compute.binary_length(texts), 0).to_numpy().astype(np.int64)
    return lengths


def path_of(kind: Kind, partition: Partition) -> str:
    """Return the path of a partition's file below the folder of the snapshot."""
    return f"{kind}/{partition[0]}/{partition[1]}.parquet"


def finish(folder: Path, frozen: Frozen, records: dict[str, int]) -> Copied:
    """Write the manifest of a snapshot whose files are closed. Raises OSError.

    `records` has the number of records of each file by its path.
    """
    files = {path: File(_sha256(folder / path), count, (folder / path).stat().st_size) for path, count in records.items()}
    copied = Copied(frozen, files, digest_of(files))
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(copied), indent=1))
    return copied


def digest_of(files: Mapping[str, File]) -> str:
    """Return the digest of a snapshot; `files` has its files by path."""
    listed = "".join(f"{file.sha256}  {path}\n" for path, file in sorted(files.items()))
    return f"sha256:{hashlib.sha256(listed.encode()).hexdigest()}"


def verified(folder: Path, frozen: Frozen) -> Copied:
    """Read the snapshot in a folder and verify the digests of its files.

    Raises Fatal (exit code 3) if a file is missing or has changed, or if the snapshot has other ranges than `frozen`.
    """
    way_out = f"remove {folder}, and run again: the snapshot is then copied again"
    try:
        copied = json_documents.decode((folder / MANIFEST).read_bytes(), Copied)
        damaged = [path for path, file in copied.files.items() if _sha256(folder / path) != file.sha256]
    except (OSError, json_documents.UnreadableDocument) as error:
        raise Fatal(f"the snapshot in {folder} cannot be read: {error}", way_out, REFUSED) from error
    if damaged:
        raise Fatal(f"{folder / damaged[0]} has changed since it was written: its digest differs", way_out, REFUSED)
    if copied.frozen != frozen:
        raise Fatal(f"the snapshot in {folder} belongs to another run", way_out, REFUSED)
    return copied


def batches(folder: Path, copied: Copied, kind: Kind) -> Iterator[tuple[Partition, dict[str, list[Any]]]]:
    """Yield the events or the labels of a snapshot in batches, each with its partition. A batch maps columns to values.

    Partitions follow one after another. The records of a partition are in order of offset.
    """
    for partition in copied.frozen.spans(kind):
        if (path := path_of(kind, partition)) in copied.files:
            for batch in parquet.ParquetFile(folder / path).iter_batches(READ_ROWS):
                yield partition, batch.to_pydict()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
