"""The loop over a scripted group: its actions after a refusal, and after a partition is assigned again."""

from typing import Any
from unittest.mock import Mock

import pytest

from publisher.errors import Aborted, Evicted, Fatal, MemberLost, RecordRejected
from scorer.backends.base import InferenceFailed, ModelBroken
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.crash_isolation.sandbox_process import SandboxProcessDied
from scorer.worker import worker as loop_module
from scorer.worker.encode import TargetTopic
from scorer.worker.score_batch import BatchScorer, ScoredBatch
from tests.unit.scorer.consumer.group import event
from tests.unit.scorer.worker.looped import PARTITION, SETTINGS, Looped

Published = tuple[list[str], list[tuple[int, str]]]
CLAIMED: Published = [], [(7, SETTINGS.owner)]
SCORED: Published = ["out"], [(8, SETTINGS.owner)]
RELEASED: Published = [], [(8, "")]


@pytest.mark.parametrize("refusal", [Aborted("the coordinator has moved"), Evicted("another generation")])
def test_no_event_is_scored_before_a_refused_claim_is_repeated(refusal: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "GROUP_POLL_SECONDS", 0.0)
    looped = Looped(OffsetMetadata("flights.b", 1, "1", "d", topic_id="one"))
    looped.session.publish.side_effect = [refusal, None, None, None]
    looped.group.waiting.append(event(7))
    looped.run(3)
    assert looped.published() == [CLAIMED, CLAIMED, SCORED, RELEASED]
    assert looped.session.recover.call_count == 1
    assert looped.scoring.score.call_count == 1


def test_a_reassigned_partition_is_claimed_again_and_read_from_the_committed_offset() -> None:
    looped = Looped()
    looped.group.waiting.append(event(7))
    looped.run(1)
    looped.group.revoke(0)
    looped.group.committed[PARTITION] = 9, OffsetMetadata("flights.b", 1, "1", "d", topic_id="one")
    looped.group.assign(0)
    looped.group.waiting.append(event(9))
    looped.run(1)
    owner = SETTINGS.owner
    assert looped.published()[-3:] == [([], [(9, owner)]), (["out"], [(10, owner)]), ([], [(10, "")])]


def test_a_lost_member_joins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looped, rejoin = Looped(), Mock()
    monkeypatch.setattr(looped.group.intake, "rejoin", rejoin)
    looped.session.tick.side_effect = [MemberLost("no longer a member"), None]
    looped.run(3)
    assert rejoin.call_count == 1
    assert looped.session.recover.call_count == 1


def test_after_consecutive_failures_the_group_is_polled_until_the_next_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "WAIT_SECONDS", 0.0)
    looped = Looped()
    looped.session.tick.side_effect = Aborted("the broker gave up the transaction")
    looped.run(9)
    assert looped.session.recover.call_count == 2
    assert looped.metrics.outages.summary() == "commits: the broker gave up the transaction"
    assert looped.published() == [], "a scorer that has to recover does not clear its ownership"


@pytest.mark.parametrize(
    ("failure", "expected"), [(Aborted("an unknown partition"), 2), (Evicted("another generation"), 4), (None, 4)]
)
def test_after_a_failed_write_only_existing_partitions_are_written(
    failure: Exception | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "GROUP_POLL_SECONDS", 0.0)
    targets = TargetTopic("out", 2, 9), TargetTopic("dead", 8, 9)
    looped = Looped(targets=lambda: targets)
    scorer = BatchScorer(SETTINGS, TargetTopic("out", 4, 1_000), TargetTopic("dead", 4, 1_000))
    looped.scoring.reduce_partitions.side_effect = scorer.reduce_partitions
    looped.session.tick.side_effect = [failure, None, None] if failure else None
    looped.run(3)
    assert scorer.output == TargetTopic("out", expected, 1_000)
    assert scorer.dead == TargetTopic("dead", 4, 1_000)


def test_an_event_whose_score_the_broker_refuses_becomes_a_dead_letter() -> None:
    looped = Looped()

    def publish(records: list[Any], *_: Any, **__: Any) -> None:
        if rejected := [record for record in records if record[0] == "out"]:
            raise RecordRejected("too large", rejected, certain=True)

    looped.session.publish.side_effect = publish
    looped.scoring.dead = TargetTopic("dead", 1, 1_000_000)
    looped.scoring.dead_letter.side_effect = lambda *_: ("dead", b"event", None, 0, 1, [])
    looped.group.waiting.append(event(7))
    looped.run(1)
    assert looped.published()[-2:] == [(["dead"], [(8, SETTINGS.owner)]), RELEASED]
    assert looped.group.intake.partitions.committed() == {PARTITION: 8}


def test_a_rejection_after_a_revocation_is_left_to_the_next_owner() -> None:
    looped = Looped()
    looped.group.waiting.append(event(7))

    def settle() -> None:
        if looped.scoring.score.called:
            looped.session.wait_for_publish.side_effect = None
            looped.group.revoke(0)
            raise RecordRejected("too large")

    looped.session.wait_for_publish.side_effect = settle
    looped.run(1)
    assert not looped.scoring.dead_letter.called
    assert looped.metrics.outages.summary() == "commits: too large"


@pytest.mark.parametrize("is_failing", [True, False])
def test_events_that_killed_a_sandbox_process_are_dead_letters_or_read_again(is_failing: bool) -> None:
    looped = Looped()
    looped.scoring.score.side_effect = SandboxProcessDied("was ended by SIGSEGV")
    looped.scoring.give_up.side_effect = lambda batch, *_: ScoredBatch([("dead", b"1", None, 0, 1, None)] * len(batch))
    looped.quarantine.record_death.return_value = is_failing
    looped.group.waiting.append(event(7))
    looped.run(1)
    assert (["dead"], [(8, SETTINGS.owner)]) in looped.published() if is_failing else looped.group.reads == {PARTITION: 7}
    assert looped.metrics.outages.summary() is None


@pytest.mark.parametrize(("error", "stays"), [(ModelBroken(InferenceFailed("no")), True), (Fatal("refused"), False)])
def test_the_batch_in_flight_stays_recorded_if_the_model_is_broken(error: Fatal, stays: bool) -> None:
    looped = Looped()
    looped.scoring.score.side_effect = error
    looped.group.waiting.append(event(7))
    with pytest.raises(type(error)):
        looped.run(1)
    assert looped.quarantine.begin_batch.called
    assert looped.quarantine.end_batch.called is not stays


@pytest.mark.parametrize("further_refusals", [0, 3])
def test_a_member_that_its_group_refuses_polls_the_group_before_it_reads_again(
    further_refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes a refusal of the request for committed offsets."""
    looped, intake = Looped(), Mock()
    refusals = iter([Evicted("unknown member")] * further_refusals)
    rewind = looped.group.intake.rewind

    def refused() -> None:
        intake.rewind()
        if (error := next(refusals, None)) is not None:
            raise error
        rewind()

    monkeypatch.setattr(looped.group.intake, "rewind", refused)
    monkeypatch.setattr(looped.group.intake, "poll_group", intake.poll_group)
    looped.session.tick.side_effect = [Evicted("unknown member"), None]
    looped.group.waiting.append(event(7))
    looped.run(3 + further_refusals)
    assert [name for name, *_ in intake.mock_calls] == ["poll_group", "rewind"] * (further_refusals + 1)
    assert looped.session.recover.call_count == further_refusals + 1
    assert (["out"], [(8, SETTINGS.owner)]) in looped.published()
