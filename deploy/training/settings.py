"""Every setting of `training.yaml`. Events, labels and the model's repository are the scorer's (`scorer.yaml`).
How a file, the environment (`TRAINING_...`) and flags are merged: publisher/process/configuration.py."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo, field_validator
from pydantic_settings import SettingsConfigDict

from model_registry.errors import RegistryError
from publisher.errors import USAGE, Fatal
from publisher.process import configuration
from publisher.process.configuration import Configuration, Section, SettingsError
from publisher.process.time_window import UNITS, seconds
from scorer import settings as scorer_settings
from scorer.rollout.labels.reading import labels_topic

PATHS = ("scorer", "signature")


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
    folder: Path = Path("snapshots")
    """Where snapshots are kept, one folder each. Nothing is ever removed from it."""


class Training(Configuration):
    """The whole configuration."""

    model_config = SettingsConfigDict(env_prefix="TRAINING_")

    scorer: Path
    """The scorer whose events and labels are taken."""
    signature: Path | None = None
    """The signature of the model; default: that of the version in the channel. A first model needs it."""
    labels: LabelsSection = LabelsSection()
    snapshot: SnapshotSection = Field(default=SnapshotSection(), validate_default=True)

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
    """The settings, and those of the scorer. Raises Fatal (2) naming key, value and way out."""
    try:
        training = configuration.load(Training, path, flags, _absolute).settings
        scorer = scorer_settings.load(training.scorer).settings
    except (SettingsError, RegistryError) as error:
        raise Fatal(str(error), exit_code=USAGE) from None
    labels_topic(scorer)
    snapshot = training.snapshot.model_copy(update={"folder": path.parent.resolve() / training.snapshot.folder})
    return training.model_copy(update={"snapshot": snapshot}), scorer


def _absolute(values: dict[str, Any], base: Path) -> None:
    """Paths resolve from where they were written: a file's from its folder, others from the working directory."""
    sections: list[tuple[Any, Sequence[str]]] = [(values, PATHS), (values.get("snapshot"), ("folder",))]
    for section, keys in sections:
        for key in keys if isinstance(section, dict) else ():
            if isinstance(section.get(key), str):
                section[key] = (base / section[key]).resolve()
