"""Analyze the current step of a rollout: its answers, its bake clock and its verdict."""

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
from scorer.rollout.canary_analysis.rules import ERRORS
from scorer.rollout.canary_analysis.verdict import CanaryVerdict, decide
from scorer.rollout.controller.plan import PlanStep, RolloutPlan
from scorer.rollout.controller.rollout_state import Rollout
from scorer.rollout.fleet_status import FLIPPED, MoveProgress
from scorer.settings import Settings

END_SECONDS = 300.0  # time limit of an analysis that reads to the end of the topics
APART_SECONDS = 3_700.0  # the largest gap between two analyses that counts as bake time, if each reads to the end


@dataclass(frozen=True, slots=True)
class AnalysisSnapshot:
    """The result of one analysis of a rollout step.

    Attributes:
        verdict: The decision on the candidate, with the results of the rules.
        bake: The bake time so far: how long the candidate has been observed under valid conditions.
        pace: How far the analysis is behind the topics that it reads.
        obstacles: The reasons why the candidate cannot pass, whatever the results of the rules.
        judgement: The report as a JSON document: the verdict, and the figures and offsets that it is based on.
    """

    verdict: CanaryVerdict
    bake: BakeClock
    pace: AnalyzerLag
    obstacles: tuple[str, ...]
    judgement: dict[str, Any]

    @property
    def failing_rules(self) -> frozenset[str]:
        """The names of the rules that do not pass."""
        return frozenset(result.rule.name for result in self.verdict.findings if result.failure_reason is not None)


class StepAnalyzer:
    """Analyze the steps of rollouts, one after another. Each step is read from the offsets in `Rollout.starts`."""

    def __init__(self, settings: Settings, *, to_end: bool) -> None:
        """Create the analyzer.

        Args:
            settings: The settings.
            to_end: Whether each analysis reads to the end of the topics. Otherwise, it ends after the `seconds` of the call.
        """
        self._settings = settings
        self._to_end = to_end
        self._bus = TopicReader(settings.kafka, f"{settings.name}.rollout")
        self._step: tuple[str, int] | None = None
        self._analyzer: CanaryAnalyzer | None = None
        self._bake = BakeClock()
        self._partitions = 0

    def ends(self) -> Offsets:
        """Return the log ends of the topics of scores, dead letters and shadow answers, where later answers start."""
        topics = [self._settings.output.topic, self._settings.dead_letter.topic, self._settings.shadow_topic]
        return self._bus.visible(self._bus.partitions(topics))

    def analyze(
        self, rollout: Rollout, step: PlanStep, progress: MoveProgress | None, seconds: float, *, shadowed: bool = True
    ) -> AnalysisSnapshot:
        """Read the answers of the current step, and return the analysis.

        Args:
            rollout: The rollout.
            step: The current step of the rollout.
            progress: How far the scorers have applied the channel move of this step; None if it is unknown.
            seconds: How long to read; an analyzer with `to_end` may read longer.
            shadowed: Whether a shadow runs; without a shadow the candidate cannot pass.
        """
        analyzer = self._analyzer_of(rollout)
        try:
            lag = self._read(analyzer, seconds)
        except RegistryError:
            self.close()  # some of the answers are not counted: the next analysis reads the step from its start
            raise
        served_partitions = (
            [] if progress is None else [scorer.partitions for scorer in progress.scorers if scorer.outcome == FLIPPED]
        )
        missing = analyzer.reasons().get(ERRORS, "")
        conditions = BakeConditions(sum(served_partitions), self._partitions, lag.pair_age, lag.behind, missing)
        self._bake = self._bake.advance(time.time(), conditions, APART_SECONDS if self._to_end else BEHIND_SECONDS)
        margins = rollout.plan.rules.margins()
        shadow_obstacles = [] if shadowed else ["no shadow runs: start `scorer run --shadow`"]
        psi, _ = analyzer.sample.drift()
        obstacles = (*shadow_obstacles, *self._bake.obstacles(step.seconds, conditions), *margins.obstacles(psi))
        verdict = evaluate(rollout.plan, analyzer, obstacles)
        report = analyzer.report(rollout.rivals, verdict, lag.behind).to_dict()
        return AnalysisSnapshot(verdict, self._bake, lag, obstacles, report)

    def close(self) -> None:
        """Stop reading. The next analysis reads the step again from its start."""
        if self._analyzer is not None:
            self._analyzer.close()
        self._analyzer = None
        self._step = None

    def _read(self, analyzer: CanaryAnalyzer, seconds: float) -> AnalyzerLag:
        if self._to_end:
            lag = analyzer.follow(seconds)
            deadline = time.monotonic() + END_SECONDS
            while lag.behind > 2 * seconds and time.monotonic() < deadline:
                lag = analyzer.follow(seconds)
            return lag
        return analyzer.follow(seconds)

    def _analyzer_of(self, rollout: Rollout) -> CanaryAnalyzer:
        if self._analyzer is not None and self._step == (rollout.id, rollout.step):
            return self._analyzer
        self.close()
        self._partitions = len(self._bus.partitions(self._settings.input.topics))
        state = rollout.state
        self._bake = BakeClock() if state is None or state.step != rollout.step else BakeClock(state.baked, state.seen)
        stretch = self._stretch(rollout.starts)
        labels = rollout.plan.rules.brier is not None
        self._analyzer = CanaryAnalyzer(self._settings, rollout.rivals.contest, ALWAYS, stretch, labels=labels)
        self._step = rollout.id, rollout.step
        return self._analyzer

    def _stretch(self, starts: Offsets) -> dict[tuple[str, int], Bounds]:
        """Return, for each partition, the offset range to read: from the step's start offset to the current log end."""
        # If the start offset is unknown or no longer retained, the range begins at the oldest retained offset.
        spans = self._bus.spans(list(self.ends()))
        return {
            partition: Bounds(min(max(low, starts.get(partition, low)), high), high) for partition, (low, high) in spans.items()
        }


def evaluate(plan: RolloutPlan, analyzer: CanaryAnalyzer, obstacles: Sequence[str]) -> CanaryVerdict:
    """Decide on the candidate by the plan's rules and the answers that the analyzer has read."""
    # The probability of a wrong verdict is divided among the plan's steps.
    return evaluate_sums(plan, analyzer.paired_sums, analyzer.cells(time.monotonic()), analyzer.reasons(), obstacles)


def evaluate_sums(
    plan: RolloutPlan, paired_sums: PairedSums, cells: Mapping[str, Cells], reasons: Mapping[str, str], obstacles: Sequence[str]
) -> CanaryVerdict:
    """Decide on the candidate by the rules of the plan. Pure.

    Args:
        plan: The plan with the rules and the steps.
        paired_sums: Used only to find out whether the versions make decisions.
        cells: The sums of the pairs' differences by cell (group of event keys), by the name of the rule.
        reasons: Why a rule has no pairs, by the name of the rule.
        obstacles: The reasons why the candidate must not pass, whatever the results of the rules.
    """
    # The probability of a wrong verdict is divided among the plan's steps.
    rules = plan.rules.margins().rules(decided=paired_sums.decided)
    return decide(rules, cells, steps=plan.judged, obstacles=obstacles, reasons=reasons)
