"""The dead letter: the original key, value and headers, plus headers with the reason, the source and the time.

A dead letter is replayed from its `dead.source` (`<region>/<topic>/<partition>/<offset>`).
"""

from collections.abc import Mapping, Sequence

from publisher.kafka.source_position import Position

HeaderList = list[tuple[str, str | bytes | None]]
ERROR_BYTES = 1_000  # longer explanations are cut
TIME_DIGITS = 18
NO_REASON = "unknown"
"""What a dead letter without a reason is called, in commands and in the console."""
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
    """Headers of a dead letter; `model` is `name:version@digest`, `at_ms` Unix ms, `arm` whose share of the keys it was in.

    A letter that stands for several records has the offset of the `first`; `source` is then the last one's position.
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
    """Return the headers that `dead_headers` added behind those of the event."""
    names = [name for name, _ in headers]
    return (
        list(headers[len(names) - 1 - names[::-1].index(DEAD_LETTER_HEADERS[0]) :]) if DEAD_LETTER_HEADERS[0] in names else []
    )


def original_headers(headers: Sequence[tuple[str, str | bytes | None]]) -> HeaderList:
    """Return the headers of the event: without the last mention of each header that `dead_headers` adds."""
    kept, added = [], set(DEAD_LETTER_HEADERS)
    for name, value in reversed(headers):
        if name in added:
            added.discard(name)
        else:
            kept.append((name, value))
    return kept[::-1]


def dead_letter_facts(headers: Sequence[tuple[str, str | bytes | None]]) -> dict[str, str]:
    """Return the values that `dead_headers` added, by name without `dead.`; the last mention of each counts."""
    return {
        name.removeprefix("dead."): value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
        for name, value in headers
        if name in DEAD_LETTER_HEADERS
    }


def dead_lettered_ms(said: Mapping[str, str], otherwise: int) -> int:
    """Return when the event was dead-lettered, in Unix ms, or `otherwise` if the headers have no time."""
    at = said.get("at", "")
    return int(at) if at.isascii() and at.isdigit() and len(at) <= TIME_DIGITS else otherwise
