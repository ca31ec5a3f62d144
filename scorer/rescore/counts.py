"""Counts of the score records that a job has processed. Pure."""

from collections import Counter
from typing import Any

import msgspec


class RescoreCounts(msgspec.Struct):
    """Counts of score records.

    `others` were not selected. Of the selected ones, `not_retained` have an event that the input topic no longer holds,
    `refused` one that the
    version dead-letters (by reason), and `unfit` do not lead to their event. `unread` are offsets that retention deleted
    before the job
    reached them.
    """

    corrected: int = 0
    others: int = 0
    not_retained: int = 0
    refused: dict[str, int] = {}
    unfit: int = 0
    unread: int = 0

    def add(self, other: "RescoreCounts") -> None:
        self.corrected += other.corrected
        self.others += other.others
        self.not_retained += other.not_retained
        self.refused = dict(Counter(self.refused) + Counter(other.refused))
        self.unfit += other.unfit
        self.unread += other.unread

    @property
    def selected(self) -> int:
        return self.corrected + self.uncorrected

    @property
    def uncorrected(self) -> int:
        """The number of selected records without a correction."""
        return self.not_retained + sum(self.refused.values()) + self.unfit

    def to_dict(self) -> dict[str, Any]:
        return {"selected": self.selected, **msgspec.to_builtins(self)}
