"""The documents that a training run attests: provenance, evaluation and comparison, as far as the console shows them.

Undeclared keys are ignored. deploy/training/README.md describes the documents.
"""

# Every user with write access to the registry can write such documents, so every text, list and number is bounded.

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from model_registry.signing.predicates import COMPARISON, EVALUATION, PROVENANCE

TRAINING_BUILD = "https://scorestream.io/training/v1"
MAX_TRIALS = 512
MAX_RUNGS = 12
MAX_FIGURES = 2_048  # metrics and rules of a version: precision and recall of each class are among them
MAX_LABELS = 101  # of a confusion matrix: 100 classes, and one label for decisions that are no class
MAX_LOG = 16_384  # characters of the end of a log
LARGEST = 1 << 53  # integers up to here are exact in a float

Text = Annotated[str, Meta(max_length=200)]
Sentence = Annotated[str, Meta(max_length=2_000)]
LogText = Annotated[str, Meta(max_length=MAX_LOG)]
Number = Annotated[float, Meta(ge=-1e15, le=1e15)]
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
UnixMs = Annotated[int, Meta(ge=0, le=10**14)]
"""A time in Unix milliseconds that `datetime` can represent."""
Whole = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
Scalar = bool | Whole | Number | Text | None
Figures = Annotated[dict[Text, Number | None], Meta(max_length=MAX_FIGURES)]
Scalars = Annotated[list[Scalar], Meta(max_length=64)]
Values = Mapping[str, float | None]
"""The values of metrics by name; None for a value that is no finite number."""
Parameters = Annotated[dict[Text, bool | Whole | Number | Text | Scalars | None], Meta(max_length=64)]
Digests = Annotated[dict[Text, Text], Meta(max_length=8)]
Document = TypeVar("Document", bound=msgspec.Struct)


class AttestedMatrix(msgspec.Struct, frozen=True):
    """A confusion matrix: true classes by row, predicted classes by column, in the order of `labels`."""

    labels: Annotated[list[Text | Whole | Number | bool], Meta(min_length=1, max_length=MAX_LABELS)]
    counts: Annotated[list[Annotated[list[Count], Meta(max_length=MAX_LABELS)]], Meta(max_length=MAX_LABELS)]

    def __post_init__(self) -> None:
        if [len(row) for row in self.counts] != [len(self.labels)] * len(self.labels):
            raise ValueError(f"confusion_matrix.counts must have {len(self.labels)} rows of {len(self.labels)} counts")

    @property
    def names(self) -> list[str]:
        """The labels as texts."""
        return [str(label) for label in self.labels]


class CoverageFigures(msgspec.Struct, frozen=True):
    """The share of the outcomes that are in their predicted intervals (`value`), with its confidence interval.

    `level` is the intended share, for example 0.9 for intervals that should contain 90 % of the outcomes.
    """

    level: Number
    value: Number
    low: Number
    high: Number


class MetricDifference(msgspec.Struct, frozen=True):
    """The challenger's metric minus the champion's (`value`), with its confidence interval."""

    value: Number
    low: Number
    high: Number


class ComparedVersion(msgspec.Struct, frozen=True):
    """The champion or the challenger in a comparison.

    For the champion, `revision` is the channel revision that named it as champion.
    """

    version: Text = ""
    digest: Text = ""
    revision: Count | None = None
    metrics: Figures = {}
    confusion_matrix: AttestedMatrix | None = None
    interval_coverage: CoverageFigures | None = None


class HoldOutRows(msgspec.Struct, frozen=True):
    """The hold-out rows on which both versions are compared. `blocks` counts the time blocks that the bootstrap resamples."""

    digest: Text = ""
    count: Count = 0
    start: Text = msgspec.field(default="", name="from")
    end: Text = msgspec.field(default="", name="to")
    blocks: Count = 0


class DiscordantRows(msgspec.Struct, frozen=True):
    """The numbers of rows that only one of the versions predicted correctly, and the p-value of McNemar's test."""

    only_champion_right: Count
    only_challenger_right: Count
    mcnemar_p: Number | None = None


class SliceResult(msgspec.Struct, frozen=True):
    """The difference of a metric on the rows in which `field` has the value `value`. `rows` is the number of these rows.

    The margin of a slice is the largest allowed loss against the champion. `scale` is the number by which the margin is
    multiplied; None if the margin is absolute.
    """

    field: Text
    value: Scalar
    rows: Count = 0
    difference: MetricDifference | None = None
    scale: Number | None = None


class RuleResult(msgspec.Struct, frozen=True):
    """The result of one rule of the verdict: whether it passed, the measured value, and the bound of this value."""

    name: Text
    passed: bool
    value: Number | None = None
    bound: Number | None = None


class ComparisonDocument(msgspec.Struct, frozen=True):
    """The comparison of challenger and champion on the same hold-out rows, and its verdict.

    The first version of a model has no champion.
    """

    verdict: Literal["passed", "refused", "same"]
    challenger: ComparedVersion
    run: Text = ""
    because: Sentence = ""
    metric: Text = ""
    rows: HoldOutRows = HoldOutRows()
    champion: ComparedVersion | None = None
    difference: MetricDifference | None = None
    discordant: DiscordantRows | None = None
    slices: Annotated[list[SliceResult], Meta(max_length=200)] = []
    rules: Annotated[list[RuleResult], Meta(max_length=MAX_FIGURES)] = []


class TrialScore(msgspec.Struct, frozen=True):
    """The score of a trial in one rung of the search."""

    trial: Count
    score: Number | None = None


class SearchRung(msgspec.Struct, frozen=True):
    """One rung of a successive-halving search.

    Attributes:
        budget: The number of trees or epochs that each trial was trained for.
        trials: The trials with their scores.
        kept: The numbers of the trials that continue in the next rung.
    """

    budget: Count
    trials: Annotated[list[TrialScore], Meta(max_length=MAX_TRIALS)] = []
    kept: Annotated[list[Count], Meta(max_length=MAX_TRIALS)] = []


class SearchTrial(msgspec.Struct, frozen=True):
    """A trial of the search: one choice of hyperparameters."""

    trial: Count
    parameters: Parameters = {}


class BestTrial(msgspec.Struct, frozen=True):
    """The selected trial: its parameters, its score, and the number of trees or epochs (`budget`) of that score."""

    trial: Count
    score: Number | None = None
    budget: Count = 0
    parameters: Parameters = {}


class SearchFailure(msgspec.Struct, frozen=True):
    """A trial that failed at a budget: the reason, and the end of its log."""

    trial: Count
    budget: Count = 0
    reason: Annotated[str, Meta(max_length=20_000)] = ""
    log: Annotated[str, Meta(max_length=20_000)] = ""


class SearchDocument(msgspec.Struct, frozen=True):
    """A hyperparameter search by successive halving.

    Attributes:
        goal: Whether a larger or a smaller metric is better.
        spent: The number of trees or epochs that the search has trained.
        unstopped: The number of trees or epochs that it would have trained without early stopping.
    """

    metric: Text = ""
    rungs: Annotated[list[SearchRung], Meta(max_length=MAX_RUNGS)] = []
    trials: Annotated[list[SearchTrial], Meta(max_length=MAX_TRIALS)] = []
    best: BestTrial | None = None
    spent: Count = 0
    unstopped: Count = 0
    goal: Literal["max", "min"] = "max"
    failures: Annotated[list[SearchFailure], Meta(max_length=MAX_TRIALS)] = []


class GateMargins(msgspec.Struct, frozen=True):
    """The largest allowed loss of the metric against the champion: on all rows (`margin`), and on a slice (`slice_margin`)."""

    margin: Number | None = None
    slice_margin: Number | None = None


class TrainingConfig(msgspec.Struct, frozen=True):
    """The `training` section of the run's configuration."""

    gate: GateMargins = GateMargins()


class RunConfig(msgspec.Struct, frozen=True):
    """The run's configuration."""

    training: TrainingConfig = TrainingConfig()


class ExternalParameters(msgspec.Struct, frozen=True):
    """The external parameters of the build (SLSA provenance)."""

    config: RunConfig = RunConfig()


class InternalParameters(msgspec.Struct, frozen=True):
    """The internal parameters of the build (SLSA provenance): run, recipe and search."""

    run: Text = ""
    seed: Whole | None = None
    recipe: Text = ""
    parameters: Parameters = {}
    search: SearchDocument | None = None


class InputAnnotations(msgspec.Struct, frozen=True):
    """Annotations of an input of a training run: a partition's offset range, or a model's version and revision."""

    start: Count | None = msgspec.field(default=None, name="from")
    end: Count | None = msgspec.field(default=None, name="to")
    version: Text = ""
    revision: Count = 0


class ResolvedDependency(msgspec.Struct, frozen=True):
    """An input of the training run (a resolved dependency in SLSA provenance)."""

    name: Text = ""
    uri: Annotated[str, Meta(max_length=1_000)] = ""
    digest: Digests = {}
    annotations: InputAnnotations = InputAnnotations()

    @property
    def sha256(self) -> str:
        """The digest as `sha256:...`; empty if there is none."""
        return f"sha256:{self.digest['sha256']}" if "sha256" in self.digest else ""


class BuildDefinition(msgspec.Struct, frozen=True, rename="camel"):
    """The build definition (SLSA provenance)."""

    build_type: Text
    external_parameters: ExternalParameters = ExternalParameters()
    internal_parameters: InternalParameters = InternalParameters()
    resolved_dependencies: Annotated[list[ResolvedDependency], Meta(max_length=1_000)] = []


class ProvenanceDocument(msgspec.Struct, frozen=True, rename="camel"):
    """The SLSA provenance of a version."""

    build_definition: BuildDefinition

    @property
    def run(self) -> InternalParameters:
        """The internal parameters: those of the run that trained the version."""
        return self.build_definition.internal_parameters

    @property
    def gate(self) -> GateMargins:
        """The margins of the run's validation gate."""
        return self.build_definition.external_parameters.config.training.gate

    def named(self, name: str) -> list[ResolvedDependency]:
        """Return the inputs with this name, in their order."""
        return [each for each in self.build_definition.resolved_dependencies if each.name == name]


class EvaluatedDataset(msgspec.Struct, frozen=True):
    """The dataset of an evaluation."""

    name: Text = ""
    digest: Text | Digests = ""


class ResidualHistogram(msgspec.Struct, frozen=True):
    """The residuals of a regression, score minus label: `counts[i]` rows are between `edges[i]` and `edges[i + 1]`."""

    edges: Annotated[list[Number], Meta(min_length=2, max_length=257)]
    counts: Annotated[list[Count], Meta(min_length=1, max_length=256)]

    def __post_init__(self) -> None:
        if len(self.edges) != len(self.counts) + 1 or any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError(f"residuals.edges must be {len(self.counts) + 1} ascending numbers")


class EvaluationDocument(msgspec.Struct, frozen=True):
    """The evaluation of a version: its metrics on a dataset. A regression has residuals instead of a confusion matrix."""

    dataset: Text | EvaluatedDataset
    metrics: Figures = {}
    confusion_matrix: AttestedMatrix | None = None
    residuals: ResidualHistogram | None = None
    interval_coverage: CoverageFigures | None = None


TYPES: Mapping[str, type[ProvenanceDocument] | type[EvaluationDocument] | type[ComparisonDocument]] = {
    PROVENANCE: ProvenanceDocument,
    EVALUATION: EvaluationDocument,
    COMPARISON: ComparisonDocument,
}
NAMES = {PROVENANCE: "provenance", EVALUATION: "evaluation", COMPARISON: "comparison"}


def read(predicate: Mapping[str, Any], type_: type[Document]) -> Document:
    """Decode the predicate of an attestation as a document. Raises ValueError with a message of one line."""
    try:
        return msgspec.convert(predicate, type_)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())[:300]) from None
