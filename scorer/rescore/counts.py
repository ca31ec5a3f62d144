"""Counts of the score records that a rescore job has processed, by result. Pure."""

from collections import Counter
from typing import Any

import msgspec


class RescoreCounts(msgspec.Struct):
    """The number of score records that a rescore job has processed, by result.

    Attributes:
        corrected: The selected records for which a correction was published.
        others: The records that the job does not select.
        not_retained: The selected records whose event is no longer in the input topic.
        not_logged: The selected records that need the feature log, but whose score has no record in the log.
        refused: The selected records whose event the new version would dead-letter, by reason.
        unfit: The records that cannot be decoded, or whose event cannot be identified.
        unread: The number of offsets that retention deleted before the job reached them.
    """

    corrected: int = 0
    others: int = 0
    not_retained: int = 0
    refused: dict[str, int] = {}
    unfit: int = 0
    unread: int = 0
    not_logged: int = 0

    def add(self, other: "RescoreCounts") -> None:
        """Add the counts of `other` to these counts."""
        self.corrected += other.corrected
        self.others += other.others
        self.not_retained += other.not_retained
        self.refused = dict(Counter(self.refused) + Counter(other.refused))
        self.unfit += other.unfit
        self.unread += other.unread
        self.not_logged += other.not_logged

    @property
    def selected(self) -> int:
        """The number of selected records."""
        return self.corrected + self.uncorrected

    @property
    def uncorrected(self) -> int:
        """The number of selected records without a correction."""
        return self.not_retained + self.not_logged + sum(self.refused.values()) + self.unfit

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and `selected` as a JSON object."""
        return {"selected": self.selected, **msgspec.to_builtins(self)}
