"""The results of the steps of a run, as their documents store them."""

from typing import Any, Literal

import msgspec

Outcome = Literal["promoted", "rollout", "same", "refused", "nothing-new", "too-few-labels"]
"""The outcome of a run. `rollout`: a rollout of the version was started."""


class RunPlan(msgspec.Struct, frozen=True):
    """The plan of a run, determined before its first step.

    `config` contains every setting that affects the model; with the digest of the environment it decides whether an interrupted
    run can continue. `champion` is the signature of the current version, as JSON like `signature`, or None if there is none.
    `anew`: train also if no label has arrived.
    """

    began_ms: int
    config: dict[str, Any]
    signature: str
    champion: str | None
    environment: str
    anew: bool = False


class Part(msgspec.Struct, frozen=True):
    """Rows of one part: their Kafka timestamps (Unix ms), the number of each class, and their digest (`JoinResult.digest`)."""

    part: str
    from_ms: int
    to_ms: int
    rows: int
    classes: dict[str, int]
    digest: str


class JoinResult(msgspec.Struct, frozen=True):
    """The result of the join: counts, the omitted records with the first position of each reason, and the parts by time."""

    mature: int
    labelled: int
    coverage: float
    classes: dict[str, int]
    left_out: dict[str, Any]
    labels: dict[str, Any]
    parts: tuple[Part, ...]
    run: str
    version: str


class Counted(msgspec.Struct, frozen=True):
    """A copied snapshot."""

    digest: str
    events: int
    labels: int


class Trained(msgspec.Struct, frozen=True):
    """The training: rows, the number of trees or epochs, and the parameters."""

    rows: int
    budget: int
    parameters: dict[str, int | float | str]


class ExportResult(msgspec.Struct, frozen=True):
    """The package: the largest difference between the ONNX model and the trained model, and the digest of each file."""

    parity: float
    files: dict[str, str]


class Pushed(msgspec.Struct, frozen=True):
    """The version in the registry: the digests of its manifest and of its dataset; None if the dataset is not stored."""

    digest: str
    dataset: str | None


class ChampionState(msgspec.Struct, frozen=True):
    """The champion of a channel at a revision."""

    version: str
    digest: str
    revision: int


class Evaluated(msgspec.Struct, frozen=True):
    """The figures of the version on the hold-out rows.

    The matrix counts rows by label (row) and decision (column); rows that could not be scored are counted by reason. `champion`
    is None if there is none yet.
    """

    champion: ChampionState | None
    metrics: dict[str, float]
    labels: list[str]
    counts: list[list[int]]
    unscored: dict[str, int]


class Promotion(msgspec.Struct, frozen=True):
    """The channel that was moved to a revision, or the rollout that was started."""

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
    """Convert a result to a JSON document."""
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return document


class Moved(Exception):
    """The channel was moved since the version was evaluated; the version must be compared with the new champion."""


class Over(Exception):
    """The run has ended; its remaining steps do not run."""

    def __init__(self, outcome: Outcome, because: str) -> None:
        super().__init__(because)
        self.end = RunOutcome(outcome, because)
