"""Reads untrusted JSON. Every fault of a document raises `UnreadableDocument` and no other exception.

The depth, the size and the integers of a document are limited.
"""

# msgspec and the standard library raise RecursionError for a document of about 1,000 nested levels. A value of some hundred
# levels can be decoded, but code that encodes or compares the value later fails: orjson encodes at most 254 levels. The reader
# therefore limits the depth, the size and the integers of a document before it returns a value.
#
# The reader scans a document for depth and integers before it decodes the document. It leaves out this scan for a type whose
# parts all have types, whose integers all have bounds, and whose nesting is limited. For such a type, msgspec itself rejects or
# skips values that exceed the limits.

import functools
import json
import re
from itertools import accumulate
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import inspect

MAX_DEPTH = 100
"""Most nested levels of arrays and objects in a document. A model's signature, a manifest or a status record has fewer than
ten."""
MAX_BYTES = 64 << 20
"""Largest size of a document, unless its reader has a smaller limit. Records of Kafka are far smaller."""
SHOWN = 300  # characters of the decoder's message that UnreadableDocument repeats
SMALLEST = -(2**63)
LARGEST = 2**63 - 1

Int64 = Annotated[int, msgspec.Meta(ge=SMALLEST, le=LARGEST)]
"""A signed 64-bit integer, as in Kafka's protocol and numpy. An unbounded `int` accepts up to 4,300 digits, which do not fit
into a float or an array."""
Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
"""An integer of at least 0: an offset, a revision or a number of items."""
Unix = Annotated[int, msgspec.Meta(ge=-(10**14), le=10**14)]
"""A time in Unix milliseconds, within some 3,000 years of 1970, so that `datetime` can represent it."""

_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_INTEGERS = re.compile(rb"(?<![0-9.eE+-])-?[0-9]{19,}(?![0-9.eE])")
_STEPS = bytes({ord("["): 1, ord("{"): 1, ord("]"): 0xFF, ord("}"): 0xFF}.get(byte, 0) for byte in range(256))
_OTHERS = bytes(byte for byte in range(256) if byte not in b"[{]}")
_DIGITS = bytes(ord("0") if byte in b"0123456789" else byte for byte in range(256))
_LONG = b"0" * 19  # a shorter integer fits 64 bits
_INTEGER_DIGITS = 20  # the number of digits of 2**64 - 1

Document = TypeVar("Document")


class UnreadableDocument(ValueError):
    """The bytes are no document of the expected type, or exceed a limit. The message never shows the content of the bytes."""


class DocumentDecoder(Generic[Document]):
    """Decodes JSON documents of one type. Create one per type, not one per document; threads may share it."""

    def __init__(self, type_: type[Document], *, max_bytes: int = MAX_BYTES) -> None:
        self._decoder = msgspec.json.Decoder(type_)
        self._scanned = _is_open(inspect.type_info(type_), set())
        self._max_bytes = max_bytes

    def decode(self, data: bytes | str | memoryview | None) -> Document:
        """Return the decoded document. Raises UnreadableDocument, also if `data` is None, and no other exception."""
        if data is None or len(data) > self._max_bytes:
            raise UnreadableDocument(
                "there is no document" if data is None else f"the document has more than {self._max_bytes:,} bytes"
            )
        try:
            if self._scanned:
                check(data.encode() if isinstance(data, str) else bytes(data))
            return self._decoder.decode(data)
        except UnreadableDocument:
            raise
        except RecursionError:
            raise UnreadableDocument(f"the document nests more than {MAX_DEPTH} levels deep") from None
        except (msgspec.MsgspecError, ValueError, OverflowError) as error:
            raise UnreadableDocument(f"{error!s:.{SHOWN}}") from None

    def decode_or_none(self, data: bytes | str | memoryview | None) -> Document | None:
        """Return the decoded document; None if `data` is unreadable or None."""
        try:
            return self.decode(data)
        except UnreadableDocument:
            return None


def check(data: bytes) -> None:
    """Raise UnreadableDocument if JSON nests deeper than MAX_DEPTH or holds an integer beyond 64 bits."""
    # A quick check counts brackets and digits without distinguishing strings from other text. Only if it finds too many, a
    # second check removes the strings and counts again. Both run in C code: 0.8 us for a record of 330 bytes.
    _check_depth(data)
    if _LONG in data.translate(_DIGITS) and any(not _fits(match[0]) for match in _INTEGERS.finditer(_STRINGS.sub(b'""', data))):
        raise UnreadableDocument("the document contains an integer beyond 64 bits")


def _check_depth(data: bytes) -> None:
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return
    steps = _STRINGS.sub(b"", data).translate(_STEPS, _OTHERS)
    if max(accumulate(memoryview(steps).cast("b")), default=0) > MAX_DEPTH:
        raise UnreadableDocument(f"the document nests more than {MAX_DEPTH} levels deep")


def _fits(integer: bytes) -> bool:
    return len(integer) <= _INTEGER_DIGITS and SMALLEST <= int(integer) <= 2**64 - 1


def _is_open(type_: Any, visited: set[Any]) -> bool:
    """Return whether a value of this type may have untyped parts, unbounded integers or unlimited nesting."""
    if isinstance(type_, inspect.AnyType | inspect.RawType):
        return True
    if isinstance(type_, inspect.IntType):
        return (type_.le is None and type_.lt is None) or (type_.ge is None and type_.gt is None)
    if isinstance(type_, inspect.StructType):
        if type_.cls in visited:
            return True  # the type may contain itself
        visited = visited | {type_.cls}
        return any(_is_open(field.type, visited) for field in type_.fields)
    parts = [getattr(type_, name, None) for name in ("type", "item_type", "key_type", "value_type")]
    parts += [*getattr(type_, "types", ()), *getattr(type_, "item_types", ())]
    return any(part is not None and _is_open(part, visited) for part in parts)


ANY = DocumentDecoder[Any](Any)
"""Decodes any JSON."""


def decode(data: bytes | str | memoryview | None, type_: type[Document], *, max_bytes: int = MAX_BYTES) -> Document:
    """Return the document in `data`, decoded as this type. Raises UnreadableDocument.

    Code that reads many documents of one type should keep a DocumentDecoder instead.
    """
    decoder: DocumentDecoder[Document] = _decoder(type_, max_bytes)  # type: ignore[arg-type]  # types are hashable
    return decoder.decode(data)


@functools.cache
def _decoder(type_: Any, max_bytes: int) -> DocumentDecoder[Any]:
    return DocumentDecoder(type_, max_bytes=max_bytes)


def decode_lenient(data: bytes) -> Any:
    """Return a document as the standard library decodes it: NaN, infinities and integers of any size are accepted.

    Raises:
        UnreadableDocument: The document is not JSON in UTF-8, nests too deeply, or has an unpaired surrogate in a string.
    """
    try:
        _check_depth(data)
        document = json.loads(data.decode("utf-8"))
        json.dumps(document, ensure_ascii=False).encode()
    except UnreadableDocument:
        raise
    except (ValueError, RecursionError) as error:
        raise UnreadableDocument(f"{error!s:.{SHOWN}}") from None
    return document
