"""All settings of `training.yaml`. The topics, labels and the model's repository are settings of the scorer (`scorer.yaml`).

`publisher/runtime/configuration.py` merges the file, environment variables (`TRAINING_...`) and flags.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    field_validator,
    model_validator,
)
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
"""The smallest and the largest number of time blocks in the hold-out. Too few do not show how much a difference varies."""


def milliseconds(duration: Any) -> int:
    """Convert a duration such as 90s, 15m, 1h or 7d to milliseconds. Raises ValueError."""
    return seconds(str(duration)) * 1_000


def written(ms: int) -> str:
    """Format a duration in its largest unit, as `milliseconds` parses it."""
    seconds = ms // 1_000
    return next(f"{seconds // size}{unit}" for unit, size in reversed(UNITS.items()) if seconds % size == 0)


Duration = Annotated[int, BeforeValidator(milliseconds), PlainSerializer(written)]
"""Milliseconds, written as 90s, 15m, 1h or 7d."""


class LabelsSection(Section):
    """The requirements on labels.

    They state how long after an event its label must have arrived, and which share of the events must have a label.
    """

    after: Duration = milliseconds("1d")
    """The time after which the label of an event must have arrived; events that are younger are omitted."""
    coverage: float = Field(default=0.9, ge=0, le=1)
    """The share of the events older than `labels.after` that must have a label. With fewer, the run ends with exit code 1."""


class SnapshotSection(Section):
    """The events of a snapshot, and their split by time."""

    model_config = ConfigDict(serialize_by_alias=True)  # `from` is a keyword of Python

    from_: Literal["events", "features"] = Field(default="events", alias="from")
    """The source of the inputs: `events` decodes the input topics, `features` reads the scorer's feature log
    (`features.topic`), which has the inputs as they were served. A signature with joined fields needs `features`."""
    window: Duration = milliseconds("90d")
    """The maximum age of the events that are read, by their Kafka timestamps."""
    validation: Duration = Field(default=milliseconds("14d"), gt=0)
    """The length of the part before the hold-out, on which the models of the search are compared."""
    hold_out: Duration = Field(default=milliseconds("14d"), gt=0)
    """The length of the last part of the labelled events, on which the new version is evaluated."""
    at_least: int = Field(default=50_000, ge=3)
    """The minimum number of labelled events."""
    keep: bool = True
    """Whether a run stores its snapshot in the registry together with the version, so that the version can be reproduced."""


class SearchedParameter(Section):
    """A parameter that the search varies: its values, and when it is drawn."""

    type: Literal["float", "int", "categorical"]
    """`float` and `int` are drawn from `low` to `high`, `categorical` from `values`."""
    low: int | float | None = None
    high: int | float | None = None
    log: bool = False
    """Whether values are drawn on a logarithmic scale."""
    values: tuple[int | float | str, ...] = ()
    when: dict[str, tuple[int | float | str, ...]] = Field(default_factory=dict)
    """The condition: names of other parameters, each with the values at which this parameter is drawn."""

    @model_validator(mode="after")
    def _complete(self) -> "SearchedParameter":
        if self.type == "categorical":
            if not self.values or len(set(self.values)) < len(self.values):
                raise ValueError("a categorical parameter needs values that differ, such as values: [small, large]")
            if (self.low, self.high, self.log) != (None, None, False):
                raise ValueError("a categorical parameter has values, and neither low, high nor log")
            return self
        if self.values or self.low is None or self.high is None or not self.low < self.high:
            raise ValueError(f"a parameter of type {self.type} needs low and high with low < high, and no values")
        if not all(map(math.isfinite, (self.low, self.high))):
            raise ValueError("low and high must be finite")
        if self.log and self.low <= 0:
            raise ValueError(f"log needs a low above 0, not {self.low}")
        if self.type == "int" and not all(isinstance(bound, int) for bound in (self.low, self.high)):
            raise ValueError("low and high of an int parameter must be whole numbers")
        return self


class RecipeSection(Section):
    """The training algorithm: `recipe: trees` and `recipe: network` are built in, `recipe.command` is code of one's own."""

    name: Literal["trees", "network"] = "trees"
    """`trees`: LightGBM. `network`: a multilayer perceptron (torch; the extra `network`).
    `recipe: trees` is short for `recipe.name: trees`."""
    command: tuple[str, ...] = ()
    """The command that trains in place of a built-in recipe, under the contract in `recipes.md`, such as
    `[python, train.py]`. `python` is the interpreter of the run; files below `recipe.folder` are copied into the run."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the command. They are part of the signed provenance of the version, so they must not be secrets:
    the command also gets the variables of the run itself."""
    folder: Path | None = None
    """The folder of the command's files; default: the folder of the configuration file."""
    image: str | None = None
    """The image in which the chart runs the training; it needs the product and the libraries of the command."""
    launcher: Literal["torchrun"] | tuple[str, ...] | None = None
    """The program that starts `workers` processes of the command for the final training: `torchrun`, or a command in which
    `{workers}` is replaced. Without it, one process is started."""
    deadline: Duration = Field(default=milliseconds("1h"), gt=0)
    """The time after which a start of the command is ended with all of its processes; the trial has then failed."""
    space: int = Field(default=2_000_000_000, ge=1_000_000)
    """The limit in bytes of all files that the command writes for a trial: checkpoints, model, metrics and log."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        # Any other text is no name, and may be a secret in the wrong place, which the error about the section does not repeat.
        return {"name": value} if isinstance(value, str) and value.isalpha() else value

    @model_validator(mode="after")
    def _passable(self) -> "RecipeSection":
        """Check that a process can be started with these arguments and variables."""
        launcher = () if isinstance(self.launcher, str | None) else self.launcher
        for text in (*self.command, *launcher, *self.env, *self.env.values()):
            if "\0" in text:
                raise ValueError(f"{text!r} has a null character, which a process cannot get")
        for name in self.env:
            if not name or "=" in name:
                raise ValueError(f"env: {name!r} is not the name of an environment variable")
        return self

    @model_validator(mode="after")
    def _complete(self) -> "RecipeSection":
        default = RecipeSection.model_construct()
        stated = [name for name in RecipeSection.model_fields if getattr(self, name) != getattr(default, name)]
        if self.command and "name" in stated:
            raise ValueError("name and command exclude each other: remove one of them")
        if not self.command and (own := [name for name in stated if name != "name"]):
            raise ValueError(f"{own[0]} is set, but command is not; write the command, such as command: [python, train.py]")
        return self

    @property
    def label(self) -> str:
        """The name of the recipe in records and on cards: `own` for a command."""
        return "own" if self.command else self.name


class SearchSection(Section):
    """The search of parameters by successive halving."""

    trials: int = Field(default=16, ge=1, le=512)
    """The number of parameter sets to try. With 1, only `parameters` and the recipe's defaults are used."""
    rungs: tuple[int, ...] = Field(default=(27, 81, 243), min_length=1, max_length=12)
    """The numbers of trees (or epochs) after which worse trials stop. The final model has the best of these numbers."""
    reduction: int = Field(default=3, ge=2, le=100)
    """With N, the best 1/N of the trials (by the validation part, rounded up) continue after each rung."""
    metric: str | None = Field(default=None, min_length=1, max_length=200)
    """The metric by which trials are compared: `auc` and others of the validation part, or one of `metrics.jsonl`."""
    goal: Literal["max", "min"] | None = None
    """Whether a larger (`max`) or a smaller (`min`) metric is better; default: as for the well-known metrics, else `max`."""
    space: dict[str, SearchedParameter] = Field(default_factory=dict, max_length=64)
    """The parameters to vary: `type` (`float`, `int`, `categorical`), `low`, `high`, `log`, `values`, `when`. A built-in
    recipe varies its own parameters without it."""

    @field_validator("space")
    @classmethod
    def _ordered(cls, space: dict[str, SearchedParameter]) -> dict[str, SearchedParameter]:
        """Order the parameters so that each follows the parameters of its condition."""
        ordered: dict[str, SearchedParameter] = {}
        waiting = dict(space)
        while waiting:
            ready = [name for name, parameter in waiting.items() if not any(other in waiting for other in parameter.when)]
            if not ready:
                raise ValueError(f"the conditions (when) of {', '.join(waiting)} form a circle")
            ordered |= {name: waiting.pop(name) for name in ready}
        return ordered

    @field_validator("rungs")
    @classmethod
    def _rising(cls, rungs: tuple[int, ...]) -> tuple[int, ...]:
        if rungs[0] < 1 or any(b <= a for a, b in pairwise(rungs)):
            raise ValueError("rungs must be increasing whole numbers, such as [27, 81, 243]")
        return rungs


class PredictionIntervalSection(Section):
    """The interval that a model with several outputs predicts for a number."""

    low: str = Field(min_length=1)
    """The name of the output that is the lower bound."""
    high: str = Field(min_length=1)
    """The name of the output that is the upper bound."""
    level: float = Field(gt=0, lt=1)
    """The share of the outcomes that the intervals are meant to contain."""

    @model_validator(mode="after")
    def _two_outputs(self) -> "PredictionIntervalSection":
        if self.low == self.high:
            raise ValueError(f"low and high are both {self.low!r}; name the outputs of the lower and of the upper bound")
        return self


class EvaluationSection(Section):
    """The meaning of the outputs of a regression, by which they are evaluated."""

    quantile: float | None = Field(default=None, gt=0, lt=1)
    """The quantile of the number that the judged output predicts, such as 0.9; default: the mean. It adds the metric
    `quantile_loss`, by which models are then searched and compared. The built-in recipes train this quantile."""
    interval: PredictionIntervalSection | None = None
    """The outputs that predict an interval, and the share of the outcomes that it is meant to contain, such as
    `{low: minutes_low, high: minutes_high, level: 0.8}`. It adds `interval_score`, `interval_coverage` and `interval_width`."""


class GateSection(Section):
    """The rules by which a challenger may replace the champion."""

    metric: (
        Literal["auc", "pr_auc", "log_loss", "accuracy", "macro_f1", "rmse", "mae", "quantile_loss", "interval_score"] | None
    ) = None
    """The metric by which champion and challenger are compared on the hold-out. Default: `auc` for two classes (also `pr_auc`,
    `log_loss`, `accuracy`), `log_loss` for more (also `macro_f1`, `accuracy`), `rmse` for a regression (also `mae`), or
    `quantile_loss` with `evaluation.quantile`; `interval_score` needs `evaluation.interval`."""
    margin: float | None = Field(default=None, gt=0, lt=1)
    """How much worse than the champion's the metric may be, by the worse end of the interval; also for the Brier score. For a
    regression it is a share of the champion's error. Default: 0.002; 0.01 for a regression, which is 1 %."""
    promote: Literal["not-worse", "better"] = "not-worse"
    """`not-worse`: the interval of the difference must be above -`gate.margin` (errors: below the margin). `better`: the
    interval must be above 0 (errors: below 0)."""
    block: Duration = Field(default=milliseconds("1d"), gt=0)
    """The length of a block of time. The events of a block are resampled together, because they are alike."""
    resamples: int = Field(default=1_000, ge=100, le=100_000)
    """The number of bootstrap resamples of the hold-out, from which the intervals are computed."""
    confidence: float = Field(default=0.95, ge=0.5, lt=1)
    """The confidence of the two-sided intervals; for slices, the confidence of all intervals together."""
    class_margin: float = Field(default=0.01, gt=0, lt=1)
    """How much lower than the champion's the recall and precision of a class may be, by the lower bound of the interval. Of
    more than two classes, one whose interval is wider than this fails only if the whole interval is below 0."""
    slices: tuple[str, ...] = ()
    """Paths of event fields whose values divide the hold-out; each slice of at least 1,000 rows is judged too."""
    slice_margin: float = Field(default=0.03, gt=0, lt=1)
    """The version is rejected if the metric of a slice is worse by more than this (a regression: by this share of the
    champion's error), and the whole interval of the slice is worse."""

    @field_validator("slices")
    @classmethod
    def _paths(cls, slices: tuple[str, ...]) -> tuple[str, ...]:
        for path in slices:
            json_path.parse_object_path(path)
        return slices


class PublishSection(Section):
    """The signing and the promotion of a version."""

    channel: str | None = None
    """The channel to move to the new version; default: the scorer's `model.tag`."""
    key_file: Path | None = None
    """The private key that signs attestations, versions and channel moves. Required; `model-registry keygen` creates a key."""
    password_file: Path | None = None
    """The file with the password of the key. Without it, the password is read from the variable MODEL_REGISTRY_KEY_PASSWORD."""
    rollout: Path | None = None
    """A plan for `scorer rollout start`: a version that passes starts a rollout instead of a direct channel move."""


class TrainingSettings(Configuration):
    """The complete configuration of a training: all keys of `training.yaml`."""

    model_config = SettingsConfigDict(env_prefix="TRAINING_")

    scorer: Path
    """The configuration of the scorer that provides events and labels."""
    signature: Path | None = None
    """The file with the signature of the model; default: the signature of the champion. Required for a first model."""
    folder: Path = Path("runs")
    """The folder of all runs; each run has its own folder there, which is never deleted."""
    recipe: RecipeSection = RecipeSection()
    workers: int = Field(default=1, ge=1, le=1_024)
    """The number of parallel trials of the search, and of processes or threads of the final training. It does not affect the
    result of a built-in recipe."""
    gpus: int = Field(default=0, ge=0, le=1_024)
    """The number of GPUs of the final training; each process of a network uses one. With 0, networks are trained on CPUs."""
    seed: int = Field(default=2013, ge=0, lt=2**31)
    """The seed of all random draws."""
    parameters: dict[str, int | float | str] = Field(default_factory=dict)
    """Parameters of the recipe that are fixed instead of searched."""
    labels: LabelsSection = LabelsSection()
    snapshot: SnapshotSection = Field(default=SnapshotSection(), validate_default=True)
    search: SearchSection = SearchSection()
    evaluation: EvaluationSection = EvaluationSection()
    gate: GateSection = Field(default=GateSection(), validate_default=True)
    publish: PublishSection = PublishSection()

    @model_validator(mode="after")
    def _space_complete(self) -> "TrainingSettings":
        """Check the search space against the recipe and the fixed parameters."""
        space = self.search.space
        for name, parameter in space.items():
            for other in parameter.when:
                if other not in space and other not in self.parameters:
                    raise ValueError(f"search.space.{name}.when: there is no parameter {other!r} in search.space or parameters")
        if self.recipe.command and not space and self.search.trials > 1:
            raise ValueError(
                f"search.trials is {self.search.trials}, but search.space is empty: all trials of a command would be the same; "
                "declare search.space, or set search.trials to 1"
            )
        return self

    @model_validator(mode="after")
    def _metrics_defined(self) -> "TrainingSettings":
        """Check that the section `evaluation` defines the configured metrics, and that the recipe can train its outputs."""
        defined = {"quantile_loss": self.evaluation.quantile, "interval_score": self.evaluation.interval}
        examples = {
            "quantile_loss": "evaluation.quantile, such as 0.9",
            "interval_score": "evaluation.interval, such as {low: OUTPUT, high: OUTPUT, level: 0.8}",
        }
        # A command may write any metric.
        searched = None if self.recipe.command else self.search.metric
        for key, metric in (("gate.metric", self.gate.metric), ("search.metric", searched)):
            if metric in defined and defined[metric] is None:
                raise ValueError(f"{key} is {metric!r}: set {examples[metric]}, or name another metric")
        interval = self.evaluation.interval
        if interval is not None and not self.recipe.command:
            outputs = f"low {interval.low!r} and high {interval.high!r}"
            message = f"evaluation.interval has {outputs}, but recipe {self.recipe.name} trains one output"
            raise ValueError(f"{message}; set recipe.command to a recipe with these outputs, or remove evaluation.interval")
        return self

    @field_validator("snapshot")
    @classmethod
    def _time_to_train(cls, snapshot: SnapshotSection, info: ValidationInfo) -> SnapshotSection:
        """Check that the window is longer than the sum of `labels.after`, validation and hold-out.

        The remaining part of the window is for training.
        """
        after = info.data["labels"].after if "labels" in info.data else 0
        spans = {"labels.after": after, "validation": snapshot.validation, "hold_out": snapshot.hold_out}
        if sum(spans.values()) >= snapshot.window:
            shares = ", ".join(f"{name} {written(ms)}" for name, ms in spans.items())
            raise ValueError(
                f"{shares} use the whole window {written(snapshot.window)}, so no time is left for training; "
                "make snapshot.window longer"
            )
        return snapshot

    @field_validator("gate")
    @classmethod
    def _blocks(cls, gate: GateSection, info: ValidationInfo) -> GateSection:
        """Check that the number of time blocks in the hold-out is within the limits in `BLOCKS`."""
        if "snapshot" not in info.data:
            return gate
        hold_out = info.data["snapshot"].hold_out
        blocks = hold_out / gate.block
        if not BLOCKS[0] <= blocks <= BLOCKS[1]:
            message = f"block {written(gate.block)} divides snapshot.hold_out {written(hold_out)} into {blocks:,.6g} blocks"
            raise ValueError(f"{message}; their number must be from {BLOCKS[0]} to {BLOCKS[1]:,}")
        return gate


def load(path: Path, flags: Sequence[str] = ()) -> tuple[TrainingSettings, scorer_settings.Settings]:
    """Load the training settings, and the scorer's settings from the file that the training settings name.

    Raises Fatal (exit code 2) with the invalid key, its value and a remedy.
    """
    try:
        training = configuration.load(TrainingSettings, path, flags, _absolute).settings
        scorer = scorer_settings.load(training.scorer).settings
    except (SettingsError, RegistryError) as error:
        raise Fatal(str(error), exit_code=USAGE) from None
    labels_topic(scorer)
    publish = training.publish
    if publish.rollout and publish.channel not in (None, scorer.model.tag):
        message = f"publish.channel is {publish.channel!r}, but a rollout moves the scorer's model.tag {scorer.model.tag!r}"
        raise Fatal(message, "remove publish.channel or publish.rollout from training.yaml", USAGE)
    base = path.parent.resolve()
    recipe = training.recipe
    if recipe.command:
        recipe = recipe.model_copy(update={"folder": recipe.folder or base})
    return training.model_copy(update={"folder": base / training.folder, "recipe": recipe}), scorer


def _absolute(values: dict[str, Any], base: Path) -> None:
    """Make relative paths absolute from `base`: the folder of the file, or the working directory for other sources."""
    sections: list[tuple[Any, Sequence[str]]] = [
        (values, PATHS),
        (values.get("publish"), ("key_file", "password_file", "rollout")),
        (values.get("recipe"), ("folder",)),
    ]
    for section, keys in sections:
        for key in keys if isinstance(section, dict) else ():
            if isinstance(section.get(key), str):
                section[key] = (base / section[key]).resolve()
