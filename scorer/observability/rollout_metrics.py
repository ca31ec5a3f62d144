"""The metrics of a rollout controller, collected from its state on each scrape."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

LOOKED = "Seconds since the controller last looked at the rollouts."


@dataclass(slots=True)
class RolloutState:
    """The state of a controller, replaced by its loop at each iteration.

    `step` counts the plan's `steps` from 0, -1 before the first. `baked_seconds` of `wanted_seconds` is the timer of the step.
    `behind_seconds` is
    the delay of the analysis, None if it reads nothing; `pairs` are those of the step. `decisions` counts log entries by
    verdict. `looked` is the
    time of the last iteration in monotonic seconds.
    """

    leads: bool = False
    running: bool = False
    step: int = -1
    steps: int = 0
    baked_seconds: float = 0.0
    wanted_seconds: float = 0.0
    behind_seconds: float | None = None
    pairs: int = 0
    for_person: bool = False
    registry_away: bool = False
    decisions: Counter[str] = field(default_factory=Counter)
    looked: float = 0.0


class RolloutMetrics(Collector):
    """Metrics of the rollout; only the leading replica has them."""

    def __init__(self, state: RolloutState, clock: Callable[[], float] = time.monotonic) -> None:
        self._state = state
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        now = self._state
        yield GaugeMetricFamily("scorer_rollout_leader", "1 while this replica of the controller leads.", now.leads)
        yield GaugeMetricFamily("scorer_rollout_look_age_seconds", LOOKED, max(0.0, self._clock() - now.looked))
        yield GaugeMetricFamily("scorer_rollout_registry_away", "1 while the registry does not answer.", now.registry_away)
        decisions = CounterMetricFamily("scorer_rollout_decisions", "Decisions written, by verdict.", labels=["verdict"])
        for verdict, count in sorted(now.decisions.items()):
            decisions.add_metric([verdict], count)
        yield decisions
        if now.leads:
            yield from self._of_the_leader()

    def _of_the_leader(self) -> Iterable[Metric]:
        now = self._state
        yield GaugeMetricFamily("scorer_rollout_running", "1 while a rollout runs.", now.running)
        if not now.running:
            return
        for name, documentation, value in (
            ("step", "The step of its plan that the rollout is at, from 1; 0 is before the first.", now.step + 1),
            ("steps", "Steps of its plan.", now.steps),
            ("baked_seconds", "For how long the step was watched.", now.baked_seconds),
            ("wanted_seconds", "For how long the step is to be watched.", now.wanted_seconds),
            ("pairs", "Events of the step that both versions answered.", now.pairs),
            ("waits_for_person", "1 while it waits for a person to approve, resume or abort.", now.for_person),
        ):
            yield GaugeMetricFamily(f"scorer_rollout_{name}", documentation, value)
        if now.behind_seconds is not None:
            told = "How far the judge is behind what was answered."
            yield GaugeMetricFamily("scorer_rollout_behind_seconds", told, now.behind_seconds)
