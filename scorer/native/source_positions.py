"""Where the events of score records stand, found for many records at once; source_positions.c says what is certain."""

import numpy as np
from numpy.typing import NDArray

from scorer.native.byte_columns import ByteColumn, address
from scorer.native.load import native_library

UNCERTAIN_PLACE = -1
Numbers = NDArray[np.int64]


def places(records: ByteColumn, rows: Numbers) -> tuple[Numbers, Numbers] | None:
    """For each of these rows, (n,): the first of them, by its place in `rows`, whose event stands in the same topic and
    partition, or UNCERTAIN_PLACE; and the offset of the event, any number where the place is uncertain. PADDING follows the
    text. None where there is no native part."""
    library = native_library().library
    if library is None:
        return None
    count = len(rows)
    starts, ends, firsts, offsets = (
        records.starts[rows],
        records.ends[rows],
        np.empty(count, np.int64),
        np.empty(count, np.int64),
    )
    where = (address(column) for column in (starts, ends))
    library.places_scan(address(records.text), *where, count, address(firsts), address(offsets))
    return firsts, offsets
