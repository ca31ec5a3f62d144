"""The metrics of a controller as a leader and as a standby."""

from collections import Counter

from prometheus_client import CollectorRegistry, generate_latest

from scorer.observability.rollout_metrics import RolloutMetrics, RolloutState


def exported(state: RolloutState, now: float = 100.0) -> dict[str, float]:
    """Return the scraped samples by name without the prefix `scorer_rollout_`."""
    registry = CollectorRegistry()
    registry.register(RolloutMetrics(state, lambda: now))
    lines = generate_latest(registry).decode().splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name.removeprefix("scorer_rollout_"): float(value) for name, value in samples.items()}


def test_a_leader_exports_the_rollout() -> None:
    decisions = Counter({"promote": 2, "roll back": 1})
    state = RolloutState(True, True, 1, 4, 300.0, 900.0, 0.5, 4_000, True, True, decisions, 98.0)
    assert exported(state) == {
        "leader": 1,
        "look_age_seconds": 2,
        "registry_away": 1,
        "running": 1,
        "step": 2,
        "steps": 4,
        "baked_seconds": 300,
        "wanted_seconds": 900,
        "pairs": 4_000,
        "waits_for_person": 1,
        "behind_seconds": 0.5,
        'decisions_total{verdict="promote"}': 2,
        'decisions_total{verdict="roll back"}': 1,
    }


def test_it_follows_its_state() -> None:
    state = RolloutState(is_leader=True, running=True)
    assert exported(state)["step"] == 0
    assert "behind_seconds" not in exported(state)
    state.step, state.behind_seconds = 0, 40.0
    assert (exported(state)["step"], exported(state)["behind_seconds"]) == (1, 40)


def test_a_standby_exports_no_metrics_of_the_rollout() -> None:
    standby = {"leader": 0, "look_age_seconds": 1, "registry_away": 0}
    assert exported(RolloutState(running=True, step=2, pairs=9, iterated_at=99.0)) == standby
    assert exported(RolloutState(is_leader=True, step=2, iterated_at=99.0)) == standby | {"leader": 1, "running": 0}
