"""Copies held against their source, record by record; shares no code with the product."""

from typing import Any

from confluent_kafka import Message

CLEAN = {"missing": 0, "duplicates": 0, "phantoms": 0, "out_of_order": 0, "altered": 0}


def compare(source: list[Message], copies: list[Message]) -> dict[str, int]:
    """Every source record must be there once, in its partition, in order, and as it was but for the three headers."""
    expected = {(m.partition(), m.offset()): m for m in source}
    offsets: dict[tuple[int | None, int | None], int] = {}
    last: dict[int | None, int] = {}
    counts = dict.fromkeys(CLEAN, 0)
    for copy in copies:
        offset = int(header(copy, "x-origin").rpartition(b"/")[2])
        place = copy.partition(), offset
        counts["phantoms"] += place not in expected
        counts["duplicates"] += place in offsets
        offsets[place] = offset
        counts["out_of_order"] += offset <= last.get(copy.partition(), -1)
        last[copy.partition()] = offset
        if place in expected:
            counts["altered"] += kept(copy) != kept(expected[place])
    counts["missing"] = len(set(expected) - set(offsets))
    return counts


def header(message: Message, name: str) -> bytes:
    value = dict(message.headers() or [])[name]
    assert isinstance(value, bytes)
    return value


def kept(message: Message) -> tuple[Any, ...]:
    headers = [header for header in message.headers() or [] if header[0] not in ("x-origin", "x-hops", "x-copied-to")]
    return message.key(), message.value(), message.timestamp(), message.partition(), headers
