"""Search bytes of memory for the header of a record batch (magic 2). Pure.

librdkafka gives no access to this header. For a batch that cannot be decompressed it reports at most the first offset.
"""

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
CODEC_BITS = 0x07
HEADER = struct.Struct(">qiibIhiqqqhii")
BEFORE_LENGTH = 12  # bytes at the start of a batch that are not included in its field `batchLength`
MAGIC_AT = 16
MAGIC = re.compile(rb"\x02(?=[\s\S]{4}\x00[\x01-\x3f])")  # magic, checksum, and attributes with a codec


class BatchHeader(NamedTuple):
    """The header of a compressed batch.

    Attributes:
        first: the first offset of the batch.
        last: the last offset of the batch.
        codec: the name of the compression codec.
        size: the size of the batch in the log (bytes).
        records: the number of records.
    """

    first: int
    last: int
    codec: str
    size: int
    records: int


def headers_in(data: bytes, offset: int) -> Iterator[BatchHeader]:
    """Search `data` for complete compressed batches that contain this offset, and yield their headers.

    A result may be wrong, because other bytes, such as the value of a record, may look like a header.
    """
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
