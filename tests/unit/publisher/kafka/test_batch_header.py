from publisher.kafka.batch_header import BatchHeader, headers_in
from tests.chaos.fuzz.raw import RawRecord, encoded

ZSTD = 4
THREE = encoded([RawRecord(b"k", b"v" * 100)] * 3, ZSTD)


def test_the_header_of_a_compressed_batch_is_located_among_other_bytes() -> None:
    data = b"\x02" * 40 + bytes(100) + THREE + b"\x02\0\0\0\0\0\x04" + bytes(100)
    assert list(headers_in(data, 2)) == [BatchHeader(0, 2, "zstd", len(THREE), 3)]


def test_a_batch_without_the_offset_is_ignored() -> None:
    assert list(headers_in(THREE, 3)) == []


def test_an_uncompressed_or_incomplete_batch_is_ignored() -> None:
    assert list(headers_in(encoded([RawRecord(b"k", b"v")], 0), 0)) == []
    assert list(headers_in(THREE[:-1], 0)) == []
