"""The document of a comparison: the versions, the rows, the rules and the verdict.

It is the predicate of an attestation (https://scorestream.io/attestations/comparison/v1). Every number is finite.
"""

from typing import Any, Literal

import msgspec

Verdict = Literal["passed", "refused", "same"]
"""`passed` alone may be signed and promoted. `same`: the challenger gives the champion's scores, so nothing is moved."""


class FigureDifference(msgspec.Struct, frozen=True):
    """The challenger's figure minus the champion's, with its interval."""

    value: float
    low: float
    high: float


class ConfusionMatrix(msgspec.Struct, frozen=True):
    """Counts of rows by label (row) and decision (column)."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


class JudgedVersion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A version on the rows. `revision`: that of the channel when the champion was read."""

    version: str
    digest: str
    revision: int | None = None
    metrics: dict[str, float]
    confusion_matrix: ConfusionMatrix


class ComparedRows(msgspec.Struct, frozen=True, rename={"begin": "from", "end": "to"}):
    """The rows that both versions scored: their digest, time span, and resampling blocks."""

    digest: str
    count: int
    begin: str
    end: str
    blocks: int


class Discordant(msgspec.Struct, frozen=True):
    """Rows that only one version decides correctly. McNemar's exact test of them is shown and decides nothing."""

    only_champion_right: int
    only_challenger_right: int
    mcnemar_p: float


class Slice(msgspec.Struct, frozen=True):
    """The rows whose field has this value. The intervals of all slices hold simultaneously."""

    field: str
    value: str
    rows: int
    difference: FigureDifference


class GateRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rule.

    `value` None: there is nothing to compare with the bound. `bound` None: the rule does not apply. `difference`: the interval
    that the value is an end of.
    """

    name: str
    value: float | None
    bound: float | None
    passed: bool
    difference: FigureDifference | None = None


class GateComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison. `champion` and `difference` are None for a first model."""

    run: str
    rows: ComparedRows
    metric: str
    champion: JudgedVersion | None
    challenger: JudgedVersion
    difference: FigureDifference | None
    discordant: Discordant | None
    slices: tuple[Slice, ...]
    rules: tuple[GateRule, ...]
    verdict: Verdict
    because: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document."""
        document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return document
