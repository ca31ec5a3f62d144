"""The consumer between a rebalance and a recovery: the events that count, its read offsets, and the paused partitions."""

import logging
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError

from publisher.errors import Aborted, Fatal, MemberLost
from scorer.consumer import group_membership
from scorer.consumer.consumer import CHECK_SECONDS
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.consumer.partition_ownership import OwnershipMarker
from scorer.consumer.start_offsets import leader_epoch_field
from tests.unit.scorer.consumer.group import MEMBER, TOPIC, Group, end, event, failing

PARTITION_0, PARTITION_1 = (TOPIC, 0), (TOPIC, 1)


@pytest.fixture
def group() -> Group:
    """Return a member with the first partition, whose group has committed offset 5."""
    member = Group()
    member.committed[PARTITION_0] = 5, OffsetMetadata(owner="n.b", revision=3)
    member.assign(0)
    return member


def test_an_assignment_starts_at_the_committed_offset_with_its_metadata(group: Group) -> None:
    assert group.reads == {PARTITION_0: 5}
    assert group.intake.joined
    assert group.intake.partitions.metadata(PARTITION_0) == OffsetMetadata("n.b", 3, topic_id="one")
    assert group.intake.partitions.arrivals() == {PARTITION_0}
    group.intake.partitions.admit([PARTITION_0])
    assert not group.intake.partitions.arrivals()


def test_a_commit_in_flight_is_decided_before_offsets_are_read(group: Group) -> None:
    group.session.wait_for_commit.side_effect = lambda: group.committed.update({PARTITION_0: (9, OffsetMetadata())})
    group.intake.rewind()
    assert group.reads == {PARTITION_0: 9}


def test_messages_of_two_assignments_are_read_again_from_the_committed_offset(group: Group) -> None:
    group.waiting += [event(5), event(7, 1), lambda: group.revoke(0), lambda: group.assign(0, 1), event(5), event(8, 1)]
    assert group.offsets() == []
    group.reads.clear()
    assert group.offsets() == []
    assert group.reads == {PARTITION_0: 5, PARTITION_1: 0}
    group.waiting += [event(5), event(0, 1)]
    assert group.offsets() == [5, 0]


def test_messages_of_a_revoked_partition_are_dropped_and_the_others_kept(group: Group) -> None:
    group.assign(1)
    group.waiting += [event(5), event(0, 1), lambda: group.revoke(0), event(1, 1)]
    assert group.offsets() == [0, 1]
    assert [call.kwargs for call in group.session.release.call_args_list] == [{"lost": False}]


def recreate_topic(group: Group) -> None:
    group.topic_id = "two"


def reassign_partition(group: Group) -> None:
    group.revoke(0)
    group.assign(0)


@pytest.mark.parametrize("change", [recreate_topic, reassign_partition, lambda group: group.revoke(0, lost=True)])
def test_a_batch_is_stale_once_its_partition_is_reassigned_or_its_topic_recreated(
    group: Group, change: Callable[[Group], None]
) -> None:
    group.waiting.append(event(5))
    batch = group.intake.take(0.0, lambda _: 1)
    assert batch is not None
    assert not group.intake.is_stale(batch)
    change(group)
    assert group.intake.is_stale(batch)


def test_a_recreated_topic_is_read_by_another_client(group: Group) -> None:
    """The current client may know leader epochs of the old topic."""
    group.topic_id = "two"
    with pytest.raises(MemberLost, match="was recreated"):
        group.intake.rewind()


def test_a_partition_without_leader_and_position_starts_once_it_has_a_leader(group: Group) -> None:
    group.leaderless = {1}
    group.assign(1, 2)
    assert group.reads == {PARTITION_0: 5, PARTITION_1: 0, (TOPIC, 2): 0}
    assert group.paused() == {1}
    assert group.intake.partitions.arrivals() == {PARTITION_0, (TOPIC, 2)}
    group.intake.check_unreadable(0.0)
    assert sorted(group.intake.unavailable_reasons()) == [PARTITION_1]
    group.leaderless = set()
    group.intake.check_unreadable(CHECK_SECONDS)
    assert group.offsets() == []
    assert (group.reads[PARTITION_1], group.paused()) == (0, set())
    assert PARTITION_1 in group.intake.partitions.arrivals()


def test_a_partition_without_a_start_position_may_be_revoked(group: Group) -> None:
    group.leaderless = {1}
    group.assign(1)
    group.revoke(1)
    group.leaderless = set()
    group.intake.check_unreadable(0.0)
    assert group.offsets() == []
    assert list(group.intake.partitions) == [PARTITION_0]


def test_a_seek_that_is_too_early_is_retried_and_its_events_do_not_count(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    group.unseekable.add(PARTITION_0)
    group.intake.rewind()
    group.waiting.append(event(5))
    assert group.offsets() == []
    group.unseekable.clear()
    group.waiting.append(event(5))
    assert group.offsets() == [5]
    monkeypatch.setattr(group_membership, "SEEK_SECONDS", -1.0)
    group.unseekable.add(PARTITION_0)
    with pytest.raises(MemberLost, match="cannot seek"):
        group.intake.rewind()


def test_a_lost_member_rejoins_with_another_client_and_no_partitions() -> None:
    another = Group().consumer
    group = Group(renew=lambda: another)
    group.assign(0)
    group.intake.rejoin()
    assert list(group.intake.partitions) == []
    assert another.subscribe.call_count == 2
    with pytest.raises(Fatal, match="no longer a member"):
        Group().intake.rejoin()


def test_a_partition_out_of_range_is_paused_until_the_group_is_moved(group: Group) -> None:
    group.assign(1)
    for _ in range(2):  # the client reports no offset, so the first failure is not trusted
        group.waiting.append(failing(-1, KafkaError._AUTO_OFFSET_RESET))
        group.offsets()
    assert group.paused() == {0}
    assert "the position of the group is 5" in group.intake.unavailable_reasons()[PARTITION_0]
    group.waiting.append(event(0, 1))
    assert group.offsets() == [0]
    group.intake.check_unreadable(0.0)
    assert group.paused() == {0}
    group.committed[PARTITION_0] = 50, OffsetMetadata()
    group.intake.check_unreadable(CHECK_SECONDS)
    assert group.paused() == set()
    assert group.reads[PARTITION_0] == 50
    assert group.intake.unavailable_reasons() == {}


def test_partitions_without_a_leader_are_reported_until_they_have_one(group: Group) -> None:
    group.assign(1)
    reported = []
    for second, leaderless in enumerate(({2}, {1, 2}, {1, 2}, {2})):
        group.leaderless = leaderless
        group.intake.check_unreadable(float(second) * CHECK_SECONDS)
        reported.append(sorted(group.intake.unavailable_reasons()))
    assert reported == [[], [PARTITION_1], [PARTITION_1], []]


def test_a_log_line_names_a_thousand_partitions_in_ranges(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    group.assign(*range(1, 1_000), 2_000)
    group.revoke(*range(1, 1_000))
    group.assign(*range(1, 1_000))
    group.leaderless = set(range(500))
    group.intake.check_unreadable(0.0)
    group.leaderless = {499}
    group.intake.check_unreadable(CHECK_SECONDS)
    assert caplog.messages[-5:] == [
        "assigned: flights[1-999,2000]",
        "revoked: flights[1-999]",
        "assigned: flights[1-999]",
        "no broker leads flights[0-499]: these partitions are not read for now, the other partitions are still read",
        "partitions that have a leader again: flights[0-498]",
    ]


def test_lag_counts_from_the_last_read_event(group: Group) -> None:
    assert group.intake.lag() == {PARTITION_0: 95}
    group.waiting += [event(5), event(6)]
    group.offsets()
    assert group.intake.lag() == {PARTITION_0: 93}


@pytest.mark.parametrize("assigned", [True, False])
def test_a_member_without_partitions_unsubscribes_before_it_leaves(assigned: bool) -> None:
    group = Group()
    if assigned:
        group.assign(0)
    group.intake.close()
    assert group.consumer.unsubscribe.called == (not assigned)
    group.assign(1)  # too late: the member leaves
    assert PARTITION_1 not in group.intake.partitions


@pytest.fixture
def two(group: Group) -> Group:
    """Return a member that has two partitions of another owner."""
    group.committed[PARTITION_1] = 7, OffsetMetadata("n.b", 3)
    group.assign(1)
    return group


def published_owners(group: Group) -> list[tuple[int, int, str]]:
    records, offsets, _ = group.session.publish.call_args.args
    assert records == []
    return [(p.partition, p.offset, OffsetMetadata.decode(p.metadata).owner) for p in offsets]


def test_a_claim_names_the_owner_and_moves_nothing(two: Group) -> None:
    claims = OwnershipMarker("n.a", two.intake, two.session)
    claims.claim([])
    assert not two.session.publish.called
    claims.claim([PARTITION_0])
    assert published_owners(two) == [(0, 5, "n.a")]
    assert two.session.checkpoint.called
    assert two.intake.partitions.metadata(PARTITION_0) == OffsetMetadata("n.a", 3, topic_id="one", member=MEMBER)
    claims.clear_owner()
    assert published_owners(two) == [(0, 5, "")]
    assert two.intake.partitions.metadata(PARTITION_0) == OffsetMetadata("", 3, topic_id="one")


def test_an_assigned_partition_is_not_fetched_before_it_is_claimed() -> None:
    """A fetched batch may kill this process. The next owner must then find the name of this process."""
    group = Group()
    group.assign(0, 1, claimed=False)
    assert group.paused() == {0, 1}
    group.intake.resume([PARTITION_0], "unclaimed")
    assert group.paused() == {1}


def test_a_failed_claim_is_not_recorded_and_a_failed_release_is_no_error(two: Group) -> None:
    claims = OwnershipMarker("n.a", two.intake, two.session)
    two.session.checkpoint.side_effect = Aborted("no")
    with pytest.raises(Aborted):
        claims.claim([PARTITION_0])
    assert two.intake.partitions.metadata(PARTITION_0).owner == "n.b"
    two.session.checkpoint.side_effect = [None, Aborted("no")]
    claims.claim([PARTITION_0])
    claims.clear_owner()


def test_a_partition_is_read_again_when_no_reason_remains(two: Group) -> None:
    two.intake.pause([PARTITION_0, PARTITION_1], "backend unavailable")
    two.intake.pause([PARTITION_0], "revision")
    two.intake.resume([PARTITION_0, PARTITION_1], "backend unavailable")
    assert two.paused() == {0}
    two.intake.resume([PARTITION_0, PARTITION_1], "revision")
    assert two.paused() == set()
    two.intake.pause([PARTITION_0], "revision")
    two.revoke(0)
    assert two.paused() == set()


def test_the_end_of_a_partition_is_a_position_past_markers_and_no_failure(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    group.waiting += [event(5), end(6), end(9)]
    assert group.offsets() == [5]
    assert group.intake.partitions.next(PARTITION_0) == 9
    assert group.intake.lag() == {PARTITION_0: 91}
    group.waiting.append(end(7))  # an earlier one
    assert group.offsets() == []
    assert group.intake.partitions.next(PARTITION_0) == 9
    assert not [record for record in caplog.records if record.name.startswith("scorer.consumer")]


def test_an_end_of_an_earlier_assignment_is_no_position(group: Group) -> None:
    group.waiting += [event(5), end(9), lambda: group.revoke(0), lambda: group.assign(0)]
    group.offsets()
    group.offsets()
    assert group.intake.partitions.next(PARTITION_0) == 5


def test_positions_past_markers_are_committed_only_while_the_topic_is_current(group: Group) -> None:
    group.waiting.append(end(9))
    group.offsets()
    (position,) = group.intake.positions_without_events("n.a")
    assert (position.partition, position.offset, leader_epoch_field(position.leader_epoch)) == (0, 9, -1)
    assert OffsetMetadata.decode(position.metadata) == OffsetMetadata("n.a", 3, topic_id="one", member=MEMBER)
    group.intake.partitions.record_committed([position], "n.a")
    assert group.intake.partitions.committed() == {PARTITION_0: 9}
    assert group.intake.positions_without_events("n.a") == []
    group.waiting.append(end(12))
    group.offsets()
    group.topic_id = "two"
    assert group.intake.positions_without_events("n.a") == []
