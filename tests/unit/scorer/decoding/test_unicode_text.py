"""Half of a surrogate pair at any place of an event affects only this event, and never leaves the decoder."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.batch import Headers
from scorer.decoding.json.arrays import JsonArrayDecoder, JsonEnvelopeDecoder
from scorer.decoding.json.decoder import JsonDecoder, JsonIdReader
from scorer.decoding.key_header_fields import KeyHeaderDecoder
from scorer.decoding.raw_bytes_format import BytesDecoder
from scorer.decoding.record_metadata import ListedMetadata
from scorer.decoding.types import Decoded, Decoder
from scorer.decoding.unicode_text import REMEDY, check_text
from tests.unit.scorer.decoding.formats import MIXED, NESTED, nested, signature_of

LIMIT = 100_000
EVENT = {
    "id": "good",
    "a": 1,
    "count": 2,
    "word": "w",
    "vector": [1, 2, 3],
    "size": 3,
    "other": "o",
    "flag": True,
    "note": {"deep": ["n", 4]},
}
ELEMENTS = [1, None, None, 2, 3, "w", "o", True, [1, 2, 3]]
ENVELOPE = {"id": "good", "features": ELEMENTS, "note": {"deep": ["n", 4]}}
CLOUD_EVENT = {"specversion": "1.0", "type": "t", "source": "/s", "id": "good", "data": {"x": 1.5, "word": "w"}}
CLOUD_SIGNATURE = signature_of(
    ("x", "float32", [{"name": "x", "path": "data.x"}]), ("s", "string", [{"name": "word", "path": "data.word"}])
)
OPAQUE_TEXT = signature_of(("s", "string", [{"name": "text", "bytes": True}]))
WORDS, NUMBERS = (
    parse_signature(
        json.dumps(
            {
                "inputs": [{"tensor": "s", "dtype": dtype, "shape": [2, 2], "fields": [{"name": "table", "array": True}]}],
                "output": {"tensor": "y"},
            }
        )
    )
    for dtype in ("string", "float32")
)
DOCUMENTS: dict[str, tuple[Callable[[], Decoder], Any]] = {
    "objects": (lambda: JsonDecoder(MIXED, "id", LIMIT), EVENT),
    "nested objects": (lambda: JsonDecoder(NESTED, "meta.id", LIMIT), nested(EVENT)),
    "CloudEvents": (lambda: JsonDecoder(CLOUD_SIGNATURE, "id", LIMIT), CLOUD_EVENT),
    "arrays": (lambda: JsonArrayDecoder(MIXED, LIMIT), ELEMENTS),
    "envelopes": (lambda: JsonEnvelopeDecoder(MIXED, "id", LIMIT), ENVELOPE),
    "bytes": (lambda: JsonDecoder(OPAQUE_TEXT, "id", LIMIT), {"id": "good", "text": "YQ=="}),
    "flat tables": (lambda: JsonDecoder(WORDS, None, LIMIT), {"table": ["a", "b", "c", "d"]}),
    "nested tables": (lambda: JsonDecoder(WORDS, None, LIMIT), {"table": [["a", "b"], ["c", "d"]]}),
    "tables of numbers": (lambda: JsonDecoder(NUMBERS, None, LIMIT), {"table": [[1, 2], [3, 4]]}),
}
HALVES = [
    "\ud83d",
    "e42\ud83d0",
    "\ude00",
    "\ude00\ud83d",
    "\ud83d\ud83d",
    "\ud83d\\ude00",
    "é\udfff\x00",
    "x" * 500 + "\udbff",
]
TEXT_PLACES: list[tuple[str, tuple[str | int, ...], str]] = [
    ("objects", ("id",), "'id'"),
    ("objects", ("word",), "'word'"),
    ("objects", ("other",), "'other'"),
    ("nested objects", ("meta", "id"), "'input.id' (meta.id)"),
    ("nested objects", ("items", 1, "word"), "'word' (items[1].word)"),
    ("CloudEvents", ("id",), "'input.id' (id)"),
    ("CloudEvents", ("data", "word"), "'word' (data.word)"),
    ("arrays", (5,), "'word'"),
    ("envelopes", ("id",), "'id'"),
    ("envelopes", ("features", 6), "'other'"),
    ("bytes", ("text",), "'text'"),
    ("flat tables", ("table", 3), "'table'"),
    ("nested tables", ("table", 1, 0), "'table'"),
]
PREFIXES = {"plain": b"", "schema id": b"\0\0\0\0\7"}


def places(document: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield place
    if isinstance(document, dict | list):
        for step, part in document.items() if isinstance(document, dict) else enumerate(document):
            yield from places(part, (*place, step))


def with_value(document: Any, place: Sequence[str | int], value: Any) -> Any:
    if not place:
        return value
    copied = json.loads(json.dumps(document))
    part = copied
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    return copied


@st.composite
def values_with_halves(draw: st.DrawFn) -> Any:
    """Draw a JSON value that holds half of a surrogate pair: a text, or a text as an element, a member or a member's name."""
    text = draw(st.text(max_size=3)) + draw(st.sampled_from(HALVES)) + draw(st.text(max_size=3))
    shape = draw(st.sampled_from(["text", "text", "array", "name", "member", "decimal"]))
    shapes: dict[str, Any] = {
        "text": text,
        "array": [1, text],
        "name": {text: 1},
        "member": {"k": text},
        "decimal": {"scale": 1, "value": text},
    }
    return shapes[shape]


def assert_texts_are_valid(decoded: Decoded) -> None:
    """Assert that each text that leaves the decoder can be encoded, also the errors."""
    texts = [id_ for id_ in decoded.ids if isinstance(id_, str)]
    texts += [text for tensor in decoded.tensors.values() if tensor.dtype == object for text in tensor.ravel().tolist()]
    texts += map(str, decoded.rejected.values())
    for text in texts:
        text.encode()


@pytest.mark.parametrize("name", DOCUMENTS)
@given(data=st.data())
def test_half_of_a_surrogate_pair_at_any_place_affects_no_other_event(name: str, data: st.DataObject) -> None:
    create, document = DOCUMENTS[name]
    place = data.draw(st.sampled_from(list(places(document))))
    value = json.dumps(with_value(document, place, data.draw(values_with_halves()))).encode()
    valid = json.dumps(document).encode()
    before, after = data.draw(st.tuples(st.integers(0, 10), st.integers(0, 2)))
    decoded = create().decode([valid] * before + [value] + [valid] * after)
    assert sorted({*decoded.rows, *decoded.rejected}) == list(range(before + 1 + after))
    assert set(decoded.rejected) <= {before}
    assert {poison.reason for poison in decoded.rejected.values()} <= {
        Reason.NOT_UTF8,
        Reason.WRONG_TYPE,
        Reason.MISSING_FIELD,
    }
    assert_texts_are_valid(decoded)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(("name", "place", "field"), TEXT_PLACES)
def test_half_of_a_surrogate_pair_in_text_that_is_read_is_not_utf8(
    name: str, place: tuple[str | int, ...], field: str, prefix: str, half: str
) -> None:
    create, document = DOCUMENTS[name]
    value = PREFIXES[prefix] + json.dumps(with_value(document, place, half)).encode()
    poison = create().decode([value]).rejected[0]
    assert poison.reason is Reason.NOT_UTF8
    assert str(poison).startswith(f"field {field} contains ")
    assert str(poison).endswith(f" is half of a surrogate pair and not valid Unicode; {REMEDY}")


@pytest.mark.parametrize("half", HALVES)
def test_an_id_with_half_of_a_surrogate_pair_cannot_be_read(half: str) -> None:
    assert JsonIdReader("id").read_id(json.dumps({"id": half}).encode()) is None
    assert JsonIdReader("meta.id").read_id(json.dumps({"meta": {"id": half}}).encode()) is None


@pytest.mark.parametrize("source", ["header:h", "key"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "string"])
@pytest.mark.parametrize("text", [b'"\\ud83d"', b'["\\ud83d"]', b'{"\\ud83d": 1}', b"\xed\xa0\xbd"])
def test_a_header_or_a_key_with_half_of_a_surrogate_pair_affects_no_other_event(source: str, dtype: str, text: bytes) -> None:
    signature = signature_of(("x", dtype, [{"name": "f", "from": source}]))
    headers: list[Headers] = [[("h", value)] for value in (b"1", text, b"2")]
    metadata = ListedMetadata([b"1", text, b"2"], [0, 0, 0], headers)
    decoded = KeyHeaderDecoder(BytesDecoder(Signature((), ()), LIMIT), signature).decode([b"{}"] * 3, metadata)
    assert {0, 2} <= set(decoded.rows)
    assert {poison.reason for poison in decoded.rejected.values()} <= {Reason.NOT_UTF8, Reason.WRONG_TYPE}
    assert_texts_are_valid(decoded)


@pytest.mark.parametrize(
    ("text", "excerpt"),
    [
        ("e42\ud83d0", r"'e42\ud83d0'"),
        ("a" * 41 + "\ud83d" + "b" * 41, "..." + repr("a" * 40 + "\ud83d" + "b" * 40) + "..."),
    ],
)
def test_the_error_shows_the_invalid_character_in_its_context(text: str, excerpt: str) -> None:
    expected = rf"field 'id' contains {excerpt}: '\ud83d' is half of a surrogate pair and not valid Unicode; " + REMEDY
    with pytest.raises(Poison) as error:
        check_text("'id'", text)
    assert str(error.value) == expected


def test_valid_text_and_values_without_text_are_accepted() -> None:
    for value in ("", "é\U0001f600\x00", 1, 1.5, None, True, ["a", [2, None]], {"k": "v"}):
        check_text("'id'", value)
