"""Values of an event's headers, and the event's id. Scores and replayed dead letters derive the id by the same rule."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from publisher.kafka.source_position import ORIGIN, Position
from scorer.decoding.batch import Headers

DEADLINE_DIGITS = 18  # far more than a time in Unix ms has; Python refuses to read more than 4,300
CE_ID = "ce_id"
READ = frozenset({CE_ID, ORIGIN, "x-copied-to", "deadline"})


@dataclass(frozen=True, slots=True)
class HeaderValues:
    """Values of one event's headers.

    Attributes:
        ce_id: the header `ce_id`; None if it is absent, null or empty.
        origin: the header `x-origin`, which is read only without a `ce_id`; None if it is absent, null or empty.
        deadline: Unix ms; None if the header is absent, null or invalid.
        bad_deadline: the text of an invalid deadline.
        copied_to: the partition to which a relay copied the event.
        bad_id: an error with the name and value of an id header that is not UTF-8.
    """

    ce_id: str | None = None
    origin: str | None = None
    deadline: int | None = None
    bad_deadline: str | None = None
    copied_to: str | None = None
    bad_id: str | None = None

    @classmethod
    def from_headers(cls, headers: Headers) -> "HeaderValues":
        """Read the headers of one event; the last value of a repeated header counts."""
        values = {name: value for name, value in headers or () if name in READ}
        deadline, bad_deadline = _deadline(values.get("deadline"))
        ce_id, bad_id = _identifier(CE_ID, values.get(CE_ID))
        origin = None
        if ce_id is None and bad_id is None:
            origin, bad_id = _identifier(ORIGIN, values.get(ORIGIN))
        copied_to = _text(values["x-copied-to"]) if "x-copied-to" in values else None
        return cls(ce_id, origin, deadline, bad_deadline, copied_to, bad_id)


NO_HEADER_VALUES = HeaderValues()


def event_id(facts: HeaderValues, field: str | int | None, region: str, source: tuple[str, int, int]) -> str:
    """Return the id: header ce_id, else the configured field, else the position in x-origin, else the event's own position.

    `source` is (topic, partition, offset). An empty field counts as absent. `x-origin` does not count if the event was
    forwarded from a copy in another partition, because several events may then have the same value.
    """
    if facts.ce_id is not None:
        return facts.ce_id
    if field not in (None, ""):
        return str(field)
    if facts.origin and facts.copied_to in (None, f"{source[0]}/{source[1]}"):
        return facts.origin
    return f"{partition_prefix(region, source[0], source[1])}{source[2]}"


def field_ids(fields: Sequence[str | int | None]) -> list[str] | None:
    """Return the configured field of each event as its id, or None if the field of any event is absent or empty."""
    return None if None in fields or "" in fields else list(map(str, fields))


@lru_cache(maxsize=4_096)
def partition_prefix(region: str, topic: str, partition: int) -> str:
    """Return the position of a partition's events, without an offset."""
    return str(Position(region, topic, partition, 0)).removesuffix("0")


def _deadline(value: str | bytes | None) -> tuple[int | None, str | None]:
    """Return the deadline, or the text of an invalid deadline; the other item is None, and both are None without a header."""
    if value is None:
        return None, None
    text = _text(value)
    is_number = text.isascii() and text.isdigit() and len(text) <= DEADLINE_DIGITS
    return (int(text), None) if is_number else (None, text)


def _identifier(name: str, value: str | bytes | None) -> tuple[str | None, str | None]:
    """Return the text of a header that identifies the event, or the error if it is not UTF-8; the other item is None."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return None, f"header {name} is {value[:100]!r}, which is not UTF-8"
    return value or None, None


def _text(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
