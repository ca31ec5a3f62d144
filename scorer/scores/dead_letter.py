"""The dead letter: the original key, value and headers untouched, plus headers that say what was wrong, where and when.

One is replayed from its `dead.source` (`<region>/<topic>/<partition>/<offset>`).
"""

from collections.abc import Sequence

from publisher.positions import Position

HeaderList = list[tuple[str, str | bytes | None]]
ERROR_BYTES = 1_000  # longer explanations are cut


def dead_headers(
    original: Sequence[tuple[str, str | bytes | None]] | None,
    *,
    reason: str,
    error: str,
    source: Position,
    model: str,
    at_ms: int,
) -> HeaderList:
    """Headers of a dead letter; `model` is `name:version@digest`, `at_ms` Unix ms."""
    return [
        *(original or ()),
        ("dead.reason", reason.encode()),
        ("dead.error", error.encode("utf-8", "replace")[:ERROR_BYTES]),
        ("dead.source", str(source).encode("ascii")),
        ("dead.model", model.encode()),
        ("dead.at", str(at_ms).encode()),
    ]
