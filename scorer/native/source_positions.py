"""Scanning of the source positions (topic, partition, offset) of many JSON score records in one call.

A position that the scanner may not have read correctly is marked as uncertain; source_positions.c documents when.
"""

import numpy as np
from numpy.typing import NDArray

from scorer.native.byte_columns import ByteColumn, address
from scorer.native.load import native_library

UNCERTAIN_PLACE = -1
Numbers = NDArray[np.int64]


def places(records: ByteColumn, rows: Numbers) -> tuple[Numbers, Numbers] | None:
    """Scan the source positions of score records. Return None if the native library is not loaded.

    Args:
        records: the records. PADDING must follow their text.
        rows: (n,) the indices of the records to scan.

    Returns:
        (firsts, offsets), two (n,) arrays. `firsts` has, for each record, the index in `rows` of the first record with the same
        topic and partition; UNCERTAIN_PLACE if the position may be wrong. `offsets` has the offset of each event.
    """
    library = native_library().library
    if library is None:
        return None
    count = len(rows)
    starts = records.starts[rows]
    ends = records.ends[rows]
    firsts = np.empty(count, np.int64)
    offsets = np.empty(count, np.int64)
    bounds = address(starts), address(ends)
    library.source_positions_scan(address(records.text), *bounds, count, address(firsts), address(offsets))
    return firsts, offsets
