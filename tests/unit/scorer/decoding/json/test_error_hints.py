"""Mistakes of producers of JSON: the dead letter names the cause and the remedy."""

import gzip
import json
from typing import Any

import pytest

from model_registry.package.signature_schema import parse_signature
from scorer.dead_letters.reasons import Reason
from scorer.decoding.json.arrays import JsonArrayDecoder
from scorer.decoding.json.decoder import JsonDecoder

EVENT: dict[str, Any] = {"a": 1.0, "b": 2.0}
SIGNATURE = parse_signature(
    json.dumps({"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a", "b"]}], "output": {"tensor": "y"}})
)
TEXT = json.dumps(EVENT).encode()


@pytest.mark.parametrize(
    ("value", "reason", "remedy"),
    [
        (str(EVENT).encode(), Reason.MALFORMED, "Python's str() does not write JSON; write json.dumps(event)"),
        (b'{"a": None, "b": 2.0}', Reason.MALFORMED, "Python's str() does not write JSON"),
        (b'{"a": 1.0, "b": nan}', Reason.MALFORMED, "Python's str() does not write JSON"),
        (json.dumps(TEXT.decode()).encode(), Reason.WRONG_TYPE, "encoded twice"),
        (TEXT + b"\n" + TEXT, Reason.MALFORMED, "a record is one event"),
        (gzip.compress(TEXT, mtime=0), Reason.NOT_UTF8, "the value is gzip; write JSON, and leave compression to the producer"),
        (b"\0\0\0\0\7\x02" + b"\x9a\x99\x99\x3f" * 2, Reason.NOT_UTF8, "begins with a schema's id"),
        (b"\0\0\0\0\7\x02abcd", Reason.MALFORMED, "input.format: avro or protobuf"),
    ],
)
def test_a_usual_mistake_is_explained(value: bytes, reason: Reason, remedy: str) -> None:
    decoded = JsonDecoder(SIGNATURE, None, 1_000).decode([TEXT, value, TEXT])
    assert decoded.rows == [0, 2]
    assert decoded.rejected[1].reason is reason
    assert remedy in str(decoded.rejected[1])


def test_an_array_that_was_encoded_twice_is_explained() -> None:
    poison = JsonArrayDecoder(SIGNATURE, 1_000).decode([b'"[1, 2]"']).rejected[0]
    assert (poison.reason, "encoded twice" in str(poison)) == (Reason.WRONG_TYPE, True)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b'{"a": ', "not JSON: Expecting value: line 1 column 7 (char 6)"),
        (b"3", "the event is a JSON int, not an object"),
        (b'"words"', "the event is a JSON str, not an object"),
        (b'{"a": "\xff"}', r"""the value is b'{"a": "\xff"}', which is not UTF-8; write text in UTF-8"""),
    ],
)
def test_other_mistakes_are_not_guessed(value: bytes, message: str) -> None:
    assert str(JsonDecoder(SIGNATURE, None, 1_000).decode([value]).rejected[0]) == message
