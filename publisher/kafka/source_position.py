"""A position in a Kafka topic, and its form in headers: `<region>/<topic>/<partition>/<offset>`.

The text is ASCII; region and topic are percent-encoded, so that neither contains the separator. The module imports no other
module of the product.
"""

from typing import Any, NamedTuple
from urllib.parse import quote, unquote

LARGEST_PARTITION = 2**31 - 1  # Kafka's protocol: int32
LARGEST_OFFSET = 2**63 - 1  # Kafka's protocol: int64
PARTS = 4
ORIGIN = "x-origin"
HOPS = "x-hops"
COPIED_TO = "x-copied-to"
OWN = frozenset({ORIGIN, HOPS, COPIED_TO})


class Position(NamedTuple):
    """The position of a record: region, topic, partition and offset. `str()` returns its form in headers; `parse` reads it."""

    region: str
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{quote(self.region, safe='')}/{quote(self.topic, safe='')}/{self.partition}/{self.offset}"


def parse(text: str | bytes) -> Position:
    """Parse a position, from text or the bytes of a header. The region may be empty, the topic may not.

    Raises:
        ValueError: if the text does not have four parts, or the last two parts are not integers in range. The message contains
            the text.
    """
    try:
        name = text.decode("ascii") if isinstance(text, bytes) else text
        parts = name.split("/")
        if not name.isascii() or len(parts) != PARTS:
            raise ValueError
        region, topic = (unquote(part, errors="strict") for part in parts[:2])
        partition = _number(parts[2], LARGEST_PARTITION)
        offset = _number(parts[3], LARGEST_OFFSET)
        if not topic:
            raise ValueError
    except ValueError:
        raise ValueError(f"{text!r} is not a position; write <region>/<topic>/<partition>/<offset>") from None
    return Position(region, topic, partition, offset)


def parse_offset(text: str | bytes) -> int:
    """Parse an offset, from text or the bytes of a header. Raises ValueError with the text in its message."""
    try:
        return _number(text.decode("ascii") if isinstance(text, bytes) else text, LARGEST_OFFSET)
    except ValueError:
        raise ValueError(f"{text!r} is not an offset, which is a whole number from 0") from None


def offset_of(text: bytes, begins: bytes) -> int:
    """Return the offset in a position in text form, or -1 if the position does not start with `begins`.

    `begins` is the part before the offset: `<region>/<topic>/<partition>/`.
    """
    try:
        return _number(text.removeprefix(begins).decode("ascii"), LARGEST_OFFSET) if text.startswith(begins) else -1
    except ValueError:
        return -1


def _number(text: str, largest: int) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(largest)) or int(text) > largest:
        raise ValueError
    return int(text)


def renamed(form: str, region: str, topic: str) -> str:
    """Return the name of the destination topic into which a source topic is copied.

    Args:
        form: the setting `destination.topic`, which may contain {topic} and {region}.
        region: the region of the source.
        topic: the source topic.
    """
    return form.replace("{topic}", topic).replace("{region}", region)


def origin_of(headers: list[tuple[str, Any]] | None, partition: tuple[str, int], renaming: str = "") -> bytes | None:
    """Return the header `x-origin` of a record that a relay has copied into `partition`; None for any other record.

    `renaming` is the setting `destination.topic`, the pattern for the names of destination topics.
    """
    # A record is no copy if `x-copied-to` names another partition: a program has forwarded the headers of a copy. Early
    # releases wrote no `x-copied-to`. A record without it is a copy, unless the relay would have copied its origin to another
    # partition.
    if not headers:
        return None
    by_name = dict(headers)
    origin: bytes | None = by_name.get(ORIGIN)
    if origin is None:
        return None
    if COPIED_TO in by_name:
        return origin if by_name[COPIED_TO] == address(*partition) else None
    return origin if not renaming or _leads(renaming, origin, partition) else None


def _leads(renaming: str, origin: bytes, partition: tuple[str, int]) -> bool:
    try:
        first = parse(origin)
    except ValueError:
        return False
    return (renamed(renaming, first.region, first.topic), first.partition) == partition


def address(topic: str, partition: int) -> bytes:
    """Return `<topic>/<partition>`, the form of a partition in the header `x-copied-to`."""
    return f"{topic}/{partition}".encode()
