"""`scorer rollout run` as a process: signals and health around the controller."""

import logging
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry

from publisher.runtime import logs
from publisher.runtime.health import HealthServer
from publisher.runtime.malloc_tuning import limit_malloc_arenas, start_gc_thread
from scorer.observability.rollout_metrics import RolloutMetrics, RolloutState
from scorer.rollout.controller.controller import Controller
from scorer.rollout.controller.decide import NextAction
from scorer.rollout.controller.leadership_term import LeaderTerm
from scorer.rollout.controller.log_records import EntryKind, LogEntry
from scorer.settings import Settings

log = logging.getLogger(__name__)

HANGS_SECONDS = 120.0  # without a look


class _ControllerStatus:
    """What the metrics and the health checks tell."""

    def __init__(self) -> None:
        self.state = RolloutState(looked=time.monotonic())
        self._first = True

    def looked(self, tenure: LeaderTerm | None, found: NextAction | None) -> None:
        state, self._first = self.state, False
        state.looked, state.leads = time.monotonic(), tenure is not None
        rollout = tenure.rollout if tenure is not None else None
        state.running = rollout is not None
        state.registry_away = tenure is not None and bool(tenure.registry_away)
        state.for_person = found is not None and found.for_person
        if tenure is None or rollout is None:
            return
        step, judged = rollout.at(), tenure.judged
        state.step, state.steps = rollout.step, len(rollout.plan.steps)
        state.wanted_seconds = step.seconds if step is not None else 0.0
        state.baked_seconds = judged.bake.baked if judged is not None else 0.0
        state.behind_seconds = judged.pace.behind if judged is not None else None
        state.pairs = max((each.found.pairs for each in judged.verdict.findings), default=0) if judged is not None else 0

    def wrote(self, entry: LogEntry) -> None:
        if entry.kind is not EntryKind.MOVED:
            name = entry.outcome if entry.kind is EntryKind.ENDED else entry.verdict
            self.state.decisions[name or entry.kind] += 1

    def not_live(self) -> str | None:
        silent = time.monotonic() - self.state.looked
        return f"it has not looked for {silent:.0f} s" if silent > HANGS_SECONDS else None

    def not_ready(self) -> str | None:
        return "it has not looked yet" if self._first else self.not_live()


def run(settings: Settings, config: Path, flags: Sequence[str], log_level: str) -> None:
    """Until SIGTERM or SIGINT. Raises Fatal."""
    limit_malloc_arenas()
    name = f"{settings.name}.rollout.{settings.replica}"
    logs.configure({"controller": name}, log_level)
    seen = _ControllerStatus()
    controller = Controller(settings, name, config, flags, seen.looked, seen.wrote)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: controller.stop())
    registry = CollectorRegistry()
    registry.register(RolloutMetrics(seen.state))
    health = HealthServer(settings.rollout.listen, registry, seen.not_live, seen.not_ready)
    log.info("controls the rollouts of %s; health and metrics on http://%s", settings.name, health.address)
    start_gc_thread()
    try:
        controller.run()
    finally:
        health.close()
