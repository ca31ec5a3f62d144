"""Killed, frozen and stopped scorers on the real broker: the count stays zero."""

import signal
import threading

import pytest

from tests.chaos.faults.fleet import LAUNCHER
from tests.integration.scorer.rig import MakeRig, Rig, ScorerProcess, events, until

COUNT = 24_000
FEW, TRIES = 20_000, 16


def load(rig: Rig, count: int = COUNT, rate: int = 2_000, start: int = 0) -> threading.Thread:
    thread = threading.Thread(target=rig.emit, args=(events(count, start, keys=300), "--rate", str(rate)))
    thread.start()
    return thread


def test_kill_9_in_the_middle_of_a_swap_loses_and_doubles_nothing(make_rig: MakeRig) -> None:
    rig = make_rig().stocked(6, versions=2)
    first, second = rig.start("a").ready(), rig.start("b").ready()
    events_flow = load(rig)
    until(lambda: rig.answered() > 6_000, "the first scores")
    rig.promote("2.0.0")
    first.kill()
    until(lambda: second.metric("scorer_assigned_partitions") == 6, "the take-over")
    third = rig.start("a").ready()
    events_flow.join()
    until(lambda: rig.answered() >= COUNT, "all scores")
    rig.assert_clean(events=COUNT, scored=COUNT)
    assert {record["version"] for record in rig.scores()} == {"1.0.0", "2.0.0"}
    assert [scorer.stop() for scorer in (second, third)] == [0, 0]


@pytest.mark.timeout(1_800)
def test_a_survivor_that_recovers_ends_the_transaction_of_the_dead(make_rig: MakeRig) -> None:
    """It recovers where the group's new generation refuses its own transaction, as happens more often than not; else only the
    time-out would end the other, here later than this test does."""
    rig = make_rig(kafka={"transaction_timeout_ms": 300_000}).stocked(6, versions=2)
    rig.program = list(LAUNCHER)
    survivor, tries = rig.start("b").ready(), 0
    while "ILLEGAL_GENERATION" not in survivor.said:
        assert tries < TRIES
        take_over(rig, survivor, tries * FEW, (tries + 1) * FEW)
        tries += 1
    rig.assert_clean(events=tries * FEW, scored=tries * FEW)


def take_over(rig: Rig, survivor: ScorerProcess, start: int, stop: int) -> None:
    """A second scorer joins and dies with a transaction open, while the events `start` to `stop` flow."""
    armed = rig.folder / "armed"
    doomed = rig.start("a", ARM_FILE=str(armed))
    until(lambda: survivor.metric("scorer_assigned_partitions") == 3, "a share of the partitions")
    events_flow = load(rig, stop - start, start=start)
    until(lambda: rig.answered() > start + 2_000, "the first scores")
    armed.symlink_to("after:send_offsets_to_transaction")
    assert doomed.wait() == -signal.SIGKILL, doomed.said
    until(lambda: survivor.metric("scorer_assigned_partitions") == 6, "the take-over")
    events_flow.join()
    until(lambda: rig.answered() >= stop, "all scores")


def test_a_frozen_scorer_is_fenced_when_it_thaws(make_rig: MakeRig) -> None:
    rig = make_rig().stocked(6, versions=2)
    zombie, survivor = rig.start("a").ready(), rig.start("b").ready()
    events_flow = load(rig)
    until(lambda: rig.answered() > 4_000, "the first scores")
    zombie.send(signal.SIGSTOP)
    until(lambda: survivor.metric("scorer_assigned_partitions") == 6, "the take-over")
    zombie.send(signal.SIGCONT)
    events_flow.join()
    until(lambda: rig.answered() >= COUNT, "all scores")
    rig.assert_clean(events=COUNT, scored=COUNT)


def test_rolling_restarts_hand_over_at_once_on_the_consumer_protocol(make_rig: MakeRig) -> None:
    rig = make_rig(kafka={"group_protocol": "consumer"}).stocked(6, versions=2)
    rig.start("a").ready()
    rig.start("b").ready()
    events_flow = load(rig, 16_000)
    for number, replica in enumerate(("a", "b", "a", "b")):
        until(lambda number=number: rig.answered() > 3_000 * (number + 1), "progress")  # type: ignore[misc]
        old = [scorer for scorer in rig.scorers if scorer.replica == replica][-1]
        assert old.stop() == 0
        rig.start(replica).ready()
    events_flow.join()
    until(lambda: rig.answered() >= 16_000, "all scores")
    rig.assert_clean(events=16_000, scored=16_000)


def test_a_scorer_that_holds_nothing_leaves_its_group_when_it_stops(make_rig: MakeRig) -> None:
    """Else the next assignment waits until its session is over: here far longer than this test does."""
    rig = make_rig(kafka={"group_protocol": "classic", "session_timeout_ms": 300_000}).stocked(1)
    busy = rig.start("a").ready()
    until(lambda: busy.metric("scorer_assigned_partitions") == 1, "the partition")
    idle = rig.start("b").ready()
    until(lambda: "assigned: nothing" in idle.said, "a place in the group")
    assert idle.stop() == 0
    until(
        lambda: len(rig.admin.describe_consumer_groups([rig.name])[rig.name].result().members) == 1, "the way out of the group"
    )


def test_a_backlog_survives_a_kill_of_every_scorer(make_rig: MakeRig) -> None:
    """No survivor: a restart under the same name decides what was left open, then reads on from what was committed."""
    rig = make_rig(batching={"max_events": 100, "latency_target_ms": 5}).stocked(6, versions=2)
    count = rig.emit(events(30_000, keys=300))
    for _ in range(3):
        scorer = rig.start("a").ready()
        before = len(rig.scores())
        until(lambda before=before: rig.answered() > min(before + 1_000, count - 1), "progress")  # type: ignore[misc]
        scorer.kill()
    rig.start("a")
    until(lambda: rig.answered() >= count, "all scores")
    rig.assert_clean(events=count, scored=count)
