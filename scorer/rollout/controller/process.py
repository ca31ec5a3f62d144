"""The process of `scorer rollout run`: signals, health and metrics around the controller."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry

from publisher.kafka.certificate_expiry import CertificateExpiry
from publisher.runtime import logs
from publisher.runtime.health import HealthServer
from publisher.runtime.malloc_tuning import limit_malloc_arenas, start_gc_thread
from publisher.runtime.process_metrics import register_process_metrics
from publisher.runtime.stop_signals import stop_on_signals
from scorer.observability.rollout_metrics import RolloutMetrics, RolloutState
from scorer.rollout.controller.controller import Controller
from scorer.rollout.controller.leadership_term import LeaderTerm
from scorer.rollout.controller.log_records import EntryKind, LogEntry
from scorer.rollout.controller.next_action import NextAction
from scorer.settings import Settings

log = logging.getLogger(__name__)

HANG_SECONDS = 120.0  # without a cycle, after which the process is reported as not live


class _ControllerStatus:
    """The state of the controller for the metrics and the health checks."""

    def __init__(self) -> None:
        self.state = RolloutState(iterated_at=time.monotonic())
        self._first = True

    def record_cycle(self, term: LeaderTerm | None, action: NextAction | None) -> None:
        state = self.state
        self._first = False
        state.iterated_at = time.monotonic()
        state.is_leader = term is not None
        rollout = term.rollout if term is not None else None
        state.running = rollout is not None
        state.registry_unavailable = term is not None and bool(term.registry_error)
        state.waits_for_operator = action is not None and action.for_person
        if term is None or rollout is None:
            return
        step = rollout.at()
        snapshot = term.snapshot
        state.step = rollout.step
        state.steps = len(rollout.plan.steps)
        state.wanted_seconds = step.seconds if step is not None else 0.0
        state.baked_seconds = snapshot.bake.baked if snapshot is not None else 0.0
        state.behind_seconds = snapshot.pace.behind if snapshot is not None else None
        state.pairs = (
            max((result.interval.pairs for result in snapshot.verdict.findings), default=0) if snapshot is not None else 0
        )

    def count_decision(self, entry: LogEntry) -> None:
        if entry.kind is not EntryKind.MOVED:
            name = entry.outcome if entry.kind is EntryKind.ENDED else entry.verdict
            self.state.decisions[name or entry.kind] += 1

    def not_live(self) -> str | None:
        silent = time.monotonic() - self.state.iterated_at
        return f"no cycle for {silent:.0f} s" if silent > HANG_SECONDS else None

    def not_ready(self) -> str | None:
        return "no cycle has run yet" if self._first else self.not_live()


def run(settings: Settings, config: Path, flags: Sequence[str]) -> None:
    """Run until SIGTERM or SIGINT.

    Raises:
        Fatal: In the same cases as `Controller.run`.
    """
    limit_malloc_arenas()
    name = f"{settings.name}.rollout.{settings.replica}"
    logs.configure({"controller": name}, settings.log.level, settings.log.format)
    status = _ControllerStatus()
    controller = Controller(settings, name, config, flags, status.record_cycle, status.count_decision)
    stop_on_signals(controller.stop)
    registry = CollectorRegistry()
    register_process_metrics(registry, "scorer_rollout")
    registry.register(RolloutMetrics(status.state))
    registry.register(CertificateExpiry("scorer", settings.certificate_files))
    health = HealthServer(settings.rollout.listen, registry, status.not_live, status.not_ready)
    log.info("controlling the rollouts of %s; health and metrics on http://%s", settings.name, health.address)
    start_gc_thread()
    try:
        controller.run()
    finally:
        health.close()
