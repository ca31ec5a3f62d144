"""Every setting of `training.yaml`. Events, labels and the model's repository are the scorer's (`scorer.yaml`).
How a file, the environment (`TRAINING_...`) and flags are merged: publisher/runtime/configuration.py."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo, field_validator
from pydantic_settings import SettingsConfigDict

from model_registry.errors import RegistryError
from model_registry.package import json_path
from publisher.errors import USAGE, Fatal
from publisher.runtime import configuration
from publisher.runtime.configuration import Configuration, Section, SettingsError
from publisher.runtime.time_range import UNITS, seconds
from scorer import settings as scorer_settings
from scorer.evaluation.join_labels import labels_topic

PATHS = ("scorer", "signature", "folder")
BLOCKS = (5, 1_000)
"""The fewest and the most blocks of the hold-out: of fewer nothing is known of how much a difference varies."""


def milliseconds(duration: Any) -> int:
    """The milliseconds of a duration such as 90s, 15m, 1h or 7d. Raises ValueError."""
    return seconds(str(duration)) * 1_000


def written(ms: int) -> str:
    """A duration as `milliseconds` reads it, in its largest unit."""
    whole = ms // 1_000
    return next(f"{whole // size}{unit}" for unit, size in reversed(UNITS.items()) if whole % size == 0)


Duration = Annotated[int, BeforeValidator(milliseconds), PlainSerializer(written)]
"""Milliseconds, written as 90s, 15m, 1h or 7d."""


class LabelsSection(Section):
    after: Duration = milliseconds("1d")
    """How long after an event its outcome is known: younger events are left out."""
    coverage: float = Field(default=0.9, ge=0, le=1)
    """The share of the older events that must have a label: less ends with exit code 1."""


class SnapshotSection(Section):
    window: Duration = milliseconds("90d")
    """How far back from now events are read, by their Kafka timestamps."""
    validation: Duration = Field(default=milliseconds("14d"), gt=0)
    """The time before the hold-out, whose events choose among models."""
    hold_out: Duration = Field(default=milliseconds("14d"), gt=0)
    """The last time of labelled events, on which a model is judged."""
    at_least: int = Field(default=50_000, ge=3)
    """Fewer labelled events are too few."""
    keep: bool = True
    """Whether a run stores its snapshot as an artifact beside the version, so that others can reproduce it."""


class SearchSection(Section):
    trials: int = Field(default=16, ge=1, le=512)
    """How many sets of parameters are tried. 1: those of `parameters`, without a search."""
    rungs: tuple[int, ...] = Field(default=(27, 81, 243), min_length=1, max_length=12)
    """Trees (epochs, for a network) after which the worse trials stop. The model is trained as far as the best was best."""
    reduction: int = Field(default=3, ge=2, le=100)
    """After each rung one of so many trials goes on, rounded up: the best by the validation part."""

    @field_validator("rungs")
    @classmethod
    def _rising(cls, rungs: tuple[int, ...]) -> tuple[int, ...]:
        if rungs[0] < 1 or any(b <= a for a, b in pairwise(rungs)):
            raise ValueError("rungs are whole numbers that rise, such as [27, 81, 243]")
        return rungs


class GateSection(Section):
    metric: Literal["auc"] = "auc"
    """What champion and challenger are compared by, on the rows of the hold-out."""
    margin: float = Field(default=0.002, gt=0, lt=1)
    """How much worse than the champion is still not worse, by the interval's lower bound; so much may the Brier score rise."""
    promote: Literal["not-worse", "better"] = "not-worse"
    """`not-worse`: the interval of the difference lies above -margin. `better`: above 0."""
    block: Duration = Field(default=milliseconds("1d"), gt=0)
    """Events of one stretch of time are drawn together: they are alike."""
    resamples: int = Field(default=1_000, ge=100, le=100_000)
    """How often the hold-out is drawn again for the intervals."""
    confidence: float = Field(default=0.95, ge=0.5, lt=1)
    """Of the intervals, which are two-sided; those of all slices hold at once."""
    class_margin: float = Field(default=0.01, gt=0, lt=1)
    """How much lower recall and precision of a class may be, by the lower bound."""
    slices: tuple[str, ...] = ()
    """Paths of event fields whose values part the hold-out; each slice of 1,000 rows and more is judged too."""
    slice_margin: float = Field(default=0.03, gt=0, lt=1)
    """A slice that is so much worse, and not by chance, is refused."""

    @field_validator("slices")
    @classmethod
    def _paths(cls, slices: tuple[str, ...]) -> tuple[str, ...]:
        for each in slices:
            json_path.of_object(each)
        return slices


class PublishSection(Section):
    channel: str | None = None
    """The channel that is promoted; default: the scorer's `model.tag`."""
    key_file: Path | None = None
    """The private key that attests, and signs versions and moves, made by `model-registry keygen`. A run needs it."""
    password_file: Path | None = None
    """Holds the key's password; or set MODEL_REGISTRY_KEY_PASSWORD."""
    rollout: Path | None = None
    """A plan for `scorer rollout start`: a version that passes begins a rollout, instead of moving the channel."""


class Training(Configuration):
    """The whole configuration."""

    model_config = SettingsConfigDict(env_prefix="TRAINING_")

    scorer: Path
    """The scorer whose events and labels are taken."""
    signature: Path | None = None
    """The signature of the model; default: that of the version in the channel. A first model needs it."""
    folder: Path = Path("runs")
    """Where runs are kept, one folder each. Nothing is ever removed from it."""
    recipe: Literal["trees", "network"] = "trees"
    """`trees`: LightGBM. `network`: a multilayer perceptron (torch; the extra `network`)."""
    workers: int = Field(default=1, ge=1, le=1_024)
    """Processes: trials of the search at the same time; of a network, what it is trained by. The result is the same."""
    gpus: int = Field(default=0, ge=0, le=1_024)
    """GPUs that a network is trained on, one a worker. 0: none."""
    seed: int = Field(default=2013, ge=0, lt=2**31)
    """Of everything that is drawn."""
    parameters: dict[str, int | float | str] = Field(default_factory=dict)
    """Parameters of the recipe that are stated, not searched."""
    labels: LabelsSection = LabelsSection()
    snapshot: SnapshotSection = Field(default=SnapshotSection(), validate_default=True)
    search: SearchSection = SearchSection()
    gate: GateSection = Field(default=GateSection(), validate_default=True)
    publish: PublishSection = PublishSection()

    @field_validator("snapshot")
    @classmethod
    def _time_to_train(cls, snapshot: SnapshotSection, info: ValidationInfo) -> SnapshotSection:
        """Something is left of the window for training."""
        after = info.data["labels"].after if "labels" in info.data else 0
        taken = {"labels.after": after, "validation": snapshot.validation, "hold_out": snapshot.hold_out}
        if sum(taken.values()) >= snapshot.window:
            told = ", ".join(f"{name} {written(ms)}" for name, ms in taken.items())
            raise ValueError(f"window {written(snapshot.window)} leaves no time to train on beside {told}; make it longer")
        return snapshot

    @field_validator("gate")
    @classmethod
    def _blocks(cls, gate: GateSection, info: ValidationInfo) -> GateSection:
        """The hold-out has enough blocks to draw from, and not too many to count with."""
        if "snapshot" not in info.data:
            return gate
        hold_out = info.data["snapshot"].hold_out
        blocks = hold_out / gate.block
        if not BLOCKS[0] <= blocks <= BLOCKS[1]:
            told = f"block {written(gate.block)} parts snapshot.hold_out {written(hold_out)} into {blocks:,.6g} blocks"
            raise ValueError(f"{told}; {BLOCKS[0]} to {BLOCKS[1]:,} are drawn from")
        return gate


def load(path: Path, flags: Sequence[str] = ()) -> tuple[Training, scorer_settings.Settings]:
    """The settings, and those of the scorer. Raises Fatal (2) naming key, value and way out."""
    try:
        training = configuration.load(Training, path, flags, _absolute).settings
        scorer = scorer_settings.load(training.scorer).settings
    except (SettingsError, RegistryError) as error:
        raise Fatal(str(error), exit_code=USAGE) from None
    labels_topic(scorer)
    publish = training.publish
    if publish.rollout and publish.channel not in (None, scorer.model.tag):
        told = f"publish.channel is {publish.channel!r}, and a rollout moves the scorer's model.tag {scorer.model.tag!r}"
        raise Fatal(told, "leave publish.channel out, or publish.rollout", USAGE)
    return training.model_copy(update={"folder": path.parent.resolve() / training.folder}), scorer


def _absolute(values: dict[str, Any], base: Path) -> None:
    """Paths resolve from where they were written: a file's from its folder, others from the working directory."""
    sections: list[tuple[Any, Sequence[str]]] = [
        (values, PATHS),
        (values.get("publish"), ("key_file", "password_file", "rollout")),
    ]
    for section, keys in sections:
        for key in keys if isinstance(section, dict) else ():
            if isinstance(section.get(key), str):
                section[key] = (base / section[key]).resolve()
