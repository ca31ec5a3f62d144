"""The results of the steps of a training run, as the topic of runs has them: as far as the console and `show` display them.

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
    """The plan: when the run began, and the digest of its environment (installed packages and Python version)."""

    began_ms: UnixMs = NO_TIME
    environment: Text = ""


class FrozenDocument(msgspec.Struct, frozen=True):
    """The freeze: when it was, and the id of the cluster."""

    now_ms: UnixMs = NO_TIME
    cluster_id: Text | None = None


class CopiedDocument(msgspec.Struct, frozen=True):
    """The copied snapshot: its digest, and its numbers of events and labels."""

    digest: Text = ""
    events: Count = 0
    labels: Count = 0


class SkippedRows(msgspec.Struct, frozen=True):
    """Omitted events or labels: for each reason their number, and the position of the first one."""

    counts: ClassCounts = {}
    first: Annotated[dict[Text, Annotated[str, Meta(max_length=1_000)]], Meta(max_length=100)] = {}


class RowsPart(msgspec.Struct, frozen=True):
    """The rows of the training, the validation or the hold-out.

    Attributes:
        from_ms: The first time of the rows (Unix ms).
        to_ms: The last time of the rows (Unix ms).
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
    """The join: counts of events and labels, the parts of the rows, and the id and the version of the run."""

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
    """The result of the step `evaluate`, of which the evaluation is made."""

    metrics: Figures = {}
    confusion_matrix: AttestedMatrix | None = None
    residuals: ResidualHistogram | None = None

    @property
    def evaluation(self) -> EvaluationDocument:
        """The evaluation, without the name of its dataset."""
        return EvaluationDocument("", self.metrics, self.confusion_matrix, self.residuals)


class PushedDocument(msgspec.Struct, frozen=True):
    """The push: the digest of the version."""

    digest: Text = ""


class PromotionDocument(msgspec.Struct, frozen=True):
    """The promotion: the channel, its new revision, or the id of the started rollout."""

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
