"""What a verdict is made of: the rows of the hold-out, what came true, and what both versions said. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from training.snapshot.rows import Rows
from training.validation_gate.metrics import Scored
from training.validation_gate.slices import Texts


@dataclass(frozen=True, slots=True)
class Version:
    """A version, and what it made of the rows. `revision` is the channel's, at which the champion was read."""

    version: str
    digest: str
    scored: Scored
    revision: int | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """`rows` (B,) are the labelled events of the hold-out, `classes` what the outcomes 0 and 1 are called. `mature_times` (M,)
    int64: those of all its events that are old enough to have a label. `champion` None: there is none yet. `leaked`: how many
    of the rows the champion learned from; None: nobody knows. `slices`: by field the value of each row."""

    run: str
    rows: Rows
    classes: tuple[str, str]
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
        """(B,): the rows that every version scores."""
        found = np.ones(len(self.rows), np.bool_)
        for one in self.versions:
            found &= np.isfinite(one.scored.scores)
        return found

    @property
    def true(self) -> NDArray[np.bool_]:
        """(B,): where the second class came true."""
        return np.asarray(self.rows.outcomes == 1)

    def select(self, chosen: NDArray[np.bool_]) -> "Evidence":
        """The same of these rows alone."""
        champion = self.champion and replace(self.champion, scored=self.champion.scored.select(chosen))
        challenger = replace(self.challenger, scored=self.challenger.scored.select(chosen))
        slices = {name: column[chosen] for name, column in self.slices.items()}
        return replace(self, rows=self.rows.select(chosen), champion=champion, challenger=challenger, slices=slices)
