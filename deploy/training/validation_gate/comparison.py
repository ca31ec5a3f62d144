"""The document of a comparison: the versions, the rows, the rules and the verdict.

The document is the predicate of an attestation (https://scorestream.io/attestations/comparison/v1). Every number in it is
finite.
"""

from typing import Any, Literal

import msgspec

from training.snapshot.target import Target

Verdict = Literal["passed", "refused", "same"]
"""The verdict on a challenger.

`passed`: the challenger may be signed and promoted. `refused`: a rule failed. `same`: the challenger gives the same scores as
the champion and is not promoted.
"""


class FigureDifference(msgspec.Struct, frozen=True):
    """The challenger's metric minus the champion's, with its confidence interval."""

    value: float
    low: float
    high: float


class ConfusionMatrix(msgspec.Struct, frozen=True):
    """Counts of hold-out rows: entry [i][j] counts the rows with the label `labels[i]` and the decision `labels[j]`.

    The labels are the classes. If some decisions are no class, such as "unsure", one more label at the end stands for them.
    """

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


class Residuals(msgspec.Struct, frozen=True):
    """A histogram of the residuals (score minus label) of a regression, in bins of equal width.

    `counts[i]` counts the residuals from `edges[i]` to `edges[i + 1]`; the outer bins also count residuals beyond them.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


class IntervalCoverage(msgspec.Struct, frozen=True):
    """The share of the labels that are in their predicted intervals, with its Wilson interval of 95 % (`low` to `high`).

    `level` is the share that the predictions are meant to reach.
    """

    level: float
    value: float
    low: float
    high: float


class JudgedVersion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A version and its metrics on the compared rows.

    Attributes:
        revision: The channel's revision if the version was selected by a channel, 0 if it was selected by its name or digest,
            and None for the new version of a run.
        confusion_matrix: The numbers of rows by label and decision; None for a regression and for more than 100 classes.
        residuals: A histogram of the residuals of a regression; None for classes.
        interval_coverage: The share of the labels that are in their predicted intervals; None if no interval is evaluated, or
            if the version predicts none.
    """

    version: str
    digest: str
    revision: int | None = None
    metrics: dict[str, float]
    confusion_matrix: ConfusionMatrix | None = None
    residuals: Residuals | None = None
    interval_coverage: IntervalCoverage | None = None


class ComparedRows(msgspec.Struct, frozen=True, rename={"begin": "from", "end": "to"}):
    """The rows that every compared version scored: their digest, number, time span (`begin` to `end`) and number of blocks."""

    digest: str
    count: int
    begin: str
    end: str
    blocks: int


class Discordant(msgspec.Struct, frozen=True):
    """The numbers of rows that only one of the two versions decides correctly, and the p-value of McNemar's exact test.

    The p-value is only reported; no rule depends on it.
    """

    only_champion_right: int
    only_challenger_right: int
    mcnemar_p: float


class Slice(msgspec.Struct, frozen=True, omit_defaults=True):
    """The difference of the metric (challenger minus champion) on the rows in which the field `field` has the value `value`.

    The intervals of all slices hold simultaneously with the confidence `gate.confidence`. For a regression, the gate multiplies
    `gate.slice_margin` by `scale`, the champion's metric on these rows. Otherwise `scale` is None.
    """

    field: str
    value: str
    rows: int
    difference: FigureDifference
    scale: float | None = None


class GateRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one rule of the gate.

    Attributes:
        name: The name of the rule.
        value: The checked number; None if it is unknown or the rule does not apply.
        bound: The limit of the number; None if there is no limit in this case.
        passed: Whether the rule passed.
        difference: The difference that was checked, with its confidence interval; None if `value` is not a difference.
    """

    name: str
    value: float | None
    bound: float | None
    passed: bool
    difference: FigureDifference | None = None


class GateComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of a challenger with the champion, and the verdict.

    Without a champion, `champion`, `difference` and `discordant` are None; `discordant` is also None for a regression.
    `because` is the reason of the verdict in one sentence.
    """

    run: str
    rows: ComparedRows
    target: Target
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
        """Return the comparison as a JSON document."""
        document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return document
