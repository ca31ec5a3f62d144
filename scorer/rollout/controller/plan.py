"""The plan of a rollout, as a person writes it: which version, by which steps, by which rules, and how long it may take."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from model_registry.untrusted_input import yaml_documents
from model_registry.untrusted_input.documents import UnreadableDocument
from publisher.errors import USAGE, Fatal
from publisher.runtime.configuration import Section, nearest
from publisher.runtime.time_range import seconds
from scorer.rollout.canary_analysis.analysis_report import Margins
from scorer.rollout.canary_analysis.verdict import BRIER

MOST_BYTES = 100_000
MOST_STEPS = 50
WEEK = 7 * 86_400
HINT = "see the plan in scorer/docs/rollouts.md"


def _duration(given: Any) -> Any:
    """Seconds of `15m`; a number is seconds. Raises ValueError."""
    return seconds(given) if isinstance(given, str) else given


def _percent(given: Any) -> Any:
    """The number of `5%`."""
    text = given.strip() if isinstance(given, str) else ""
    return int(text[:-1]) if text.endswith("%") and text[:-1].isdigit() else given


def _share(given: Any) -> Any:
    """0.005 of `0.5%`. Raises ValueError."""
    return float(given[:-1]) / 100 if isinstance(given, str) and given.endswith("%") else given


def _multiple(given: Any) -> Any:
    """1.5 of `1.5x`. Raises ValueError."""
    return float(given[:-1]) if isinstance(given, str) and given.endswith("x") else given


def _margin(given: Any) -> Any:
    return {"margin": given} if isinstance(given, int | float) and not isinstance(given, bool) else given


Duration = Annotated[int, BeforeValidator(_duration), Field(ge=0, le=100 * WEEK)]
Percent = Annotated[int, BeforeValidator(_percent), Field(ge=1, le=100, strict=True)]
Share = Annotated[float, BeforeValidator(_share), Field(ge=0, le=1)]
Multiple = Annotated[float, BeforeValidator(_multiple), Field(gt=0)]


class StepKind(StrEnum):
    COMPARE, SHADOW, CANARY, PROMOTE = "compare", "shadow", "canary", "promote"


class CompareOptions(Section):
    last: Annotated[Duration, Field(gt=0)] = 3_600
    """Events of so long before now."""


class PlanStep(Section):
    """One of `compare`, `shadow`, `canary` and `promote`, and how long it is watched."""

    compare: CompareOptions | None = None
    shadow: Percent | None = None
    """The percent of the keys that both versions score."""
    canary: Annotated[Percent | None, Field(lt=100)] = None
    """The percent of the keys that the candidate answers."""
    promote: Literal[True] | None = None
    bake: Duration = 0
    """How long the candidate is watched before it may go on (s)."""
    watch: Duration = 0
    """How long it is watched after `promote`, while the version before scores unseen (s)."""
    approve: bool = False
    """Whether a person must approve before it goes on."""

    @model_validator(mode="after")
    def _of_one_kind(self) -> "PlanStep":
        named = [kind for kind in StepKind if getattr(self, kind) is not None]
        if len(named) != 1:
            found = " and ".join(named) or "none"
            raise ValueError(f"a step is one of {', '.join(StepKind)}, this one {found}")
        if self.bake and self.kind not in (StepKind.SHADOW, StepKind.CANARY):
            raise ValueError(f"bake belongs to shadow and canary, not to {self.kind}")
        if self.watch and self.kind is not StepKind.PROMOTE:
            raise ValueError(f"watch belongs to promote, not to {self.kind}; write bake")
        return self

    @property
    def kind(self) -> StepKind:
        return next(kind for kind in StepKind if getattr(self, kind) is not None)

    @property
    def seconds(self) -> int:
        """For how long it is to be watched."""
        return self.watch or self.bake

    @property
    def judged(self) -> bool:
        """Whether both versions answer the same events in it."""
        return self.kind in (StepKind.SHADOW, StepKind.CANARY) or bool(self.watch)

    def __str__(self) -> str:
        percent = self.shadow or self.canary
        return f"{self.kind} {percent} %" if percent else str(self.kind)


class BrierRule(Section):
    margin: float = Field(gt=0, le=1)
    within: Duration = 0
    """How long labels are waited for, where that is longer than `patience` (s)."""


class PlanRules(Section):
    """By how much the candidate may be worse (`scorer judge`); `cost` is a multiple of the champion's, minded by `compare`."""

    errors: Share = 0.005
    flips: Share = 0.05
    psi: float = Field(default=0.2, ge=0)
    cost: Multiple | None = None
    brier: Annotated[BrierRule | None, BeforeValidator(_margin)] = None

    def margins(self) -> Margins:
        return Margins(self.errors, self.flips, self.psi, None if self.brier is None else self.brier.margin)


class RolloutPlan(Section):
    """A whole plan; see scorer/docs/rollouts.md."""

    candidate: str = Field(min_length=1, max_length=128)
    steps: tuple[PlanStep, ...] = Field(min_length=1, max_length=MOST_STEPS)
    rules: PlanRules = PlanRules()
    patience: Duration = 6 * 3_600
    """A step that is not decided for so long waits for a person (s)."""

    @model_validator(mode="after")
    def _in_order(self) -> "RolloutPlan":
        kinds = [step.kind for step in self.steps]
        if kinds.count(StepKind.PROMOTE) != 1 or kinds[-1] is not StepKind.PROMOTE:
            raise ValueError("the last step, and no other, is promote: true")
        shares = [step.canary for step in self.steps if step.canary is not None]
        if sorted(set(shares)) != shares:
            raise ValueError(f"the canary's share rises from step to step, here it is {', '.join(map(str, shares))}")
        if StepKind.CANARY in kinds and StepKind.SHADOW in kinds[kinds.index(StepKind.CANARY) :]:
            raise ValueError("a shadow comes before the first canary")
        if StepKind.COMPARE in kinds[1:]:
            raise ValueError("compare is the first step")
        return self

    @property
    def judged(self) -> int:
        """How many steps are judged: a verdict's chance of being wrong is shared by them."""
        return sum(step.judged for step in self.steps)

    def pairs(self, at: int) -> int:
        """The percent of the keys that both versions score in a step: that of the shadow before it; 0: as the shadow is set."""
        return next((step.shadow for step in reversed(self.steps[: at + 1]) if step.shadow is not None), 0)

    def patience_with(self, lacking: set[str]) -> int:
        """How long a step may wait (s) for what the rules lack, by name."""
        brier = self.rules.brier
        return max(self.patience, brier.within if brier is not None and lacking == {BRIER} else 0)


def read(path: Path, candidate: str | None = None) -> RolloutPlan:
    """A plan's file; a `candidate` stands in for the one that it names. Raises Fatal (2), with a line for each fault."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Fatal(f"cannot read {path}: {error.strerror}", HINT, USAGE) from None
    if len(text) > MOST_BYTES:
        raise Fatal(f"{path} is larger than {MOST_BYTES:,} bytes", HINT, USAGE)
    try:
        values = yaml_documents.load(text)
    except UnreadableDocument as error:
        raise Fatal(f"{path} is not YAML: {error}", HINT, USAGE) from None
    if candidate is not None and isinstance(values, dict):
        values = {**values, "candidate": candidate}
    return parse(values, str(path))


def parse(values: Any, name: str) -> RolloutPlan:
    """A plan out of its values; `name` says whose. Raises Fatal (2), with a line for each fault."""
    try:
        return RolloutPlan.model_validate(values)
    except ValidationError as error:
        faults = [fault for fault in error.errors() if fault["type"] != "too_short" or error.error_count() == 1]
        told = [f"{name}: {'.'.join(map(str, fault['loc'])) or 'the plan'}: {_said(fault)}" for fault in faults]
        raise Fatal("\n".join(told), HINT, USAGE) from None


def _said(fault: Any) -> str:
    given = f"{fault['input']!r:.100}"
    match fault["type"]:
        case "extra_forbidden":
            return f"unknown key with value {given}; {nearest(str(fault['loc'][-1]), _keys(fault['loc'][:-1]))}"
        case "missing":
            return "it is missing"
        case "string_type":
            return f"{given} is no text: write it in quotes"
        case _ if isinstance(fault["input"], dict | list):
            return str(fault["msg"]).removeprefix("Value error, ")
        case _:
            return f"{fault['msg'].removeprefix('Value error, ')}, not {given}"


def _keys(path: Sequence[int | str]) -> list[str]:
    """What may be written at this place of a plan."""
    sections: dict[int | str, type[Section]] = {
        "steps": PlanStep,
        "rules": PlanRules,
        "compare": CompareOptions,
        "brier": BrierRule,
    }
    section = next((sections[part] for part in reversed(path) if part in sections), RolloutPlan)
    return list(section.model_fields)
