"""The headers of a dead letter: those of the event, plus headers with the reason, the source and the time. Pure.

A dead letter keeps the original key and value. It is replayed from its `dead.source` (`<region>/<topic>/<partition>/<offset>`).
"""

from collections.abc import Mapping, Sequence

from publisher.kafka.source_position import Position

HeaderList = list[tuple[str, str | bytes | None]]
ERROR_BYTES = 1_000  # longer explanations are cut
TIME_DIGITS = 18
NO_REASON = "unknown"
"""The reason shown by commands and the console for a dead letter without one."""
DEAD_LETTER_HEADERS = ("dead.reason", "dead.error", "dead.source", "dead.model", "dead.at", "dead.arm")
FIRST = "dead.first"


def dead_headers(
    original: Sequence[tuple[str, str | bytes | None]] | None,
    *,
    reason: str,
    error: str,
    source: Position,
    model: str,
    at_ms: int,
    arm: str,
    first: int | None = None,
) -> HeaderList:
    """Return the headers of a dead letter.

    Args:
        original: The headers of the event.
        reason: The code of the reason.
        error: The explanation of the reason.
        source: The position of the event; if the letter represents several records, that of the last one.
        model: The version as `name:version@digest`.
        at_ms: The time in Unix milliseconds.
        arm: The role whose share contains the event's key.
        first: The offset of the first record, if the letter represents several records.
    """
    return [
        *(original or ()),
        ("dead.reason", reason.encode()),
        ("dead.error", error.encode("utf-8", "replace")[:ERROR_BYTES]),
        ("dead.source", str(source).encode("ascii")),
        ("dead.model", model.encode()),
        ("dead.at", str(at_ms).encode()),
        ("dead.arm", arm.encode()),
        *([] if first is None else [(FIRST, str(first).encode())]),
    ]


def own_headers(headers: Sequence[tuple[str, str | bytes | None]]) -> HeaderList:
    """Return the headers that `dead_headers` appended to those of the event."""
    names = [name for name, _ in headers]
    return (
        list(headers[len(names) - 1 - names[::-1].index(DEAD_LETTER_HEADERS[0]) :]) if DEAD_LETTER_HEADERS[0] in names else []
    )


def original_headers(headers: Sequence[tuple[str, str | bytes | None]]) -> HeaderList:
    """Return the headers of the event: without the last occurrence of each header that `dead_headers` appends."""
    originals = []
    added = set(DEAD_LETTER_HEADERS)
    for name, value in reversed(headers):
        if name in added:
            added.discard(name)
        else:
            originals.append((name, value))
    return originals[::-1]


def dead_letter_facts(headers: Sequence[tuple[str, str | bytes | None]]) -> dict[str, str]:
    """Return the values that `dead_headers` appended, by name without `dead.`; of repeated headers the last one counts."""
    return {
        name.removeprefix("dead."): value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
        for name, value in headers
        if name in DEAD_LETTER_HEADERS
    }


def dead_lettered_ms(facts: Mapping[str, str], otherwise: int) -> int:
    """Return the time of the dead letter in Unix milliseconds, or `otherwise` if the headers have no valid time."""
    text = facts.get("at", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= TIME_DIGITS else otherwise
