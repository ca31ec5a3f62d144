"""Counts of the score records that a job has processed. Pure."""

from collections import Counter
from typing import Any

import msgspec


class RescoreCounts(msgspec.Struct):
    """Counts of score records.

    Attributes:
        corrected: The selected records with a correction.
        others: The records that were not selected.
        not_retained: The selected records whose event the input topic no longer holds.
        refused: By reason, the selected records whose event the version dead-letters.
        unfit: The selected records that do not lead to their event.
        unread: The offsets that retention deleted before the job reached them.
    """

    corrected: int = 0
    others: int = 0
    not_retained: int = 0
    refused: dict[str, int] = {}
    unfit: int = 0
    unread: int = 0

    def add(self, other: "RescoreCounts") -> None:
        """Add the counts of `other` to these."""
        self.corrected += other.corrected
        self.others += other.others
        self.not_retained += other.not_retained
        self.refused = dict(Counter(self.refused) + Counter(other.refused))
        self.unfit += other.unfit
        self.unread += other.unread

    @property
    def selected(self) -> int:
        """The number of selected records."""
        return self.corrected + self.uncorrected

    @property
    def uncorrected(self) -> int:
        """The number of selected records without a correction."""
        return self.not_retained + sum(self.refused.values()) + self.unfit

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        return {"selected": self.selected, **msgspec.to_builtins(self)}
