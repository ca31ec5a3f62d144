"""Count the delivery results of the events that `scorer emit` writes. This module does no I/O."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DeliveryCounts:
    """The numbers of events by delivery result, and the line from which to continue.

    Attributes:
        written: the number of events that the broker has confirmed.
        uncertain: the number of sent events without an answer of the broker.
        rejected: the number of events that were certainly not written.
        skip: the number of lines before the first unconfirmed event, for `--skip` in the next `scorer emit`.
        repeated: the number of confirmed events after the first unconfirmed event. The next command writes these events again.
    """

    written: int
    uncertain: int
    rejected: int
    skip: int
    repeated: int

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as a JSON object, for the option `--json`."""
        return asdict(self)

    def progress(self) -> tuple[str, str]:
        """Return (counts, hint) as texts. The hint describes how to continue with the option `--skip`.

        The hint is empty if the next `scorer emit` would skip no line and write no event twice.
        """
        words = [
            f"{self.written:,} events were written",
            f"{self.uncertain:,} are uncertain: sent but not confirmed" if self.uncertain else "",
            f"{self.rejected:,} were not written" if self.rejected else "",
        ]
        again = []
        if self.uncertain:
            again.append(f"{self.uncertain:,} uncertain events")
        if self.repeated:
            again.append(f"{self.repeated:,} confirmed events after them")
        twice = f", which writes {' and '.join(again)} again" if again else ""
        return ", ".join(
            filter(None, words)
        ), f"to write the remaining events, run the command again with --skip {self.skip}{twice}" if self.skip or again else ""


class Confirmations:
    """Tracks the delivery result of each line's event. Results arrive once per event, in any order."""

    def __init__(self, skipped: int = 0) -> None:
        """Start with `skipped` confirmed lines of the file, which an earlier command has written."""
        self.sent = self.written = self.rejected = self.completed = 0
        self._last = skipped
        self._unconfirmed: dict[int, int] = {}  # by line of an unconfirmed event, in order: the number of events given before

    def add_sent(self, line: int) -> None:
        """Count the event of a line as passed to the producer."""
        self._unconfirmed[line] = self.sent
        self.sent += 1

    def undo_sent(self, line: int) -> None:
        """Undo `add_sent` for the last event, because the producer did not accept it."""
        del self._unconfirmed[line]
        self.sent -= 1

    def confirm(self, line: int) -> None:
        """Count the event of a line as written: the broker has confirmed it."""
        del self._unconfirmed[line]
        self.completed += 1
        self.written += 1
        self._last = max(self._last, line)

    def fail(self, *, rejected: bool) -> None:
        """Count a failed event: certainly not written if `rejected` is true, otherwise uncertain."""
        self.completed += 1
        self.rejected += rejected

    @property
    def complete(self) -> bool:
        """Whether every event that was passed to the producer has a delivery result, confirmed or failed."""
        return self.completed == self.sent

    def counts(self) -> DeliveryCounts:
        """Return the current counts. Events without a delivery result count as uncertain."""
        line, before = next(iter(self._unconfirmed.items()), (self._last + 1, self.written))
        uncertain = self.sent - self.written - self.rejected
        return DeliveryCounts(self.written, uncertain, self.rejected, line - 1, self.written - before)
