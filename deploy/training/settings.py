"""Every setting of a training run, `training.yaml`. Events, labels and the model's repository are the scorer's (`scorer.yaml`).
How a file, the environment (`TRAINING_...`) and flags are merged: publisher/process/configuration.py."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from model_registry.errors import RegistryError
from publisher.errors import USAGE, Fatal
from publisher.process import configuration
from publisher.process.configuration import Configuration, Section, SettingsError
from publisher.process.time_window import UNITS, seconds
from scorer import settings as scorer_settings
from scorer.rollout.labels.reading import labels_topic

PATHS = ("scorer", "signature", "runs")


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
    """The share of the older events that must have a label, or the gate refuses."""


class SnapshotSection(Section):
    window: Duration = milliseconds("90d")
    """How far back from now events are read, by their Kafka timestamps."""
    validation: Duration = Field(default=milliseconds("14d"), gt=0)
    """The time before the hold-out whose events stop and choose the trials."""
    hold_out: Duration = Field(default=milliseconds("14d"), gt=0)
    """The last time of labelled events, which only the gate sees."""
    at_least: int = Field(default=50_000, ge=3)
    """Fewer labelled events are too few to begin."""


class SearchSection(Section):
    trials: int = Field(default=16, ge=1, le=10_000)
    """Sets of parameters that are tried."""
    rungs: list[Annotated[int, Field(ge=1, le=100_000)]] = Field(default=[27, 81, 243], min_length=1, max_length=10)
    """Rounds after which the worse trials stop; those of the last rung are done."""
    workers: int = Field(default=1, ge=1, le=256)
    """Processes that try at the same time; the answer is the same for any number."""

    @model_validator(mode="after")
    def _rising(self) -> "SearchSection":
        if self.rungs != sorted(set(self.rungs)):
            raise ValueError(f"rungs {self.rungs} do not rise; write them as [27, 81, 243]")
        return self


class GateSection(Section):
    metric: Literal["auc"] = "auc"
    """What decides between champion and challenger."""
    margin: float = Field(default=0.002, gt=0, le=0.5)
    """How much worse by this metric a challenger may be and still count as not worse."""
    block: Duration = Field(default=milliseconds("1d"), gt=0)
    """Events of so long are drawn together: what happens to one happens to its neighbours."""
    resamples: int = Field(default=1_000, ge=100, le=100_000)
    """Draws of the bootstrap."""
    promote: Literal["not-worse", "better"] = "not-worse"
    """What a challenger must be to be promoted."""


class PublishSection(Section):
    channel: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")
    """The channel that a version which passed is promoted to; default: the tag that the scorer follows."""
    key_file: Path | None = None
    """The key that signs attestations, and versions that passed; without one nothing is signed."""


class Training(Configuration):
    """The whole configuration of a training run."""

    model_config = SettingsConfigDict(env_prefix="TRAINING_")

    scorer: Path
    """The scorer whose model is trained."""
    signature: Path | None = None
    """The signature of the model; default: that of the version in the channel. The first run needs it."""
    runs: Path = Path("runs")
    """The folder of runs."""
    labels: LabelsSection = LabelsSection()
    snapshot: SnapshotSection = Field(default=SnapshotSection(), validate_default=True)
    recipe: Literal["trees"] = "trees"
    """What is trained."""
    threads: int = Field(default=2, ge=1, le=256)
    """Threads of a training process; the answer is the same for any number."""
    seed: int = Field(default=2013, ge=0, lt=1 << 31)
    """What chance begins from."""
    search: SearchSection = SearchSection()
    gate: GateSection = GateSection()
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


def load(path: Path, flags: Sequence[str] = ()) -> tuple[Training, scorer_settings.Settings]:
    """The settings of a run and of its scorer. Raises Fatal (2) naming key, value and way out."""
    try:
        training = configuration.load(Training, path, flags, _absolute).settings
        scorer = scorer_settings.load(training.scorer).settings
    except (SettingsError, RegistryError) as error:
        raise Fatal(str(error), exit_code=USAGE) from None
    labels_topic(scorer)
    return training.model_copy(update={"runs": path.parent.resolve() / training.runs}), scorer


def _absolute(values: dict[str, Any], base: Path) -> None:
    """Paths resolve from where they were written: a file's from its folder, others from the working directory."""
    sections: list[tuple[Any, Sequence[str]]] = [(values, PATHS), (values.get("publish"), ("key_file",))]
    for section, keys in sections:
        for key in keys if isinstance(section, dict) else ():
            if isinstance(section.get(key), str):
                section[key] = (base / section[key]).resolve()
