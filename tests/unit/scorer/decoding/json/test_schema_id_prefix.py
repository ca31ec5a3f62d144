"""JSON behind the prefix of Confluent's serialiser for JSON Schema: the same events as without it."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from model_registry.package.json_path import parse
from scorer.dead_letters.reasons import Reason
from scorer.decoding.json.arrays import JsonArrayDecoder, JsonEnvelopeDecoder
from scorer.decoding.json.decoder import JsonDecoder, JsonIdReader
from scorer.decoding.json.passthrough import JsonPassthrough
from scorer.decoding.types import Decoder
from tests.unit.scorer.decoding.formats import assert_same, signature_of, texts

FLAT = signature_of(("x", "float32", ["a", "b"]))
PREFIX = b"\0\0\0\0\x07"


def objects(count: int) -> list[bytes]:
    return [json.dumps({"id": f"e{n}", "a": n, "b": 0.5}).encode() for n in range(count)]


def arrays(count: int) -> list[bytes]:
    return [json.dumps([n, 0.5]).encode() for n in range(count)]


def envelopes(count: int) -> list[bytes]:
    return [json.dumps({"id": f"e{n}", "features": [n, 0.5]}).encode() for n in range(count)]


FORMATS: list[tuple[Decoder, Any]] = [
    (JsonDecoder(FLAT, "id", 1_000), objects),
    (JsonArrayDecoder(FLAT, 1_000), arrays),
    (JsonEnvelopeDecoder(FLAT, "id", 1_000), envelopes),
]


@pytest.mark.parametrize("prefix", [PREFIX, b"\0\0\0\0\0\0\0\0\x07"])
@pytest.mark.parametrize(("decoder", "events"), FORMATS, ids=["json", "json-array", "json-envelope"])
@pytest.mark.parametrize("prefixed", [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [0], [9], [1, 2, 3, 4, 5, 6]])
def test_events_with_and_without_a_prefix_are_equal(
    prefix: bytes, decoder: Decoder, events: Any, prefixed: Sequence[int]
) -> None:
    without_prefix = events(10)
    values = [prefix + value if row in prefixed else value for row, value in enumerate(without_prefix)]
    for batch in (values, texts(values)):
        decoded = decoder.decode(batch)
        assert decoded.rows == list(range(10))
        assert_same(decoded, decoder.decode(without_prefix), 10)


@pytest.mark.parametrize("value", [b"\0", b"\0\0\0\0", PREFIX, PREFIX + b"\2a", PREFIX + PREFIX + b"{}"])
def test_a_prefix_without_json_is_malformed(value: bytes) -> None:
    [valid_event] = objects(1)
    decoded = JsonDecoder(FLAT, "id", 1_000).decode([valid_event, value])
    assert decoded.rows == [0]
    assert decoded.rejected[1].reason is Reason.MALFORMED


@pytest.mark.parametrize(("decoder", "events"), FORMATS, ids=["json", "json-array", "json-envelope"])
@pytest.mark.parametrize("value", [b"\0", PREFIX, PREFIX + b"\2a", PREFIX + PREFIX, b'\0"id": "e"'])
@pytest.mark.parametrize("count", [1, 20])
def test_an_invalid_event_at_the_start_of_a_batch_has_the_error_of_a_later_one(
    decoder: Decoder, events: Any, value: bytes, count: int
) -> None:
    valid = events(count)
    doubled = PREFIX + PREFIX + valid[0]
    for invalid in (value, doubled):
        for batch in ([invalid, *valid], texts([invalid, *valid])):
            first = decoder.decode(batch)
            assert first.rows == list(range(1, count + 1))
            last = decoder.decode([*valid, invalid])
            assert (first.rejected[0].reason, str(first.rejected[0])) == (
                last.rejected[count].reason,
                str(last.rejected[count]),
            )


def test_ids_and_carried_fields_are_read_behind_a_prefix() -> None:
    [value] = objects(1)
    assert JsonIdReader("id").read_id(PREFIX + value) == "e0"
    assert JsonPassthrough([parse("b")]).values(PREFIX + value) == [0.5]
