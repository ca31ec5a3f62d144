"""The document of a comparison: the versions, the rows, the rules and the verdict.

It is the predicate of an attestation (https://scorestream.io/attestations/comparison/v1). Every number is finite.
"""

from typing import Any, Literal

import msgspec

Verdict = Literal["passed", "refused", "same"]
"""The verdict on a challenger.

`passed`: it may be signed and promoted. `refused`: a rule failed. `same`: it gives the champion's scores and replaces nothing.
"""


class FigureDifference(msgspec.Struct, frozen=True):
    """The challenger's metric minus the champion's, with its confidence interval."""

    value: float
    low: float
    high: float


class ConfusionMatrix(msgspec.Struct, frozen=True):
    """Counts of rows by label (row) and decision (column)."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


class JudgedVersion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A version and its metrics on the compared rows.

    `revision` is the revision of the channel when the version was read from it; None for the new version of a run.
    """

    version: str
    digest: str
    revision: int | None = None
    metrics: dict[str, float]
    confusion_matrix: ConfusionMatrix


class ComparedRows(msgspec.Struct, frozen=True, rename={"begin": "from", "end": "to"}):
    """The rows that both versions scored: their digest, their number, their span of time, and their number of time blocks."""

    digest: str
    count: int
    begin: str
    end: str
    blocks: int


class Discordant(msgspec.Struct, frozen=True):
    """The numbers of rows that only one version decides correctly, and the p-value of McNemar's exact test of them.

    The test is only reported; no rule depends on it.
    """

    only_champion_right: int
    only_challenger_right: int
    mcnemar_p: float


class Slice(msgspec.Struct, frozen=True):
    """The rows whose `field` has this `value`, and the difference of the AUC on these rows.

    The intervals of all slices hold simultaneously.
    """

    field: str
    value: str
    rows: int
    difference: FigureDifference


class GateRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one rule of the gate.

    `bound` is None if the rule does not apply, and `value` is None if there is nothing to compare with the bound. Some rules
    compare the lower or upper end of a confidence interval: then `difference` is that interval, and `value` its end.
    """

    name: str
    value: float | None
    bound: float | None
    passed: bool
    difference: FigureDifference | None = None


class GateComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of a challenger with the champion, and the verdict.

    `champion`, `difference` and `discordant` are None for a first model. `because` is the reason of the verdict in one
    sentence.
    """

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
