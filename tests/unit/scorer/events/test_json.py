"""What is wrong with a JSON object is named, and one bad event never fails its batch."""

import json
import math
from typing import Any

import numpy as np
import pytest

from scorer.events.decoder import Decoded, Reason
from scorer.events.json.objects import JsonDecoder
from tests.unit.scorer.events.formats import MIXED

GOOD = {"id": "1", "a": 1.0, "count": 2, "word": "w", "vector": [1, 2, 3.5]}


def decoder(max_bytes: int = 1_000) -> JsonDecoder:
    return JsonDecoder(MIXED, "id", max_bytes)


def encode(**changes: Any) -> bytes:
    return json.dumps({name: value for name, value in (GOOD | changes).items() if value is not ...}).encode()


def rows(decoded: Decoded) -> list[list[Any]]:
    columns = [tensor.tolist() for tensor in decoded.tensors.values()]
    return [[column[row] for column in columns] for row in range(len(decoded.rows))]


BAD: list[tuple[bytes | None, Reason]] = [
    (None, Reason.TOMBSTONE),
    (b"", Reason.MALFORMED),
    (b"{", Reason.MALFORMED),
    (b"[" * 5_000, Reason.MALFORMED),
    (b"[1]", Reason.WRONG_TYPE),
    (b"null", Reason.WRONG_TYPE),
    (encode()[:-1] + b', "z": "\xff"}', Reason.NOT_UTF8),
    (encode(a=...), Reason.MISSING_FIELD),
    (encode(a=None), Reason.MISSING_FIELD),
    (encode(vector=None), Reason.MISSING_FIELD),
    (encode(a="1"), Reason.WRONG_TYPE),
    (encode(a=True), Reason.WRONG_TYPE),
    (encode(word=3), Reason.WRONG_TYPE),
    (encode(count=1.5), Reason.WRONG_TYPE),
    (encode(vector=[1, 2]), Reason.WRONG_TYPE),
    (encode(vector=[1, 2, "3"]), Reason.WRONG_TYPE),
    (encode(id=[1]), Reason.WRONG_TYPE),
    (encode(flag=1), Reason.WRONG_TYPE),
    (encode(count=2**31), Reason.OUT_OF_RANGE),
    (encode(a=math.nan), Reason.NOT_FINITE),
    (encode(c=math.nan), Reason.NOT_FINITE),
    (encode(b=math.inf), Reason.NOT_FINITE),
    (encode(a=1e39), Reason.NOT_FINITE),
    (encode(vector=[1, 2, math.nan]), Reason.NOT_FINITE),
    (encode(padding="x" * 10_000), Reason.OVERSIZE),
]


@pytest.mark.parametrize(("value", "reason"), BAD, ids=lambda v: v.value if isinstance(v, Reason) else None)
def test_a_bad_event_is_named_and_its_neighbours_go_on(value: bytes | None, reason: Reason) -> None:
    decoded = decoder(6_000).decode([encode(id="left"), value, encode(id="right")])
    assert decoded.rows == [0, 2]
    assert decoded.ids == ["left", "right"]
    assert decoded.rejected[1].reason is reason
    assert str(decoded.rejected[1])
    assert rows(decoded) == rows(decoder().decode([encode(), encode()])) or np.isnan(decoded.tensors["x"][:, 1]).all()


def test_nan_stands_for_missing_where_the_signature_knows_missing() -> None:
    decoded = decoder().decode([encode(b=math.nan)])
    assert decoded.rows == [0]
    assert math.isnan(decoded.tensors["x"][0, 1])
