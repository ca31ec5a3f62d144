"""The results of a run's steps in the topic of runs, limited to the fields that the console and `scorer train show` display.

Undeclared keys are ignored, and missing keys have defaults. Every text, list and number is bounded, as in `documents.py`.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from scorer.console.training.documents import (
    MAX_FIGURES,
    AttestedMatrix,
    ComparisonDocument,
    Count,
    CoverageFigures,
    EvaluationDocument,
    Figures,
    Number,
    ResidualHistogram,
    SearchDocument,
    Text,
    UnixMs,
)

ClassCounts = Annotated[dict[Text, Count], Meta(max_length=MAX_FIGURES)]
OutcomeRange = Annotated[dict[Text, Number], Meta(max_length=64)]
NO_TIME = 0


class PlanDocument(msgspec.Struct, frozen=True):
    """The result of the step `plan`: the start of the run, and the digest of its environment (packages and Python version)."""

    began_ms: UnixMs = NO_TIME
    environment: Text = ""


class FrozenDocument(msgspec.Struct, frozen=True):
    """The result of the step `freeze`, which fixes the offset ranges to read: its time, and the id of the Kafka cluster."""

    now_ms: UnixMs = NO_TIME
    cluster_id: Text | None = None


class CopiedDocument(msgspec.Struct, frozen=True):
    """The result of the step `copy`: the digest of the copied snapshot, and its numbers of events and labels."""

    digest: Text = ""
    events: Count = 0
    labels: Count = 0


class SkippedRows(msgspec.Struct, frozen=True):
    """Omitted events or labels: for each reason, their number (`counts`) and the position of the first one (`first`)."""

    counts: ClassCounts = {}
    first: Annotated[dict[Text, Annotated[str, Meta(max_length=1_000)]], Meta(max_length=100)] = {}


class RowsPart(msgspec.Struct, frozen=True):
    """The rows of one split of the dataset: training, validation or hold-out.

    Attributes:
        from_ms: The time of the oldest row (Unix ms).
        to_ms: The time of the newest row (Unix ms).
        classes: The number of rows by class; empty for a regression.
        outcomes: The mean and the range of the labels of a regression.
    """

    part: Text = ""
    from_ms: UnixMs = NO_TIME
    to_ms: UnixMs = NO_TIME
    rows: Count = 0
    classes: ClassCounts = {}
    outcomes: OutcomeRange = {}


class JoinDocument(msgspec.Struct, frozen=True):
    """The result of the step `join`, which joins events and labels.

    Attributes:
        mature: The number of events that are old enough to have a label.
        labelled: The number of mature events that have a label.
        coverage: `labelled` divided by `mature`.
        classes: The number of labelled events by class; empty for a regression.
        outcomes: The mean and the range of the labels of a regression.
        left_out: The omitted events.
        labels: The labels that were not used.
        parts: The rows of each split of the dataset.
        run: The id of the run.
        version: The name of the version that the run trains.
    """

    mature: Count = 0
    labelled: Count = 0
    coverage: Number = 0.0
    classes: ClassCounts = {}
    outcomes: OutcomeRange = {}
    left_out: SkippedRows = SkippedRows()
    labels: SkippedRows = SkippedRows()
    parts: Annotated[list[RowsPart], Meta(max_length=8)] = []
    run: Text = ""
    version: Text = ""


class EvaluatedDocument(msgspec.Struct, frozen=True):
    """The result of the step `evaluate`, from which the evaluation document is built."""

    metrics: Figures = {}
    confusion_matrix: AttestedMatrix | None = None
    residuals: ResidualHistogram | None = None
    interval_coverage: CoverageFigures | None = None

    @property
    def evaluation(self) -> EvaluationDocument:
        """The evaluation, without the name of its dataset."""
        return EvaluationDocument("", self.metrics, self.confusion_matrix, self.residuals, self.interval_coverage)


class PushedDocument(msgspec.Struct, frozen=True):
    """The result of the step `push`: the digest of the version."""

    digest: Text = ""


class PromotionDocument(msgspec.Struct, frozen=True):
    """The result of the step `promote`: the channel, and its new revision or the id of a started rollout; the other is None."""

    outcome: Text = ""
    channel: Text = ""
    revision: Count | None = None
    rollout: Text | None = None


STEP_DOCUMENTS: Mapping[str, type[msgspec.Struct]] = {
    "plan": PlanDocument,
    "freeze": FrozenDocument,
    "copy": CopiedDocument,
    "join": JoinDocument,
    "search": SearchDocument,
    "push": PushedDocument,
    "evaluate": EvaluatedDocument,
    "gate": ComparisonDocument,
    "promote": PromotionDocument,
}
"""The document of each step whose result is displayed."""
