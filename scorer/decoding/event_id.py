"""The id of an event. Scores and replayed dead letters derive the id by the same rule."""

from collections.abc import Sequence
from functools import lru_cache

from publisher.kafka.source_position import Position
from scorer.decoding.headers import HeaderValues


def event_id(facts: HeaderValues, field: str | int | None, region: str, source: tuple[str, int, int]) -> str:
    """Return the event's id: header `ce_id`, else the configured field, else the header `x-origin`, else the event's position.

    `x-origin` holds the position of the event that a relay copied. It is ignored if `x-copied-to` names another partition: the
    event was then forwarded from that copy, and several forwarded events may have the same `x-origin`.

    Args:
        facts: the values of the event's headers.
        field: the configured id field; an empty text counts as absent.
        region: the region of the event's position.
        source: topic, partition and offset of the event.
    """
    if facts.ce_id is not None:
        return facts.ce_id
    if field not in (None, ""):
        return str(field)
    if facts.origin and facts.copied_to in (None, f"{source[0]}/{source[1]}"):
        return facts.origin
    return f"{partition_prefix(region, source[0], source[1])}{source[2]}"


def field_ids(fields: Sequence[str | int | None]) -> list[str] | None:
    """Return the value of the configured id field of each event as text; None if it is absent or empty in any event."""
    return None if None in fields or "" in fields else list(map(str, fields))


@lru_cache(maxsize=4_096)
def partition_prefix(region: str, topic: str, partition: int) -> str:
    """Return the common start of the positions of a partition's events: `<region>/<topic>/<partition>/`."""
    return str(Position(region, topic, partition, 0)).removesuffix("0")
