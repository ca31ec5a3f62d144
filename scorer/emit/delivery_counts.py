"""Count the delivery results of the events that `scorer emit` writes. Pure."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DeliveryCounts:
    """The delivery results of the events.

    Attributes:
        written: events that the broker has confirmed.
        uncertain: events that were sent, and that the broker has neither confirmed nor rejected.
        rejected: events that were not written: rejected by the broker, or never sent.
        skip: the value of `--skip` for a run that continues: the number of completed lines.
        repeated: confirmed events after those lines, which that run writes again.
    """

    written: int
    uncertain: int
    rejected: int
    skip: int
    repeated: int

    def to_dict(self) -> dict[str, Any]:
        """Return the counts for `--json`."""
        return asdict(self)

    def progress(self) -> tuple[str, str]:
        """Return the counts in words, and the options to continue."""
        words = [
            f"{self.written:,} events were written",
            f"{self.uncertain:,} are uncertain: sent but not confirmed" if self.uncertain else "",
            f"{self.rejected:,} were not" if self.rejected else "",
        ]
        again = []
        if self.uncertain:
            again.append(f"{self.uncertain:,} uncertain events")
        if self.repeated:
            again.append(f"{self.repeated:,} confirmed events after them")
        twice = f", which writes {' and '.join(again)} again" if again else ""
        return ", ".join(filter(None, words)), f"to continue, add --skip {self.skip}{twice}" if self.skip or again else ""


class Confirmations:
    """Counts events by line number. Each event is confirmed or fails once, in any order."""

    def __init__(self, skipped: int = 0) -> None:
        """Start after `skipped` lines, which an earlier run has completed."""
        self.given = self.written = self.rejected = self.answered = 0
        self._last = skipped
        self._unconfirmed: dict[int, int] = {}  # by line, in the order of `give`: the number of events given before

    def give(self, line: int) -> None:
        """Count the event of a line as passed to the producer."""
        self._unconfirmed[line] = self.given
        self.given += 1

    def withdraw(self, line: int) -> None:
        """Remove the last given event, which the producer did not accept."""
        del self._unconfirmed[line]
        self.given -= 1

    def confirm(self, line: int) -> None:
        """Count the event of a line as written."""
        del self._unconfirmed[line]
        self.answered += 1
        self.written += 1
        self._last = max(self._last, line)

    def fail(self, *, rejected: bool) -> None:
        """Count an event as rejected, or as uncertain."""
        self.answered += 1
        self.rejected += rejected

    @property
    def complete(self) -> bool:
        """Whether every event was confirmed or has failed."""
        return self.answered == self.given

    def counts(self) -> DeliveryCounts:
        """Return the current counts; events without a result are uncertain."""
        line, before = next(iter(self._unconfirmed.items()), (self._last + 1, self.written))
        uncertain = self.given - self.written - self.rejected
        return DeliveryCounts(self.written, uncertain, self.rejected, line - 1, self.written - before)
