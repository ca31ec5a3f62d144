"""Count what became of the events that `scorer emit` handed to its producer. Pure."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DeliveryCounts:
    """What became of the events.

    Attributes:
        written: events that the broker has confirmed.
        uncertain: events that were sent, and that the broker has neither confirmed nor rejected.
        rejected: events that were not written: rejected by the broker, or never sent.
        skip: lines from the first on that are done with: `--skip` of the run that continues.
        repeated: confirmed events behind those lines, which that run writes again.
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
        """Return the counts as words, and how to continue."""
        words = [
            f"{self.written:,} events were written",
            f"{self.uncertain:,} are uncertain: sent, but not confirmed" if self.uncertain else "",
            f"{self.rejected:,} were not" if self.rejected else "",
        ]
        again = []
        if self.uncertain:
            again.append(f"{self.uncertain:,} uncertain events")
        if self.repeated:
            again.append(f"{self.repeated:,} confirmed events behind them")
        twice = f", which writes {' and '.join(again)} again" if again else ""
        return ", ".join(filter(None, words)), f"to continue, add --skip {self.skip}{twice}" if self.skip or again else ""


class Confirmations:
    """Counts events by the lines that they come from. Each is confirmed or fails once, in any order."""

    def __init__(self, skipped: int = 0) -> None:
        """`skipped`: lines from the first on that an earlier run is done with."""
        self.given = self.written = self.rejected = self.answered = 0
        self._last = skipped
        self._unconfirmed: dict[int, int] = {}  # by line in the order given, how many events were given before

    def give(self, line: int) -> None:
        """Count an event of a line as handed over."""
        self._unconfirmed[line] = self.given
        self.given += 1

    def withdraw(self, line: int) -> None:
        """Forget the event that was given last, because the producer did not take it."""
        del self._unconfirmed[line]
        self.given -= 1

    def confirm(self, line: int) -> None:
        """Count the event of a line as written."""
        del self._unconfirmed[line]
        self.answered += 1
        self.written += 1
        self._last = max(self._last, line)

    def fail(self, *, rejected: bool) -> None:
        """Count an event as `rejected`, else as uncertain."""
        self.answered += 1
        self.rejected += rejected

    @property
    def complete(self) -> bool:
        """Whether every event was confirmed or has failed."""
        return self.answered == self.given

    def counts(self) -> DeliveryCounts:
        """Return the counts as they are now; events without an answer are uncertain."""
        line, before = next(iter(self._unconfirmed.items()), (self._last + 1, self.written))
        uncertain = self.given - self.written - self.rejected
        return DeliveryCounts(self.written, uncertain, self.rejected, line - 1, self.written - before)
