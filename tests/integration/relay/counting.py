"""Copies held against their source, record by record; shares no code with the product."""

from typing import Any

from confluent_kafka import Message

CLEAN = {"missing": 0, "duplicates": 0, "phantoms": 0, "out_of_order": 0, "altered": 0}


def compare(source: list[Message], copies: list[Message]) -> dict[str, int]:
    """Every source record must be there once, in its partition, in order, and as it was but for the three headers."""
    wanted = {(m.partition(), m.offset()): m for m in source}
    seen: dict[tuple[int | None, int | None], int] = {}
    last: dict[int | None, int] = {}
    found = dict.fromkeys(CLEAN, 0)
    for copy in copies:
        offset = int(header(copy, "x-origin").rpartition(b"/")[2])
        place = copy.partition(), offset
        found["phantoms"] += place not in wanted
        found["duplicates"] += place in seen
        seen[place] = offset
        found["out_of_order"] += offset <= last.get(copy.partition(), -1)
        last[copy.partition()] = offset
        if place in wanted:
            found["altered"] += kept(copy) != kept(wanted[place])
    found["missing"] = len(set(wanted) - set(seen))
    return found


def header(message: Message, name: str) -> bytes:
    value = dict(message.headers() or [])[name]
    assert isinstance(value, bytes)
    return value


def kept(message: Message) -> tuple[Any, ...]:
    headers = [header for header in message.headers() or [] if header[0] not in ("x-origin", "x-hops", "x-copied-to")]
    return message.key(), message.value(), message.timestamp(), message.partition(), headers
