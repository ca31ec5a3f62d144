"""Keys, values, headers and commit metadata that the product never writes, for tests of every reader of such data.

`LITERALS` are JSON values as bytes, `BYTES` are whole record values. `damaged` puts a literal at any place of a valid document,
so that the rest of the document passes a reader's checks. `keys`, `headers` and `metadata` return strategies of Hypothesis.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

DEPTH = 5_000  # beyond every decoder's limit
SHALLOW = 500  # every decoder reads this depth, but no encoder writes it
MEGABYTE = 1 << 20
ESCAPES = "\x1b[31m\x1b]0;owned\x07\x9b2J\u202e[/bold][red]\r\n\x00"
_HOLE = "\x00hole\x00"

LITERALS: dict[str, bytes] = {
    "null": b"null",
    "true": b"true",
    "text": b'"text"',
    "empty text": b'""',
    "number": b"0",
    "negative": b"-1",
    "fraction": b"0.5",
    "array": b"[]",
    "object": b"{}",
    "deep array": b"[" * DEPTH + b"]" * DEPTH,
    "deep object": b'{"a":' * DEPTH + b"0" + b"}" * DEPTH,
    "shallow array": b"[" * SHALLOW + b"]" * SHALLOW,
    "shallow object": b'{"a":' * SHALLOW + b"0" + b"}" * SHALLOW,
    "int64 and one": str(2**63).encode(),
    "uint64 and one": str(2**64).encode(),
    "below int64": str(-(2**63) - 1).encode(),
    "400 digits": b"9" * 400,
    "5,000 digits": b"9" * 5_000,
    "beyond floats": b"1e999",
    "largest float": b"1.7976931348623157e308",
    "NaN": b"NaN",
    "infinity": b"-Infinity",
    "invalid UTF-8": b'"\xff\xfe"',
    "lone surrogate": b'"\\ud800"',
    "encoded surrogate": b'"\xed\xa0\x80"',
    "control characters": b'"\x01\x1b"',
    "escapes": json.dumps(ESCAPES).encode(),
    "raw escapes": json.dumps("\x9b2J\u202e", ensure_ascii=False).encode(),
    "a megabyte": b'"' + b"x" * MEGABYTE + b'"',
    "a megabyte of brackets": b"[" * MEGABYTE,
    "twice": b'{"a":1,"a":{"a":1,"a":2}}',
    "unclosed": b'{"a":[1,',
    "nothing": b"",
}
"""JSON values by name; some of them are not valid JSON."""

BYTES: dict[str, bytes | None] = {
    **LITERALS,
    "no value": None,
    "zero byte": b"\x00",
    "byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "gzip": b"\x1f\x8b\x08\x00",
    "Confluent's prefix": b"\x00\x00\x00\x00\x01\x02",
    "two documents": b"{}\n{}",
    "white space": b" \n\t ",
    "binary": bytes(range(256)),
}
"""Whole record values by name."""

KEYS: tuple[bytes | None, ...] = (
    None,
    b"",
    b"/",
    b"//",
    b"a/b/c/d",
    b"\xff",
    b"%FF",
    b"%C2%B2/a/b/%C2%B2",
    ESCAPES.encode(),
    b"_channel/",
    b"9" * 5_000,
    b"x" * 10_000,
)


def literals() -> st.SearchStrategy[bytes]:
    """Return a strategy of JSON values, hostile ones and random ones."""
    return st.sampled_from(list(LITERALS.values())) | _random_json()


def values() -> st.SearchStrategy[bytes | None]:
    """Return a strategy of record values that are not valid documents of the product."""
    return st.sampled_from(list(BYTES.values())) | _random_json() | st.binary(max_size=200)


def damaged(valid: bytes) -> st.SearchStrategy[bytes]:
    """Return a strategy of documents that differ from a valid one in one place, or have one more field."""
    document = json.loads(valid)
    return st.builds(_replaced, st.just(document), st.sampled_from(list(_places(document))), literals())


def hostile(valid: bytes) -> st.SearchStrategy[bytes | None]:
    """Return a strategy of record values for a reader of documents like `valid`: hostile, damaged and valid values."""
    return values() | damaged(valid) | st.just(valid)


def each_damaged(valid: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield a name and a document for every literal at every place of a valid document.

    Fault campaigns try all of these documents instead of random ones.
    """
    document = json.loads(valid)
    for place in _places(document):
        for name, literal in LITERALS.items():
            yield f"{name} at {'.'.join(map(str, place)) or 'the document'}", _replaced(document, place, literal)


def keys(*own: bytes) -> st.SearchStrategy[bytes | None]:
    """Return a strategy of record keys: hostile keys, and the keys `own`, which the product uses."""
    return st.sampled_from([*KEYS, *own]) | st.binary(max_size=50)


def headers(*names: str) -> st.SearchStrategy[list[tuple[str, str | bytes | None]]]:
    """Return a strategy of header lists with these names and others; names may repeat, and values may be null."""
    name = st.sampled_from([*names, "", ESCAPES, "x" * 1_000])
    value = st.none() | st.binary(max_size=50) | st.sampled_from([ESCAPES.encode(), b"9" * 5_000, *LITERALS.values()])
    return st.lists(st.tuples(name, value), max_size=8).map(list[tuple[str, str | bytes | None]])


def metadata(valid: str) -> st.SearchStrategy[str]:
    """Return a strategy of commit metadata like `valid`, as the text that a Kafka client returns."""
    return hostile(valid.encode()).map(lambda value: (value or b"").decode("utf-8", "replace"))


def _random_json() -> st.SearchStrategy[bytes]:
    leaf = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    tree = st.recursive(leaf, lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=5), part, max_size=3))
    return tree.map(lambda value: json.dumps(value).encode())


def _places(document: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of every value in a document, and of one additional field in every object."""
    yield place
    if isinstance(document, dict):
        yield (*place, "another")
        for name, part in document.items():
            yield from _places(part, (*place, name))
    elif isinstance(document, list):
        for at, part in enumerate(document):
            yield from _places(part, (*place, at))


def _replaced(document: Any, place: Sequence[str | int], literal: bytes) -> bytes:
    if not place:
        return literal
    copied = json.loads(json.dumps(document))
    part = copied
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = _HOLE
    return json.dumps(copied).encode().replace(json.dumps(_HOLE).encode(), literal)
