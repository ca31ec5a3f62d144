"""The headers of an event that the scorer reads."""

from dataclasses import dataclass

from publisher.kafka.source_position import ORIGIN
from scorer.decoding.batch import Headers
from scorer.decoding.unicode_text import explain_not_utf8

DEADLINE_DIGITS = 18  # far more than a time in Unix ms has; Python refuses to read more than 4,300
CE_ID = "ce_id"
READ = frozenset({CE_ID, ORIGIN, "x-copied-to", "deadline"})


@dataclass(frozen=True, slots=True)
class HeaderValues:
    """The values of the headers that the scorer reads from one event.

    Attributes:
        ce_id: the header `ce_id`; None if it is absent, null or empty.
        origin: the header `x-origin`; None if it is absent, null or empty, or if the event has the header `ce_id`.
        deadline: the header `deadline` in Unix ms; None if it is absent, null or invalid.
        bad_deadline: the text of the header `deadline` if it is invalid; otherwise None.
        copied_to: the header `x-copied-to`, which is the partition to which a relay copied the event; None if it is absent.
        bad_id: the error text if the event's header `ce_id` or `x-origin` is not UTF-8; otherwise None.
    """

    ce_id: str | None = None
    origin: str | None = None
    deadline: int | None = None
    bad_deadline: str | None = None
    copied_to: str | None = None
    bad_id: str | None = None

    @classmethod
    def from_headers(cls, headers: Headers) -> "HeaderValues":
        """Read the headers of one event. If a header is repeated, its last value is used."""
        values = {name: value for name, value in headers or () if name in READ}
        deadline, bad_deadline = _deadline(values.get("deadline"))
        ce_id, bad_id = _identifier(CE_ID, values.get(CE_ID))
        origin = None
        if ce_id is None and bad_id is None:
            origin, bad_id = _identifier(ORIGIN, values.get(ORIGIN))
        copied_to = _text(values["x-copied-to"]) if "x-copied-to" in values else None
        return cls(ce_id, origin, deadline, bad_deadline, copied_to, bad_id)


NO_HEADER_VALUES = HeaderValues()


def _deadline(value: str | bytes | None) -> tuple[int | None, str | None]:
    """Parse the header `deadline`.

    Returns:
        (deadline in Unix ms, None); (None, text) if the text is not a valid deadline; (None, None) if the header is absent or
        null.
    """
    if value is None:
        return None, None
    text = _text(value)
    is_number = text.isascii() and text.isdigit() and len(text) <= DEADLINE_DIGITS
    return (int(text), None) if is_number else (None, text)


def _identifier(name: str, value: str | bytes | None) -> tuple[str | None, str | None]:
    """Decode a header that contains an id.

    Returns:
        (text, None); (None, error) if the header is not UTF-8; (None, None) if the header is absent, null or empty.
    """
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError as error:
            return None, f"header {name} {explain_not_utf8(error)}"
    return value or None, None


def _text(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
