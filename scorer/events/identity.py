"""What an event's headers say of it, and how it is named: the one naming rule, for scores and for replayed dead letters."""

from dataclasses import dataclass
from functools import lru_cache

from publisher.positions import Position
from scorer.events.batch import Headers

DEADLINE_DIGITS = 18  # far more than a time in Unix ms has; Python refuses to read more than 4,300
READ = frozenset({"ce_id", "x-origin", "x-copied-to", "deadline"})


@dataclass(frozen=True, slots=True)
class Facts:
    """What an event's headers say. `deadline` is Unix ms; `bad_deadline` is the text that is no such number; `copied_to` is the
    partition that a relay wrote the event to."""

    ce_id: str | None = None
    origin: str | None = None
    deadline: int | None = None
    bad_deadline: str | None = None
    copied_to: str | None = None

    @classmethod
    def of(cls, headers: Headers) -> "Facts":
        """The facts of one event; of a header that stands there several times the last."""
        found = {name: _text(value) for name, value in headers or () if name in READ}
        text = found.get("deadline")
        good = text is not None and text.isascii() and text.isdigit() and len(text) <= DEADLINE_DIGITS
        deadline = int(text) if good and text is not None else None
        return cls(found.get("ce_id"), found.get("x-origin"), deadline, None if good else text, found.get("x-copied-to"))


NO_FACTS = Facts()


def event_id(facts: Facts, field: str | int | None, region: str, source: tuple[str, int, int]) -> str:
    """Header ce_id, else the configured field, else the position in x-origin, else the event's own position.

    `source` is (topic, partition, offset). An `x-origin` that was forwarded from a copy in another partition does not
    count: several events may carry it.
    """
    if facts.ce_id is not None:
        return facts.ce_id
    if field is not None:
        return str(field)
    if facts.origin and facts.copied_to in (None, f"{source[0]}/{source[1]}"):
        return facts.origin
    return f"{lane(region, source[0], source[1])}{source[2]}"


@lru_cache(maxsize=4_096)
def lane(region: str, topic: str, partition: int) -> str:
    """The position of an event up to its offset."""
    return str(Position(region, topic, partition, 0)).removesuffix("0")


def _text(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
