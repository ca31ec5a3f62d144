"""The inputs of a verdict: the hold-out rows, their labels, and the answers of both versions. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from training.snapshot.rows import LabelledRows
from training.validation_gate.metrics import ModelAnswers
from training.validation_gate.slices import Texts


@dataclass(frozen=True, slots=True)
class Version:
    """A version and its answers for the hold-out rows.

    `revision` is the channel's revision if the version was selected by a channel, 0 if it was selected by its name or digest,
    and None for the new version of a run.
    """

    version: str
    digest: str
    scored: ModelAnswers
    revision: int | None = None


@dataclass(frozen=True, slots=True)
class VerdictEvidence:
    """The data on which a verdict is based.

    Attributes:
        rows: (B,), the labelled hold-out events.
        mature_times: (M,) int64, the times of all hold-out events that are old enough to have a label.
        champion: The champion; None if there is none yet.
        leaked: The number of hold-out rows on which the champion was trained; None if unknown.
        slices: The values of a field in all rows, (B,), by the name of the field.
    """

    run: str
    rows: LabelledRows
    mature_times: NDArray[np.int64]
    challenger: Version
    champion: Version | None = None
    leaked: int | None = None
    slices: Mapping[str, Texts] = field(default_factory=dict)

    @property
    def versions(self) -> tuple[Version, ...]:
        return (self.challenger,) if self.champion is None else (self.challenger, self.champion)

    @property
    def scored(self) -> NDArray[np.bool_]:
        """Return (B,) booleans: true for rows for which every version has a score."""
        scored_rows = np.ones(len(self.rows), np.bool_)
        for version in self.versions:
            scored_rows &= version.scored.scored
        return scored_rows

    def select(self, chosen: NDArray[np.bool_]) -> "VerdictEvidence":
        """Return the evidence for only the rows where `chosen` (B,) is true."""
        # `mature_times` is unchanged.
        champion = self.champion and replace(self.champion, scored=self.champion.scored.select(chosen))
        challenger = replace(self.challenger, scored=self.challenger.scored.select(chosen))
        slices = {name: column[chosen] for name, column in self.slices.items()}
        return replace(self, rows=self.rows.select(chosen), champion=champion, challenger=challenger, slices=slices)
