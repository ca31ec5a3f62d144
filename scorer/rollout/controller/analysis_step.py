"""The judge of the step that a rollout is at: its watch, its bake clock, its verdict."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model_registry.errors import RegistryError
from publisher.kafka.partitions import Offsets
from publisher.kafka.reader import TopicReader
from publisher.kafka.topics import Bounds
from publisher.runtime.time_range import ALWAYS
from scorer.rollout.canary_analysis.analyzer import AnalyzerLag, CanaryAnalyzer
from scorer.rollout.canary_analysis.bake_time import BEHIND_SECONDS, BakeClock, BakeConditions
from scorer.rollout.canary_analysis.key_strata import Cells
from scorer.rollout.canary_analysis.paired_metrics import PairedSums
from scorer.rollout.canary_analysis.verdict import CanaryVerdict, decide
from scorer.rollout.controller.event_log import Rollout
from scorer.rollout.controller.plan import PlanStep, RolloutPlan
from scorer.rollout.fleet_status import FLIPPED, MoveProgress
from scorer.settings import Settings

END_SECONDS = 300.0  # one look may read for so long, where it reads to the end
APART_SECONDS = 3_700.0  # looks that read to the end miss nothing: between two of these the clock may run


@dataclass(frozen=True, slots=True)
class AnalysisSnapshot:
    """What one look came to. `obstacles` keep the candidate from passing, `judgement` is the verdict with all it rests on, as a
    document."""

    verdict: CanaryVerdict
    bake: BakeClock
    pace: AnalyzerLag
    obstacles: tuple[str, ...]
    judgement: dict[str, Any]

    @property
    def lacking(self) -> frozenset[str]:
        return frozenset(each.rule.name for each in self.verdict.findings if each.lacking is not None)


class StepAnalyzer:
    """Of one rollout after the other, each step anew: it reads from where the step's answers begin."""

    def __init__(self, settings: Settings, *, to_end: bool) -> None:
        """`to_end`: each look reads to the end; else for as long as it is told to."""
        self._settings = settings
        self._to_end = to_end
        self._bus = TopicReader(settings.kafka, f"{settings.name}.rollout")
        self._step: tuple[str, int] | None = None
        self._watch: CanaryAnalyzer | None = None
        self._bake = BakeClock()
        self._partitions = 0

    def ends(self) -> Offsets:
        """Where answers that are written from now on begin."""
        topics = [self._settings.output.topic, self._settings.dead_letter.topic, self._settings.shadow_topic]
        return self._bus.visible(self._bus.partitions(topics))

    def look(
        self, rollout: Rollout, step: PlanStep, rolled: MoveProgress | None, seconds: float, *, shadowed: bool = True
    ) -> AnalysisSnapshot:
        """At the step, for so many seconds. `rolled` is how far scorers have come with its move; None: nobody knows.
        `shadowed`: whether a shadow runs."""
        watch = self._of(rollout)
        try:
            pace = self._read(watch, seconds)
        except RegistryError:
            self.close()  # answers were taken that are in no sum: the next look reads from the beginning
            raise
        served = [] if rolled is None else [each.partitions for each in rolled.scorers if each.outcome == FLIPPED]
        sight = BakeConditions(sum(served), self._partitions, pace.pair_age, pace.behind)
        self._bake = self._bake.looked(time.time(), sight, APART_SECONDS if self._to_end else BEHIND_SECONDS)
        margins = rollout.plan.rules.margins()
        alone = [] if shadowed else ["no shadow runs: start scorer run --shadow"]
        obstacles = (*alone, *self._bake.obstacles(step.seconds, sight), *margins.obstacles(watch.sample))
        found = evaluate(rollout.plan, watch, obstacles)
        told = watch.judged(rollout.rivals, found, pace.behind).to_dict()
        return AnalysisSnapshot(found, self._bake, pace, obstacles, told)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._watch = self._step = None

    def _read(self, watch: CanaryAnalyzer, seconds: float) -> AnalyzerLag:
        if self._to_end:
            pace, until = watch.follow(seconds), time.monotonic() + END_SECONDS
            while pace.behind > 2 * seconds and time.monotonic() < until:
                pace = watch.follow(seconds)
            return pace
        return watch.follow(seconds)

    def _of(self, rollout: Rollout) -> CanaryAnalyzer:
        if self._watch is not None and self._step == (rollout.id, rollout.step):
            return self._watch
        self.close()
        self._partitions = len(self._bus.partitions(self._settings.input.topics))
        state = rollout.state
        self._bake = BakeClock() if state is None or state.step != rollout.step else BakeClock(state.baked, state.seen)
        stretch = self._stretch(rollout.starts)
        labels = rollout.plan.rules.brier is not None
        self._watch = CanaryAnalyzer(self._settings, rollout.rivals.contest, ALWAYS, stretch, labels=labels)
        self._step = rollout.id, rollout.step
        return self._watch

    def _stretch(self, starts: Offsets) -> dict[tuple[str, int], Bounds]:
        """From the starts, or what is kept of them, to the ends as they are now."""
        spans = self._bus.spans(list(self.ends()))
        return {at: Bounds(min(max(low, starts.get(at, low)), high), high) for at, (low, high) in spans.items()}


def evaluate(plan: RolloutPlan, watch: CanaryAnalyzer, obstacles: Sequence[str]) -> CanaryVerdict:
    """By the rules of the plan, whose steps share the chance of an error."""
    return evaluate_sums(plan, watch.tally, watch.cells(time.monotonic()), watch.reasons(), obstacles)


def evaluate_sums(
    plan: RolloutPlan, tally: PairedSums, cells: Mapping[str, Cells], reasons: Mapping[str, str], obstacles: Sequence[str]
) -> CanaryVerdict:
    """Decide by the rules of the plan. Pure.

    Args:
        plan: has the rules, and how many steps share the chance of an error.
        tally: whether the versions decide.
        cells: the sums of each rule, by name.
        reasons: why a rule has no pairs, by name.
        obstacles: why the candidate must not pass, whatever the rules come to.
    """
    rules = plan.rules.margins().rules(decided=tally.decided)
    return decide(rules, cells, steps=plan.judged, obstacles=obstacles, reasons=reasons)
