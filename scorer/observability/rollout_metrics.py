"""Metrics of a rollout controller, collected from its state on each scrape."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

AGE = "Seconds since the controller last read the rollouts."


@dataclass(slots=True)
class RolloutState:
    """The state of a rollout controller, which the loop of the controller updates in each iteration.

    Attributes:
        is_leader: whether this replica of the controller is the leader.
        running: whether a rollout is running.
        step: the current step of the rollout plan, counted from 0; -1 before the first.
        steps: the number of steps of the plan.
        baked_seconds: the elapsed part of the bake time of the current step.
        wanted_seconds: the required bake time of the current step.
        behind_seconds: the lag of the canary analysis behind the scores that it reads; None if no analysis is running.
        pairs: the number of events in the current step that both versions have scored.
        waits_for_operator: whether the rollout waits for an operator.
        registry_unavailable: whether the registry is unavailable.
        decisions: the number of decisions in the rollout's log that this process wrote, by verdict or outcome.
        iterated_at: the time of the last iteration in monotonic seconds.
    """

    is_leader: bool = False
    running: bool = False
    step: int = -1
    steps: int = 0
    baked_seconds: float = 0.0
    wanted_seconds: float = 0.0
    behind_seconds: float | None = None
    pairs: int = 0
    waits_for_operator: bool = False
    registry_unavailable: bool = False
    decisions: Counter[str] = field(default_factory=Counter)
    iterated_at: float = 0.0


class RolloutMetrics(Collector):
    """Exports the state of one controller as metrics. Only the leader exports the metrics of the running rollout."""

    def __init__(self, state: RolloutState, clock: Callable[[], float] = time.monotonic) -> None:
        self._state = state
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        now = self._state
        yield GaugeMetricFamily("scorer_rollout_leader", "1 while this replica of the controller is the leader.", now.is_leader)
        yield GaugeMetricFamily("scorer_rollout_look_age_seconds", AGE, max(0.0, self._clock() - now.iterated_at))
        yield GaugeMetricFamily(
            "scorer_rollout_registry_away", "1 while the registry is unavailable.", now.registry_unavailable
        )
        decisions = CounterMetricFamily(
            "scorer_rollout_decisions", "Decisions that the controller has logged, by verdict.", labels=["verdict"]
        )
        for verdict, count in sorted(now.decisions.items()):
            decisions.add_metric([verdict], count)
        yield decisions
        if now.is_leader:
            yield from self._of_leader()

    def _of_leader(self) -> Iterable[Metric]:
        now = self._state
        yield GaugeMetricFamily("scorer_rollout_running", "1 while a rollout runs.", now.running)
        if not now.running:
            return
        for name, documentation, value in (
            ("step", "The current step of the plan, counted from 1; 0 before the first step.", now.step + 1),
            ("steps", "Number of steps of the plan.", now.steps),
            ("baked_seconds", "How long the step has baked so far.", now.baked_seconds),
            ("wanted_seconds", "The bake time that the step requires.", now.wanted_seconds),
            ("pairs", "Events that both versions scored during the step.", now.pairs),
            (
                "waits_for_person",
                "1 while the rollout waits for an operator to approve, resume or abort it.",
                now.waits_for_operator,
            ),
        ):
            yield GaugeMetricFamily(f"scorer_rollout_{name}", documentation, value)
        if now.behind_seconds is not None:
            documentation = "How far the canary analysis lags behind the scores."
            yield GaugeMetricFamily("scorer_rollout_behind_seconds", documentation, now.behind_seconds)
