"""The plan of a rollout: candidate, steps, rules and time limits, parsed from YAML."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from model_registry import suggestions
from model_registry.untrusted_input import yaml_documents
from model_registry.untrusted_input.json_documents import UnreadableDocument
from publisher.errors import USAGE, Fatal
from publisher.runtime.configuration import Section, nearest
from publisher.runtime.time_range import seconds
from scorer.rollout.canary_analysis.rules import BRIER, Margins

MAX_BYTES = 100_000
MAX_STEPS = 50
WEEK = 7 * 86_400
HINT = "see the plan in scorer/docs/rollout-plans.md"


def _duration(given: Any) -> Any:
    """Convert a text such as `15m` to seconds; other values are returned unchanged. Raises ValueError."""
    return seconds(given) if isinstance(given, str) else given


def _percent(given: Any) -> Any:
    """Convert a text such as `5%` to 5; other values are returned unchanged."""
    text = given.strip() if isinstance(given, str) else ""
    return int(text[:-1]) if text.endswith("%") and text[:-1].isdigit() else given


def _share(given: Any) -> Any:
    """Convert a text such as `0.5%` to 0.005; other values are returned unchanged. Raises ValueError."""
    return float(given[:-1]) / 100 if isinstance(given, str) and given.endswith("%") else given


def _multiple(given: Any) -> Any:
    """Convert a text such as `1.5x` to 1.5; other values are returned unchanged. Raises ValueError."""
    return float(given[:-1]) if isinstance(given, str) and given.endswith("x") else given


def _margin(given: Any) -> Any:
    return {"margin": given} if isinstance(given, int | float) and not isinstance(given, bool) else given


Duration = Annotated[int, BeforeValidator(_duration), Field(ge=0, le=100 * WEEK)]
Percent = Annotated[int, BeforeValidator(_percent), Field(ge=1, le=100, strict=True)]
Share = Annotated[float, BeforeValidator(_share), Field(ge=0, le=1)]
Multiple = Annotated[float, BeforeValidator(_multiple), Field(gt=0)]


class StepKind(StrEnum):
    """The kinds of steps in a plan."""

    COMPARE = "compare"
    SHADOW = "shadow"
    CANARY = "canary"
    PROMOTE = "promote"


class CompareOptions(Section):
    """Options of a comparison step."""

    last: Annotated[Duration, Field(gt=0)] = 3_600
    """Compare the events of this period before now, in seconds."""


class PlanStep(Section):
    """One step: `compare`, `shadow`, `canary` or `promote`, with its bake time."""

    compare: CompareOptions | None = None
    shadow: Percent | None = None
    """The percentage of keys that both versions score."""
    canary: Annotated[Percent | None, Field(lt=100)] = None
    """The percentage of keys that the candidate answers."""
    promote: Literal[True] | None = None
    bake: Duration = 0
    """How long the candidate is observed before the next step, in seconds."""
    watch: Duration = 0
    """How long the candidate is observed after `promote`, while the previous version scores as a shadow, in seconds."""
    approve: bool = False
    """Whether an operator must approve the next step."""

    @model_validator(mode="after")
    def _of_one_kind(self) -> "PlanStep":
        named = [kind for kind in StepKind if getattr(self, kind) is not None]
        if len(named) != 1:
            given = " and ".join(named) or "none"
            raise ValueError(f"a step must have exactly one of {', '.join(StepKind)}, but it has {given}")
        if self.bake and self.kind not in (StepKind.SHADOW, StepKind.CANARY):
            raise ValueError(f"only shadow and canary steps can have bake, and this is a {self.kind} step")
        if self.watch and self.kind is not StepKind.PROMOTE:
            raise ValueError(
                f"only promote steps can have watch, and this is a {self.kind} step; shadow and canary steps can have bake"
            )
        return self

    @property
    def kind(self) -> StepKind:
        """The kind of the step."""
        return next(kind for kind in StepKind if getattr(self, kind) is not None)

    @property
    def seconds(self) -> int:
        """How long the step is observed, in seconds: its bake time, or the watch time after `promote`."""
        return self.watch or self.bake

    @property
    def judged(self) -> bool:
        """Whether the step is analysed: both versions answer the same events during the step."""
        return self.kind in (StepKind.SHADOW, StepKind.CANARY) or bool(self.watch)

    def __str__(self) -> str:
        percent = self.shadow or self.canary
        return f"{self.kind} {percent} %" if percent else str(self.kind)


class BrierRule(Section):
    """How much worse the candidate may be than the champion by the Brier score, which compares scores with labels."""

    margin: float = Field(gt=0, le=1)
    """How far the candidate's Brier score may exceed the champion's."""
    within: Duration = 0
    """How long to wait for labels, if longer than `patience`, in seconds."""


class PlanRules(Section):
    """How much worse the candidate may be than the champion.

    `cost` is a multiple of the champion's cost, which only the step `compare` checks. The other rules are those of `scorer
    judge`.
    """

    errors: Share = 0.005
    flips: Share = 0.05
    psi: float = Field(default=0.2, ge=0)
    cost: Multiple | None = None
    brier: Annotated[BrierRule | None, BeforeValidator(_margin)] = None

    def margins(self) -> Margins:
        """Return the margins of the rules."""
        return Margins(self.errors, self.flips, self.psi, None if self.brier is None else self.brier.margin)


class RolloutPlan(Section):
    """The complete plan of a rollout. The page scorer/docs/rollout-plans.md explains the fields."""

    candidate: str = Field(min_length=1, max_length=128)
    steps: tuple[PlanStep, ...] = Field(min_length=1, max_length=MAX_STEPS)
    rules: PlanRules = PlanRules()
    patience: Duration = 6 * 3_600
    """How long a step may stay undecided before it waits for an operator, in seconds."""

    @model_validator(mode="after")
    def _in_order(self) -> "RolloutPlan":
        kinds = [step.kind for step in self.steps]
        if kinds.count(StepKind.PROMOTE) != 1 or kinds[-1] is not StepKind.PROMOTE:
            raise ValueError("the last step, and no other step, must be promote: true")
        shares = [step.canary for step in self.steps if step.canary is not None]
        if sorted(set(shares)) != shares:
            raise ValueError(f"the canary's share must increase from step to step, but it is {', '.join(map(str, shares))}")
        if StepKind.CANARY in kinds and StepKind.SHADOW in kinds[kinds.index(StepKind.CANARY) :]:
            raise ValueError("shadow steps must precede the first canary step")
        if StepKind.COMPARE in kinds[1:]:
            raise ValueError("compare must be the first step")
        return self

    @property
    def judged(self) -> int:
        """The number of steps that are analysed. The probability of a wrong verdict is divided among them."""
        return sum(step.judged for step in self.steps)

    def pairs(self, step_index: int) -> int:
        """Return the percentage of keys whose events both versions score in a step; 0 if the setting `shadow.share` applies."""
        return next((step.shadow for step in reversed(self.steps[: step_index + 1]) if step.shadow is not None), 0)

    def undecided_seconds(self, lacking: set[str]) -> int:
        """Return how many seconds a step may stay undecided. `lacking` has the names of the rules that do not pass."""
        brier = self.rules.brier
        return max(self.patience, brier.within if brier is not None and lacking == {BRIER} else 0)


def read(path: Path, candidate: str | None = None) -> RolloutPlan:
    """Read a plan file. If given, `candidate` replaces the candidate in the file.

    Raises:
        Fatal: With code 2 and one line per fault.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Fatal(f"cannot read {path}: {error.strerror}", suggestions.file_question(path) or HINT, USAGE) from None
    if len(text) > MAX_BYTES:
        raise Fatal(f"{path} is larger than {MAX_BYTES:,} bytes", HINT, USAGE)
    try:
        values = yaml_documents.load(text)
    except UnreadableDocument as error:
        raise Fatal(f"{path} is not YAML: {error}", HINT, USAGE) from None
    if candidate is not None and isinstance(values, dict):
        values = {**values, "candidate": candidate}
    return parse(values, str(path))


def parse(values: Any, name: str) -> RolloutPlan:
    """Parse a plan from its values. Error messages call the plan `name`.

    Raises:
        Fatal: With code 2 and one line per fault.
    """
    try:
        return RolloutPlan.model_validate(values)
    except ValidationError as error:
        faults = [fault for fault in error.errors() if fault["type"] != "too_short" or error.error_count() == 1]
        lines = [f"{name}: {'.'.join(map(str, fault['loc'])) or 'the plan'}: {_describe_fault(fault)}" for fault in faults]
        raise Fatal("\n".join(lines), HINT, USAGE) from None


def _describe_fault(fault: Any) -> str:
    value = f"{fault['input']!r:.100}"
    match fault["type"]:
        case "extra_forbidden":
            return f"unknown key with value {value}; {nearest(str(fault['loc'][-1]), _keys(fault['loc'][:-1]))}"
        case "missing":
            return "this key is missing"
        case "string_type":
            return f"{value} is not a text: write it in quotes"
        case _ if isinstance(fault["input"], dict | list):
            return str(fault["msg"]).removeprefix("Value error, ")
        case _:
            return f"{fault['msg'].removeprefix('Value error, ')}, not {value}"


def _keys(path: Sequence[int | str]) -> list[str]:
    """Return the keys that are valid in the section of a plan at this path."""
    sections: dict[int | str, type[Section]] = {
        "steps": PlanStep,
        "rules": PlanRules,
        "compare": CompareOptions,
        "brier": BrierRule,
    }
    section = next((sections[part] for part in reversed(path) if part in sections), RolloutPlan)
    return list(section.model_fields)
