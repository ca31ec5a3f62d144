"""What a run of training attests beside its version, typed: provenance, evaluation and comparison, as far as they are shown.

Everybody who writes to the registry writes these, so every text, list and number is bounded. Keys that nobody shows are passed
over. deploy/training/README.md describes the documents.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from model_registry.signing.predicates import COMPARISON, EVALUATION, PROVENANCE

TRAINING_BUILD = "https://scorestream.io/training/v1"
MOST_TRIALS, MOST_RUNGS = 512, 12
LARGEST = 1 << 53  # whole numbers are exact to here in a float, too

Text = Annotated[str, Meta(max_length=200)]
Sentence = Annotated[str, Meta(max_length=2_000)]
Number = Annotated[float, Meta(ge=-1e15, le=1e15)]
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Whole = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
Scalar = bool | Whole | Number | Text | None
Figures = Annotated[dict[Text, Number | None], Meta(max_length=64)]
Scalars = Annotated[list[Scalar], Meta(max_length=64)]
Parameters = Annotated[dict[Text, bool | Whole | Number | Text | Scalars | None], Meta(max_length=64)]
Digests = Annotated[dict[Text, Text], Meta(max_length=8)]
Document = TypeVar("Document", bound=msgspec.Struct)


class AttestedMatrix(msgspec.Struct, frozen=True):
    """Counts of events: true classes by row, predicted ones by column, both in the order of `labels`."""

    labels: Annotated[list[Text | Whole | Number | bool], Meta(min_length=1, max_length=100)]
    counts: Annotated[list[Annotated[list[Count], Meta(max_length=100)]], Meta(max_length=100)]

    def __post_init__(self) -> None:
        if [len(row) for row in self.counts] != [len(self.labels)] * len(self.labels):
            raise ValueError(f"confusion_matrix.counts must have {len(self.labels)} rows of {len(self.labels)} counts")

    @property
    def names(self) -> list[str]:
        return [str(label) for label in self.labels]


class MetricDifference(msgspec.Struct, frozen=True):
    """The challenger's metric less the champion's, and its interval."""

    value: Number
    low: Number
    high: Number


class ComparedVersion(msgspec.Struct, frozen=True):
    """A version as it was judged. `revision` is the channel's that named the champion."""

    version: Text = ""
    digest: Text = ""
    revision: Count | None = None
    metrics: Figures = {}
    confusion_matrix: AttestedMatrix | None = None


class HoldOutRows(msgspec.Struct, frozen=True):
    """The rows that both were judged on; `blocks` are the stretches of time that were drawn."""

    digest: Text = ""
    count: Count = 0
    start: Text = msgspec.field(default="", name="from")
    end: Text = msgspec.field(default="", name="to")
    blocks: Count = 0


class DiscordantRows(msgspec.Struct, frozen=True):
    only_champion_right: Count
    only_challenger_right: Count
    mcnemar_p: Number | None = None


class SliceResult(msgspec.Struct, frozen=True):
    """Those of the rows whose `field` has this value."""

    field: Text
    value: Scalar
    rows: Count = 0
    difference: MetricDifference | None = None


class RuleResult(msgspec.Struct, frozen=True):
    name: Text
    passed: bool
    value: Number | None = None
    bound: Number | None = None


class ComparisonDocument(msgspec.Struct, frozen=True):
    """Challenger and champion on the same rows, and the verdict. Without a champion the challenger is a first model."""

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
    rules: Annotated[list[RuleResult], Meta(max_length=100)] = []


class TrialScore(msgspec.Struct, frozen=True):
    trial: Count
    score: Number | None = None


class SearchRung(msgspec.Struct, frozen=True):
    """The trials that were trained for `budget` trees (or epochs), and which of them went on."""

    budget: Count
    trials: Annotated[list[TrialScore], Meta(max_length=MOST_TRIALS)] = []
    kept: Annotated[list[Count], Meta(max_length=MOST_TRIALS)] = []


class SearchTrial(msgspec.Struct, frozen=True):
    trial: Count


class BestTrial(msgspec.Struct, frozen=True):
    trial: Count
    score: Number | None = None
    budget: Count = 0
    parameters: Parameters = {}


class SearchDocument(msgspec.Struct, frozen=True):
    """Trees (or epochs) were `spent` in all; without stopping any trial they would have been `unstopped`."""

    metric: Text = ""
    rungs: Annotated[list[SearchRung], Meta(max_length=MOST_RUNGS)] = []
    trials: Annotated[list[SearchTrial], Meta(max_length=MOST_TRIALS)] = []
    best: BestTrial | None = None
    spent: Count = 0
    unstopped: Count = 0


class GateMargins(msgspec.Struct, frozen=True):
    """How a run was to be judged, as its configuration says."""

    margin: Number | None = None
    slice_margin: Number | None = None


class TrainingConfig(msgspec.Struct, frozen=True):
    gate: GateMargins = GateMargins()


class RunConfig(msgspec.Struct, frozen=True):
    training: TrainingConfig = TrainingConfig()


class ExternalParameters(msgspec.Struct, frozen=True):
    config: RunConfig = RunConfig()


class InternalParameters(msgspec.Struct, frozen=True):
    run: Text = ""
    seed: Whole | None = None
    recipe: Text = ""
    parameters: Parameters = {}
    search: SearchDocument | None = None


class OffsetRange(msgspec.Struct, frozen=True):
    """A stretch of a partition, by offset, or the revision of a version."""

    start: Count | None = msgspec.field(default=None, name="from")
    end: Count | None = msgspec.field(default=None, name="to")
    version: Text = ""
    revision: Count = 0


class ResolvedDependency(msgspec.Struct, frozen=True):
    name: Text = ""
    uri: Annotated[str, Meta(max_length=1_000)] = ""
    digest: Digests = {}
    annotations: OffsetRange = OffsetRange()

    @property
    def sha256(self) -> str:
        """Its digest as a reference writes it; empty where there is none."""
        return f"sha256:{self.digest['sha256']}" if "sha256" in self.digest else ""


class BuildDefinition(msgspec.Struct, frozen=True, rename="camel"):
    build_type: Text
    external_parameters: ExternalParameters = ExternalParameters()
    internal_parameters: InternalParameters = InternalParameters()
    resolved_dependencies: Annotated[list[ResolvedDependency], Meta(max_length=1_000)] = []


class ProvenanceDocument(msgspec.Struct, frozen=True, rename="camel"):
    """Where a version comes from."""

    build_definition: BuildDefinition

    @property
    def run(self) -> InternalParameters:
        return self.build_definition.internal_parameters

    @property
    def gate(self) -> GateMargins:
        return self.build_definition.external_parameters.config.training.gate

    def named(self, name: str) -> list[ResolvedDependency]:
        """What of this name went into the version."""
        return [one for one in self.build_definition.resolved_dependencies if one.name == name]


class EvaluatedDataset(msgspec.Struct, frozen=True):
    name: Text = ""
    digest: Text | Digests = ""


class EvaluationDocument(msgspec.Struct, frozen=True):
    """How well a version does on a dataset."""

    dataset: Text | EvaluatedDataset
    metrics: Figures = {}
    confusion_matrix: AttestedMatrix | None = None


TYPES: Mapping[str, type[ProvenanceDocument] | type[EvaluationDocument] | type[ComparisonDocument]] = {
    PROVENANCE: ProvenanceDocument, EVALUATION: EvaluationDocument, COMPARISON: ComparisonDocument,
}  # fmt: skip
NAMES = {PROVENANCE: "provenance", EVALUATION: "evaluation", COMPARISON: "comparison"}


def read(predicate: Mapping[str, Any], type_: type[Document]) -> Document:
    """The document that a predicate is. Raises ValueError, which says in one line what is wrong with it."""
    try:
        return msgspec.convert(predicate, type_)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())[:300]) from None
