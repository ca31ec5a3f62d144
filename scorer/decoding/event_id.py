"""The id of an event. The same rule determines the id in scores and in replayed dead letters."""

from collections.abc import Sequence
from functools import lru_cache

from publisher.kafka.source_position import Position
from scorer.decoding.headers import HeaderValues


def event_id(facts: HeaderValues, field: str | int | None, region: str, source: tuple[str, int, int]) -> str:
    """Return the event's id: header `ce_id`, else the configured field, else the header `x-origin`, else the event's position.

    A relay that copies an event writes two headers to the copy: `x-origin`, the position of the original event, and
    `x-copied-to`, the partition of the copy. If an event is in another partition than `x-copied-to` names, a client has
    forwarded the copy. Its `x-origin` is then ignored, because several forwarded events may have the same `x-origin`.

    Args:
        facts: the values of the event's headers.
        field: the value of the configured id field. An empty text counts as absent.
        region: the region of the topic, which is part of the event's position.
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
    """Return the id of each event as text, from the values of the configured id field; None if at least one event has no id."""
    return None if None in fields or "" in fields else list(map(str, fields))


@lru_cache(maxsize=4_096)
def partition_prefix(region: str, topic: str, partition: int) -> str:
    """Return the common start of the positions of a partition's events: `<region>/<topic>/<partition>/`."""
    return str(Position(region, topic, partition, 0)).removesuffix("0")
