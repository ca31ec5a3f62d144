"""At-least-once delivery on the real broker: nothing lost, and what is doubled is what a crash may double."""

from tests.integration.scorer.rig import MakeRig, Rig, until
from tests.integration.scorer.test_kill import load

RATE = 2_000
REPEATED_SECONDS = 3.0  # a checkpoint each second, the second that a busy machine may be late, and what was on its way


def counts(rig: Rig, *names: str) -> tuple[int, ...]:
    audit = rig.audit()
    return tuple(audit[name] for name in names)


def test_kill_9_loses_nothing_and_repeats_about_a_second(make_rig: MakeRig) -> None:
    rig = make_rig(delivery="at-least-once").stocked(6, versions=2)
    first, second = rig.start("a").ready(), rig.start("b").ready()
    flow = load(rig, 16_000, RATE)
    until(lambda: rig.answered() > 5_000, "the first scores")
    first.kill()
    until(lambda: second.metric("scorer_assigned_partitions") == 6, "the take-over")
    flow.join()
    until(lambda: counts(rig, "missing") == (0,), "all scores")
    missing, duplicates, phantoms = counts(rig, "missing", "duplicates", "phantoms")
    assert (missing, phantoms) == (0, 0)
    assert duplicates <= REPEATED_SECONDS * RATE
    assert second.stop() == 0


def test_an_orderly_hand_over_doubles_nothing(make_rig: MakeRig) -> None:
    rig = make_rig(delivery="at-least-once").stocked(6, versions=2)
    first = rig.start("a").ready()
    flow = load(rig, 12_000, RATE)
    until(lambda: rig.answered() > 2_000, "the first scores")
    second = rig.start("b").ready()
    until(lambda: second.metric("scorer_assigned_partitions") == 3, "a share of the partitions")
    rig.promote("2.0.0")
    until(lambda: rig.answered() > 6_000, "more scores")
    assert first.stop() == 0
    flow.join()
    until(lambda: rig.answered() >= 12_000, "all scores")
    assert second.stop() == 0
    names = "inputs", "missing", "duplicates", "phantoms", "out_of_order", "version_regressions"
    assert counts(rig, *names) == (12_000, 0, 0, 0, 0, 0)
    assert all("aborts" not in scorer.said and "recovering" not in scorer.said for scorer in rig.scorers)
