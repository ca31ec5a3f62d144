"""The selection of dead letters to replay, by reason and by the time at which they were dead-lettered. Pure."""

from collections.abc import Collection
from dataclasses import dataclass

from publisher.runtime.time_range import ALWAYS, TimeRange
from scorer.replay.read_dead_letter import ReplayableDeadLetter


@dataclass(frozen=True, slots=True)
class DeadLetterSelection:
    """The selection of dead letters to replay, by reason and by the time at which they were dead-lettered.

    If `reasons` is empty, dead letters of every reason are selected.
    """

    reasons: Collection[str] = ()
    window: TimeRange = ALWAYS

    def includes(self, letter: ReplayableDeadLetter) -> bool:
        """Return whether the dead letter is selected."""
        return (not self.reasons or letter.reason in self.reasons) and self.window.contains(letter.at_ms)
