"""The headers of a dead letter: the headers of the event, then headers with the reason, the source and the time. Pure.

A dead letter has the key and the value of its event. The header `dead.source` has the position of the event,
`<region>/<topic>/<partition>/<offset>`. A replay writes the event to the topic and the partition of this position.
"""

from collections.abc import Mapping, Sequence

from publisher.kafka.source_position import Position

HeaderList = list[tuple[str, str | bytes | None]]
ERROR_BYTES = 1_000  # maximum size of `dead.error`: longer explanations are truncated
TIME_DIGITS = 18
NO_REASON = "unknown"
"""The reason that commands and the console show for a dead letter without a reason."""
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
        source: The position of the event; for an unreadable record batch, the position of its last record.
        model: The version as `name:version@digest`.
        at_ms: The time of dead-lettering in Unix milliseconds.
        arm: The role, champion or canary, to which the traffic split assigns the event's key.
        first: The offset of the first record of an unreadable record batch; None for a single event.
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
    """Return the headers that `dead_headers` has appended to a dead letter, without the headers of the event."""
    names = [name for name, _ in headers]
    return (
        list(headers[len(names) - 1 - names[::-1].index(DEAD_LETTER_HEADERS[0]) :]) if DEAD_LETTER_HEADERS[0] in names else []
    )


def original_headers(headers: Sequence[tuple[str, str | bytes | None]]) -> HeaderList:
    """Return the headers of the event, without the headers that `dead_headers` appended."""
    # The event may itself have headers with these names. Only the last one of each name was appended.
    originals = []
    added = set(DEAD_LETTER_HEADERS)
    for name, value in reversed(headers):
        if name in added:
            added.discard(name)
        else:
            originals.append((name, value))
    return originals[::-1]


def dead_letter_facts(headers: Sequence[tuple[str, str | bytes | None]]) -> dict[str, str]:
    """Return the values of the headers that `dead_headers` appended, by name without the prefix `dead.`.

    If a header is repeated, its last value is returned.
    """
    return {
        name.removeprefix("dead."): value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
        for name, value in headers
        if name in DEAD_LETTER_HEADERS
    }


def dead_lettered_ms(facts: Mapping[str, str], otherwise: int) -> int:
    """Return the time of dead-lettering in Unix milliseconds, or `otherwise` if the headers contain no valid time."""
    text = facts.get("at", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= TIME_DIGITS else otherwise
