"""What comes of the steps of a run, as their documents have it."""

from typing import Any, Literal

import msgspec

Outcome = Literal["promoted", "rollout", "same", "refused", "nothing-new", "too-few-labels"]
"""How a run ends. `rollout`: a rollout of the version was begun."""


class Plan(msgspec.Struct, frozen=True):
    """What a run is to do, settled before it touches anything. `config` is every setting that leaves a trace in the model;
    with the digest of the environment it says whether a run that was broken off can go on. `champion` is the signature of the
    version that serves, as JSON like `signature`; None: there is none. `anew`: also where no label has come."""

    began_ms: int
    config: dict[str, Any]
    signature: str
    champion: str | None
    environment: str
    anew: bool = False


class Part(msgspec.Struct, frozen=True):
    """Rows of one part: their Kafka timestamps (Unix ms), how many of each class, and their digest (`Rows.digest`)."""

    part: str
    from_ms: int
    to_ms: int
    rows: int
    classes: dict[str, int]
    digest: str


class Rows(msgspec.Struct, frozen=True):
    """What a snapshot came to: counts, what was left out and where first, and the parts by time."""

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
    """A snapshot that is copied."""

    digest: str
    events: int
    labels: int


class Trained(msgspec.Struct, frozen=True):
    """What the model was trained on: rows, up to so many trees or epochs, with these parameters."""

    rows: int
    budget: int
    parameters: dict[str, int | float | str]


class Exported(msgspec.Struct, frozen=True):
    """The package: the largest difference between the ONNX model and what was trained, and the digest of each file."""

    parity: float
    files: dict[str, str]


class Pushed(msgspec.Struct, frozen=True):
    """The version in the registry: the digests of its manifest, and of its dataset's, None where that is not kept."""

    digest: str
    dataset: str | None


class Standing(msgspec.Struct, frozen=True):
    """The champion of a channel at a revision."""

    version: str
    digest: str
    revision: int


class Evaluated(msgspec.Struct, frozen=True):
    """The version on the held-out rows: figures, counts of rows by what came true (row) and what was decided (column), and how
    many rows it could not score, by reason. `champion` None: there is none yet."""

    champion: Standing | None
    metrics: dict[str, float]
    labels: list[str]
    counts: list[list[int]]
    unscored: dict[str, int]


class Promotion(msgspec.Struct, frozen=True):
    """The channel that was moved to a revision, or the rollout that was begun."""

    outcome: Literal["promoted", "rollout"]
    channel: str
    revision: int | None
    rollout: str | None

    def __str__(self) -> str:
        if self.outcome == "rollout":
            return f"the rollout {self.rollout} was begun"
        return f"the channel {self.channel} was moved, revision {self.revision}"


class End(msgspec.Struct, frozen=True):
    """How a run ended, and why, in one sentence."""

    outcome: Outcome
    because: str


def as_json(value: object) -> dict[str, Any]:
    """A result as a document."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return found


class Moved(Exception):
    """Somebody has moved the channel since the version was judged: it is to be judged beside the new champion."""


class Over(Exception):
    """A run has come to its end: nothing that is left of its course is to be done."""

    def __init__(self, outcome: Outcome, because: str) -> None:
        super().__init__(because)
        self.end = End(outcome, because)
