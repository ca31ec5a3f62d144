"""A round of the campaign of scorers, and its event rate."""

import time
from collections.abc import Callable

from tests.chaos import rounds
from tests.chaos.faults.fleet import Fleet
from tests.chaos.faults.plan import ScorerRound
from tests.chaos.faults.stage import READY_SECONDS, Ground, ScorerResult, Stage
from tests.chaos.load import Load
from tests.support.waiting import within

DRAINED_EVENTS = 40_000


def play(
    ground: Ground,
    played: ScorerRound,
    rate: float,
    broken: str | None = None,
    watching: Callable[[Fleet], None] = lambda _: None,
) -> ScorerResult:
    """Play one round on this ground at `rate` events a second. `watching` receives the scorers before they are started."""
    result = ScorerResult(played.number, played.seed, played.faults, protocol=played.protocol, scorers=played.scorers)
    stage = Stage(ground, played, rate, broken)
    watching(stage.fleet)
    return rounds.play(stage, played, result)


def drain_rate(ground: Ground) -> float:
    """Measure the events a second that two scorers drain from a backlog."""
    stage = Stage(ground, ScorerRound(0, 0, (), 0.0, (), "classic", 2), 1e9)
    watch, tend = stage.watch, stage.tend
    try:
        backlog = Load(ground.cluster.bootstrap_servers, stage.rig.events_topic, 1e9, DRAINED_EVENTS)
        backlog.start()
        backlog.join()
        backlog.finish()
        watch.start()
        stage.fleet.start()
        within(lambda: watch.seen > 0, READY_SECONDS, tend)
        began, already = time.monotonic(), watch.seen
        within(lambda: watch.seen >= DRAINED_EVENTS, rounds.DRAIN_SECONDS, tend)
        return (watch.seen - already) / (time.monotonic() - began)
    finally:
        stage.close(keep=False)
