"""The reader of JSON: its limits, and `UnreadableDocument` as its only error."""

from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_registry.untrusted_input import json_documents
from model_registry.untrusted_input.json_documents import ANY, MAX_DEPTH, DocumentDecoder, Int64, UnreadableDocument
from tests.support import hostile_records


class Record(msgspec.Struct):
    """A closed type: it needs no scan."""

    number: Int64 = 0
    names: list[str] = []


class Loose(msgspec.Struct):
    """A type with untyped parts, and an unbounded integer."""

    number: int = 0
    more: Any = None


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_depth_is_limited(opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"
    inner = b"0"
    assert ANY.decode(opening * MAX_DEPTH + inner + closing * MAX_DEPTH)
    with pytest.raises(UnreadableDocument, match=f"more than {MAX_DEPTH} levels"):
        ANY.decode(opening * (MAX_DEPTH + 1) + inner + closing * (MAX_DEPTH + 1))


def test_brackets_in_strings_and_beside_each_other_are_no_depth() -> None:
    text = '[{\\"' * 500
    assert ANY.decode(orjson.dumps([text, *([[]] * 500), *([{"a": "]"}] * 500)]))[0] == text


@pytest.mark.parametrize("literal", [b"9" * 400, b"-9223372036854775809", b"18446744073709551616", b"9" * 5_000])
def test_an_integer_beyond_64_bits_is_no_value(literal: bytes) -> None:
    with pytest.raises(UnreadableDocument):
        ANY.decode(b'{"a":[%b]}' % literal)
    with pytest.raises(UnreadableDocument):
        DocumentDecoder(Loose).decode(b'{"number":%b}' % literal)
    with pytest.raises(UnreadableDocument):
        DocumentDecoder(Record).decode(b'{"number":%b}' % literal)


@pytest.mark.parametrize(
    "text", [b"-9223372036854775808", b"18446744073709551615", b"0." + b"1" * 40, b"1" * 40 + b".5", b"1" * 40 + b"e3"]
)
def test_numbers_of_many_digits_within_64_bits_are_values(text: bytes) -> None:
    assert ANY.decode(text) == orjson.loads(text)
    assert ANY.decode(b'"%b"' % text) == text.decode()


def test_an_unknown_field_does_not_break_the_reader() -> None:
    deep = hostile_records.LITERALS["deep array"]
    with pytest.raises(UnreadableDocument):
        DocumentDecoder(Record).decode(b'{"another":%b}' % deep)


def test_size_is_limited() -> None:
    assert json_documents.decode(b'"1234"', str, max_bytes=6) == "1234"
    with pytest.raises(UnreadableDocument, match="more than 5 bytes"):
        json_documents.decode(b'"1234"', str, max_bytes=5)


def test_no_document_is_unreadable() -> None:
    for data in (None, b"", "", b" "):
        with pytest.raises(UnreadableDocument):
            ANY.decode(data)
        assert ANY.decode_or_none(data) is None


def test_a_message_is_short_and_holds_no_value() -> None:
    with pytest.raises(UnreadableDocument) as raised:
        DocumentDecoder(Record).decode(b'{"number":"%b"}' % (b"secret" * 1_000))
    assert "secret" not in str(raised.value)
    assert len(str(raised.value)) <= json_documents.SHOWN


@given(
    hostile_records.hostile(orjson.dumps({"number": 1, "names": ["a"], "more": {"a": [1]}})),
    st.sampled_from([Record, Loose, dict, list]),
)
@settings(max_examples=300, deadline=None)
def test_a_read_document_can_be_written_and_any_other_is_unreadable(value: bytes | None, type_: type[Any]) -> None:
    try:
        decoded = json_documents.decode(value, type_)
    except UnreadableDocument:
        return
    encoded = msgspec.json.encode(decoded)
    orjson.dumps(msgspec.to_builtins(decoded))
    assert decoded == json_documents.decode(encoded, type_)


@given(hostile_records.values())
@settings(deadline=None)
def test_the_lenient_reader_raises_the_same_error(value: bytes | None) -> None:
    try:
        json_documents.decode_lenient(value or b"")
    except UnreadableDocument:
        return


@pytest.mark.parametrize("text", [b"NaN", b"[1e999]", b"9" * 400])
def test_the_lenient_reader_accepts_all_json_of_python(text: bytes) -> None:
    assert json_documents.decode_lenient(text) is not None
