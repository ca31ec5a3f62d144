"""Rows of float32: what is wrong with one, and with a signature."""

import math

import numpy as np
import pytest

from scorer.events.decoder import Reason, Unsuited
from scorer.events.float32 import Float32Decoder
from tests.unit.scorer.events.formats import MIXED, NUMBERS, WIDTH


def row(*first: float) -> bytes:
    return np.array([*first, *[0.5] * WIDTH], "<f4").tobytes()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, Reason.TOMBSTONE),
        (b"", Reason.MALFORMED),
        (row(1, 2, 3) + b"\0", Reason.MALFORMED),
        (row(1, 2, 3) * 10, Reason.OVERSIZE),
        (row(math.nan, 2, 3), Reason.NOT_FINITE),
        (row(1, 2, math.inf), Reason.NOT_FINITE),
    ],
)
def test_a_bad_row_is_named_and_its_neighbours_go_on(value: bytes | None, reason: Reason) -> None:
    decoded = Float32Decoder(NUMBERS, 1_000).decode([row(1, math.nan, 3), value, row(4, 5, 6)])
    assert decoded.rows == [0, 2]
    assert decoded.rejected[1].reason is reason
    assert decoded.tensors["again"].tolist() == [[3, 1], [6, 4]]


def test_a_signature_that_is_not_of_floats_is_refused() -> None:
    with pytest.raises(Unsuited, match="int32"):
        Float32Decoder(MIXED, 1_000)
