"""The header of a record batch (magic 2), found in bytes of memory. Pure.

librdkafka gives no access to it: for a batch that cannot be decompressed it reports at most the first offset.
"""

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
CODEC_BITS = 0x07
HEADER = struct.Struct(">qiibIhiqqqhii")
BEFORE_LENGTH = 12  # bytes of a batch that its own length does not count
MAGIC_AT = 16
MAGIC = re.compile(rb"\x02(?=[\s\S]{4}\x00[\x01-\x3f])")  # magic, checksum, and attributes with a codec


class BatchHeader(NamedTuple):
    """A compressed batch: its first and last offset, its codec, its bytes in the log, and its number of records."""

    first: int
    last: int
    codec: str
    size: int
    records: int


def headers_in(data: bytes, offset: int) -> Iterator[BatchHeader]:
    """Yield everything in `data` that looks like the header of a complete compressed batch with this offset."""
    for match in MAGIC.finditer(data):
        at = match.start() - MAGIC_AT
        if at < 0 or at + HEADER.size > len(data):
            continue
        first, length, _, _, _, attributes, last_delta, _, _, _, _, _, records = HEADER.unpack_from(data, at)
        codec = CODECS.get(attributes & CODEC_BITS)
        size = BEFORE_LENGTH + length
        is_complete = HEADER.size < size <= len(data) - at
        if codec and is_complete and 0 <= first <= offset <= first + last_delta and 1 <= records <= last_delta + 1:
            yield BatchHeader(first, first + last_delta, codec, size, records)
