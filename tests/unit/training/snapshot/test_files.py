"""The files of a snapshot: the same records give the same bytes in any batches, and incomplete files are refused."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Message

from publisher.errors import REFUSED, Fatal
from publisher.kafka.headers import Headers
from publisher.kafka.reader import PartitionBatch
from training.snapshot.files import MANIFEST, Copied, Frozen, PartitionFile, batches, finish, path_of, verified

PLACE = ("in", 0)
GROUP_BYTES = 20_000


def frozen(stop: int, now_ms: int = 1) -> Frozen:
    return Frozen(now_ms, "cluster", {"in": "id", "labels": "id"}, {"in": [(0, stop)]}, {"labels": [(0, 0)]})


def messages(count: int) -> list[Message]:
    chance = random.Random(1)
    records = []
    for n in range(count):
        key = None if n % 3 else b"k%d" % n
        value = None if n % 50 == 0 else chance.randbytes(chance.choice([0, 10, 300, 30_000 if n % 70 == 0 else 50]))
        headers: Headers = [("ce_id", b"%d" % n), ("ce_id", None)] if n % 4 == 0 else [] if n % 4 == 1 else None
        records.append(Message("in", 0, n, key, value, headers, timestamp=(1, n * 10)))
    return records


def cut(records: Sequence[Message], max_records: int, seed: int) -> Iterator[PartitionBatch]:
    chance, start = random.Random(seed), 0
    while start < len(records):
        stop = start + chance.randint(1, max_records)
        yield PartitionBatch(PLACE, [message.offset() or 0 for message in records[start:stop]], list(records[start:stop]))
        start = stop


def written(folder: Path, incoming: Iterator[PartitionBatch], stop: int, group_bytes: int = GROUP_BYTES) -> Copied:
    path = path_of("events", PLACE)
    file = PartitionFile(folder / path, group_bytes)
    for batch in incoming:
        file.add(batch)
    file.close()
    return finish(folder, frozen(stop), {path: file.records})


def test_the_sizes_of_batches_do_not_change_the_files_and_records_are_read_back(tmp_path: Path) -> None:
    records = messages(2_000)
    copies = [
        written(tmp_path / str(max_records), cut(records, max_records, max_records), 2_000)
        for max_records in (1, 7, 100, 2_000)
    ]
    assert len({copied.digest for copied in copies}) == 1
    assert copies[0].records("events") == 2_000
    rows = [row for _, batch in batches(tmp_path / "7", copies[1], "events") for row in zip(*batch.values(), strict=True)]
    assert rows == [(m.offset(), m.timestamp()[1], m.key(), m.value(), m.headers()) for m in records]


def test_the_sizes_of_batches_do_not_change_the_pages_of_a_row_group(tmp_path: Path) -> None:
    records = [Message("in", 0, n, None, b"%d" % n * 300, timestamp=(1, n)) for n in range(6_000)]
    copies = [
        written(tmp_path / str(max_records), cut(records, max_records, max_records), 6_000, 16 << 20)
        for max_records in (37, 700, 6_000)
    ]
    assert len({copied.digest for copied in copies}) == 1


def test_one_other_byte_is_another_digest(tmp_path: Path) -> None:
    first = written(tmp_path / "a", cut([Message("in", 0, 0, b"k", b"value", timestamp=(1, 5))], 1, 1), 1)
    other = written(tmp_path / "b", cut([Message("in", 0, 0, b"k", b"valuE", timestamp=(1, 5))], 1, 1), 1)
    assert first.digest != other.digest


def test_buffered_records_are_bounded_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, largest = PartitionFile(tmp_path / "a", GROUP_BYTES), 0
    flush = file._flush

    def measure_and_flush() -> None:
        nonlocal largest
        largest = max(largest, sum(batch.nbytes for batch in file._waiting))
        flush()

    monkeypatch.setattr(file, "_flush", measure_and_flush)
    for batch in cut([Message("in", 0, n, None, b"v" * 900, timestamp=(1, n)) for n in range(500)], 300, 1):
        file.add(batch)
    file.close()
    assert GROUP_BYTES // 2 < largest < 2 * GROUP_BYTES


def test_a_snapshot_is_verified_before_it_is_read(tmp_path: Path) -> None:
    copied = written(tmp_path, cut(messages(100), 10, 1), 100)
    assert verified(tmp_path, frozen(100)) == copied
    with pytest.raises(Fatal, match="belongs to another run") as raised:
        verified(tmp_path, frozen(100, now_ms=2))
    assert raised.value.exit_code == REFUSED
    path = tmp_path / path_of("events", PLACE)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(Fatal, match=r"0\.parquet has changed since it was written") as raised:
        verified(tmp_path, frozen(100))
    assert raised.value.hint == f"remove {tmp_path}, and run again: the snapshot is then copied again"
    path.unlink()
    with pytest.raises(Fatal, match="cannot be read"):
        verified(tmp_path, frozen(100))
    (tmp_path / MANIFEST).write_bytes(b"{")
    with pytest.raises(Fatal, match="cannot be read"):
        verified(tmp_path, frozen(100))
