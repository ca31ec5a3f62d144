"""The results of the steps of a run, as their documents store them."""

from typing import Any, Literal

import msgspec

from training.snapshot.target import Target
from training.validation_gate.comparison import ConfusionMatrix, IntervalCoverage, Residuals

Outcome = Literal["promoted", "rollout", "same", "refused", "nothing-new", "too-few-labels"]
"""The outcome of a run.

`promoted`: the channel was moved to the version. `rollout`: a rollout of the version was started. `same`: the version gives
the same scores as the champion. `refused`: a rule of the gate failed. `nothing-new`: no new label has arrived since the last
run. `too-few-labels`: too few events have a label.
"""


class RunPlan(msgspec.Struct, frozen=True):
    """The plan of a run: the result of its first step.

    An interrupted run continues only if the configuration, the signature and the environment are unchanged.

    Attributes:
        began_ms: when the run began, in Unix ms.
        config: every setting that affects the model.
        signature: the signature of the new version as JSON.
        champion: the signature of the champion as JSON; None without a champion.
        environment: the digest of the environment.
        force_new: whether to train even if no new label has arrived since the last run.
    """

    began_ms: int
    config: dict[str, Any]
    signature: str
    champion: str | None
    environment: str
    force_new: bool = False


class Part(msgspec.Struct, frozen=True):
    """A summary of the rows of one part of the snapshot: training, validation or hold-out.

    Attributes:
        from_ms: The first Kafka timestamp of the rows (Unix ms).
        to_ms: The last Kafka timestamp of the rows (Unix ms).
        classes: The number of rows by class; empty for a regression.
        digest: A digest of the positions and labels of the rows.
        outcomes: The mean, standard deviation, minimum and maximum of the labels of a regression; empty for classes.
    """

    part: str
    from_ms: int
    to_ms: int
    rows: int
    classes: dict[str, int]
    digest: str
    outcomes: dict[str, float] = {}


class JoinResult(msgspec.Struct, frozen=True):
    """The result of the step `join`.

    Attributes:
        mature: The number of events that are old enough to have a label.
        labelled: The number of mature events that have a label.
        coverage: `labelled` divided by `mature`.
        target: The kind of the labels (classes or a number), and the names of the classes.
        classes: The number of labelled events by class; empty for a regression.
        outcomes: The mean, standard deviation, minimum and maximum of the labels of a regression; empty for classes.
        left_out: The omitted events: for each reason, their number and the position of the first one.
        labels: The labels that were not used, such as unreadable labels: for each reason, their number and the position of the
            first one.
        parts: Summaries of the rows for training, validation and hold-out.
        run: The id of the run.
        version: The name of the version that the run trains.
    """

    mature: int
    labelled: int
    coverage: float
    target: Target
    classes: dict[str, int]
    outcomes: dict[str, float]
    left_out: dict[str, Any]
    labels: dict[str, Any]
    parts: tuple[Part, ...]
    run: str
    version: str


class Counted(msgspec.Struct, frozen=True):
    """The result of the step `copy`: the digest of the snapshot, and the numbers of copied events and labels."""

    digest: str
    events: int
    labels: int


class Trained(msgspec.Struct, frozen=True):
    """The result of the step `train`: the numbers of training rows and of trees or epochs, and the recipe's parameters."""

    rows: int
    budget: int
    parameters: dict[str, int | float | str]


class ExportResult(msgspec.Struct, frozen=True):
    """The result of the step `export`.

    `parity` is the largest difference between the scores of the ONNX model and of the trained model; None for a recipe that is
    a user's command. `files` has the digest of each file of the package by name.
    """

    parity: float | None
    files: dict[str, str]


class Pushed(msgspec.Struct, frozen=True):
    """The pushed version: the digests of its manifest and its dataset. `dataset` is None if the snapshot is not stored."""

    digest: str
    dataset: str | None


class ChampionState(msgspec.Struct, frozen=True):
    """The champion of a channel, and the revision of the channel that made it the champion.

    The command `compare` also uses this class for other versions, with the revision 0.
    """

    version: str
    digest: str
    revision: int


class Evaluated(msgspec.Struct, frozen=True):
    """The result of the step `evaluate`: the new version's metrics on the hold-out rows, and the champion to compare it with.

    Attributes:
        confusion_matrix: The numbers of rows by label and decision; None for a regression and for more than 100 classes.
        residuals: A histogram of the residuals of a regression; None for classes.
        unscored: The number of rows without a score, by reason.
        champion: The champion; None if the channel has no version yet.
        interval_coverage: The share of the labels that are in their predicted intervals; None if no interval is predicted.
    """

    champion: ChampionState | None
    metrics: dict[str, float]
    confusion_matrix: ConfusionMatrix | None
    residuals: Residuals | None
    unscored: dict[str, int]
    interval_coverage: IntervalCoverage | None = None


class Promotion(msgspec.Struct, frozen=True):
    """The result of the step `promote`: the revision of the moved channel, or the id of the started rollout.

    Exactly one of `revision` and `rollout` is set; the other one is None.
    """

    outcome: Literal["promoted", "rollout"]
    channel: str
    revision: int | None
    rollout: str | None

    def __str__(self) -> str:
        if self.outcome == "rollout":
            return f"the rollout {self.rollout} was started"
        return f"the channel {self.channel} was moved, revision {self.revision}"


class RunOutcome(msgspec.Struct, frozen=True):
    """The outcome of a run and its reason, in one sentence."""

    outcome: Outcome
    because: str


def as_json(value: object) -> dict[str, Any]:
    """Convert the result of a step to a JSON document."""
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return document


class Moved(Exception):
    """The channel was moved since the version was evaluated; the version must be compared with the new champion."""


class Over(Exception):
    """Raised by a step to end the run early, without the remaining steps. `end` is the outcome of the run."""

    def __init__(self, outcome: Outcome, because: str) -> None:
        super().__init__(because)
        self.end = RunOutcome(outcome, because)
