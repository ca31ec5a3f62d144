"""Plan and carry out `publisher failover`, which lets consumer groups of a relay's source continue at the destination.

The committed positions come from the source if it answers, otherwise from the last snapshot that the relay stored. Events that
were scored after the snapshot are scored again, with the same ids. The operator must confirm that no scorer of the source runs.
"""

# A position at the destination never moves back, because the records before it were scored in one of the two regions. No code
# here can stop the scorers of an unreachable region.

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from publisher.errors import USAGE, Fatal, Retriable, retriable_as_fatal
from publisher.failover.copy_reader import CopyReader
from publisher.failover.offset_translation import in_copy, in_source
from publisher.kafka.groups import ConsumerGroups, GroupPosition
from publisher.kafka.partitions import Partition
from publisher.kafka.reader import TopicReader
from publisher.kafka.topics import Bounds, Topics
from publisher.relay.checkpoints import NO_CHECKPOINTS_HINT, Checkpoint, CheckpointKey, CheckpointLog, SourceSnapshot
from publisher.relay.clusters import ANSWER_SECONDS, open_checkpoint_log, open_groups, open_topics
from publisher.relay.settings import RelaySettings
from publisher.relay.start_position import CopyRefused, recreated


@dataclass(frozen=True)
class GroupMove:
    """The move of a group's committed position in one partition at the destination.

    Attributes:
        group: the consumer group.
        topic: the topic at the destination.
        partition: the partition, which has the same number at the source.
        before: the offset that the group has committed at the destination before the move; None if there is none.
        after: the offset to commit at the destination.
        waiting: number of offsets from `after` to the end of the destination partition.
        source_topic: the source topic whose committed position is translated to `after`.
        source_next: the offset that the group has committed in `source_topic`.
        metadata: the metadata to commit with `after`.
    """

    group: str
    topic: str
    partition: int
    before: int | None
    after: int
    waiting: int
    source_topic: str
    source_next: int
    metadata: str


@dataclass(frozen=True)
class FailoverPlan:
    """The planned moves of all groups' committed positions. All times are Unix ms.

    Attributes:
        source: the region of the source.
        destination: the region of the destination.
        source_answers: whether the source answers now. If not, the positions of the source come from the stored snapshot.
        seen_ms: when the positions of the source were requested: now, or at the time of the snapshot.
        complete_ms: the latest known time for which the copy is complete: every record that the source contained at this time
            has a copy. 0 if no such time is known.
        lag_records: number of source offsets that were not copied at `seen_ms`.
        lag_scored: number of offsets that were scored at the source but not copied, summed over the groups.
        moves: one move per group and partition.
        active_members: the client ids of the groups' current members, by region. If there are any, `commit_plan` raises Fatal.
    """

    source: str
    destination: str
    source_answers: bool
    seen_ms: int
    complete_ms: int
    lag_records: int
    lag_scored: int
    moves: Sequence[GroupMove]
    active_members: Mapping[str, Sequence[str]]


def plan(settings: RelaySettings, to: str, now_ms: int) -> FailoverPlan:
    """Plan the moves of the consumer groups' positions to the region `to`. Changes nothing.

    Raises:
        Fatal: with exit code 2 if the settings name no group, or another destination than `to`. With 3 if a move would be
            unsafe: no positions of the source are known, or a destination topic was recreated after its checkpoints. With 4 if
            the destination does not answer.
    """
    _refuse_other_regions(settings, to)
    with retriable_as_fatal("check destination.bootstrap_servers"):
        return _plan(settings, now_ms)


def commit_plan(settings: RelaySettings, failover: FailoverPlan) -> None:
    """Commit the planned positions at the destination.

    Raises:
        Fatal: with exit code 3 if a group has members, 4 if the destination does not answer.
    """
    for region, members in failover.active_members.items():
        raise CopyRefused(
            f"group {', '.join(settings.source.groups)} has members in {region}: {', '.join(members)}",
            f"stop the scorers in {region} first (a killed scorer remains a member until its session timeout)",
        )
    groups = open_groups(settings.destination, settings.name)
    with retriable_as_fatal("run the command again: it skips the positions that are already committed"):
        for group in settings.source.groups:
            targets = [
                GroupPosition(move.topic, move.partition, move.after, move.metadata)
                for move in failover.moves
                if move.group == group and move.before != move.after
            ]
            groups.move(group, targets)


class _SourceState(NamedTuple):
    """The current state of the source if the source answers, otherwise the stored snapshot.

    Attributes:
        ends: the end offsets of the source partitions.
        groups: the committed positions by group.
        members: the client ids of the groups' members.
    """

    # FailoverPlan explains the other fields.

    answers: bool
    seen_ms: int
    complete_ms: int
    ends: Mapping[Partition, int]
    groups: Mapping[str, Sequence[GroupPosition]]
    members: Sequence[str]


def _refuse_other_regions(settings: RelaySettings, to: str) -> None:
    if not settings.source.groups:
        raise Fatal("source.groups names no consumer group", "set source.groups to the consumer groups of the scorers", USAGE)
    if to != settings.destination.region:
        raise Fatal(
            f"--to {to}: this relay copies from {settings.source.region} to {settings.destination.region}",
            f"write --to {settings.destination.region}, or use the configuration of the relay that copies to {to}",
            USAGE,
        )


def _plan(settings: RelaySettings, now_ms: int) -> FailoverPlan:
    (source, destination) = open_topics(settings)
    checkpoints = open_checkpoint_log(settings)
    checkpoints.refresh()
    positions = checkpoints.checkpoints_of(settings.name)
    if not positions:
        raise CopyRefused(f"relay {settings.name!r} has no checkpoints in {settings.checkpoint_topic}", NO_CHECKPOINTS_HINT)
    _refuse_recreated_copies(settings, destination, positions)
    source_state = _source_state(settings, source, checkpoints, now_ms)
    destination_groups = open_groups(settings.destination, settings.name)
    moves: list[GroupMove] = []
    for group in settings.source.groups:
        before = {(p.topic, p.partition): p.next for p in destination_groups.positions(group)}
        committed = source_state.groups.get(group, ())
        moves += _moves(settings, group, committed, positions, before)
        if source_state.answers:
            moves += _failback_moves(settings, source, destination, group, committed, positions, before)
    if not moves:
        names = ", ".join(settings.source.groups)
        raise CopyRefused(
            f"no group in source.groups ({names}) has committed positions in {settings.source.region} for the copied topics",
            "set source.groups to the consumer groups of the scorers",
        )
    copied = {(key.topic, key.partition): position.next for key, position in positions.items()}
    lag = sum(max(0, end - copied.get(partition, 0)) for partition, end in source_state.ends.items())
    scored = [p for group in settings.source.groups for p in source_state.groups.get(group, ())]
    lag_scored = sum(max(0, p.next - copied.get((p.topic, p.partition), p.next)) for p in scored)
    members = {
        settings.source.region: source_state.members,
        settings.destination.region: _members(destination_groups, settings.source.groups),
    }
    return FailoverPlan(
        source=settings.source.region,
        destination=settings.destination.region,
        source_answers=source_state.answers,
        seen_ms=source_state.seen_ms,
        complete_ms=source_state.complete_ms,
        lag_records=lag,
        lag_scored=lag_scored,
        moves=moves,
        active_members={region: names for region, names in members.items() if names},
    )


def _source_state(settings: RelaySettings, source: Topics, checkpoints: CheckpointLog, now_ms: int) -> _SourceState:
    """Return the current state of the source if it answers, otherwise the stored snapshot."""
    snapshot = checkpoints.snapshot()
    try:
        cluster = source.id()
        groups = open_groups(settings.source, settings.name)
        members = _members(groups, settings.source.groups)
        positions = {group: groups.positions(group) for group in settings.source.groups}
        copied = [(key.topic, key.partition) for key in checkpoints.checkpoints_of(settings.name)]
        ends = {partition: bounds.high for partition, bounds in source.bounds(copied).items()}
    except Retriable:
        return _stored_state(settings, snapshot)
    if snapshot is not None and snapshot.cluster != cluster:
        raise CopyRefused(
            f"the stored positions are from cluster {snapshot.cluster}, but {settings.source.region} is now cluster {cluster}",
            "check source.bootstrap_servers",
        )
    return _SourceState(True, now_ms, snapshot.complete_ms if snapshot is not None else 0, ends, positions, members)


def _stored_state(settings: RelaySettings, snapshot: SourceSnapshot | None) -> _SourceState:
    region = settings.source.region
    if snapshot is None:
        raise CopyRefused(
            f"{region} does not answer, and the relay has stored no positions of {', '.join(settings.source.groups)}",
            "the relay stores these positions while it runs with source.groups; to start scorers without stored positions: "
            "scorer offsets CONFIG --to earliest|latest",
        )
    ends = {(end.topic, end.partition): end.end for end in snapshot.ends}
    return _SourceState(False, snapshot.asked_ms, snapshot.complete_ms, ends, snapshot.groups, ())


def _members(groups: ConsumerGroups, names: Sequence[str]) -> list[str]:
    return [member for group in names for member in groups.members(group)]


def _refuse_recreated_copies(
    settings: RelaySettings, destination: Topics, positions: Mapping[CheckpointKey, Checkpoint]
) -> None:
    """Raise CopyRefused if a destination topic was recreated after its checkpoints, so that earlier copies are missing."""
    topics = destination.topics(position.destination_topic for position in positions.values())
    for position in positions.values():
        topic = topics.get(position.destination_topic)
        if topic is None or topic.id != position.destination_topic_id:
            raise recreated(
                position.destination_topic,
                settings.destination.region,
                position.destination_topic_id,
                topic.id if topic else "none",
            )


def _moves(
    settings: RelaySettings,
    group: str,
    committed: Sequence[GroupPosition],
    positions: Mapping[CheckpointKey, Checkpoint],
    before: Mapping[Partition, int],
) -> Iterator[GroupMove]:
    """Yield a move for each position that a group has committed in the topics that this relay copies.

    A move translates the position to an offset of the copied partition at the destination.
    """
    checkpoints = {(key.topic, key.partition): checkpoint for key, checkpoint in positions.items()}
    copied = [(p, checkpoints[p.topic, p.partition]) for p in committed if (p.topic, p.partition) in checkpoints]
    targets = [(checkpoint.destination_topic, p.partition) for p, checkpoint in copied]
    spans = TopicReader(settings.destination.kafka, settings.name, ANSWER_SECONDS).spans(targets)
    with closing(CopyReader(settings.destination.kafka, settings.name, ANSWER_SECONDS)) as reader:
        for (position, checkpoint), target in zip(copied, targets, strict=True):
            read = reader.for_partition(target, (position.topic, position.partition), settings.source.region)
            low, high = spans[target]
            after = in_copy(read, max(low, before.get(target, 0)), high, position.next)
            topic_ids = checkpoint.topic_id, checkpoint.destination_topic_id
            yield _move(group, target, before.get(target), after, high, position, topic_ids)


def _failback_moves(
    settings: RelaySettings,
    source: Topics,
    destination: Topics,
    group: str,
    committed: Sequence[GroupPosition],
    positions: Mapping[CheckpointKey, Checkpoint],
    before: Mapping[Partition, int],
) -> Iterator[GroupMove]:
    """Yield the moves of a group's positions in topics that were copied from the destination to the source."""
    # The group has scored the copies at the source. The moves prevent it from scoring the originals at the destination again.
    topics = source.topics({p.topic for p in committed} - {key.topic for key in positions})
    candidates = [p for p in committed if p.topic in topics]
    bounds = source.bounds((p.topic, p.partition) for p in candidates)
    with closing(CopyReader(settings.source.kafka, settings.name, ANSWER_SECONDS)) as reader:
        for position in candidates:
            failback = _failback_target(settings, reader, position, bounds[position.topic, position.partition])
            if failback is None:
                continue
            topic, after = failback
            target = topic, position.partition
            end = destination.bounds([target])[target].high
            old = before.get(target)
            topic_ids = topics[position.topic].id, destination.topics([topic])[topic].id
            yield _move(group, target, old, max(after, old or 0), end, position, topic_ids)


def _failback_target(
    settings: RelaySettings, reader: CopyReader, position: GroupPosition, bounds: Bounds
) -> tuple[str, int] | None:
    """Translate a position in a copy at the source to the original partition at the destination.

    Returns:
        The topic at the destination, and the offset in it. None if the source partition is not a copy from the destination, or
        has no committed record.
    """
    if bounds.low == bounds.high:
        return None
    partition = position.topic, position.partition
    origin = reader.first_origin(partition, bounds.low)
    if origin is None or origin.region != settings.destination.region:
        return None
    read = reader.for_partition(partition, (origin.topic, origin.partition), origin.region)
    after = in_source(read, bounds.low, position.next)
    return None if after is None else (origin.topic, after)


def _move(
    group: str,
    target: Partition,
    before: int | None,
    after: int,
    end: int,
    position: GroupPosition,
    topic_ids: tuple[str, str],
) -> GroupMove:
    """Return the move of a group's committed position to an offset of `target`.

    Args:
        group: the consumer group.
        target: the partition at the destination.
        before: the offset that the group has committed in `target`; None if there is none.
        after: the offset to commit in `target`.
        end: the end of the destination partition.
        position: the position at the source that `after` is translated from.
        topic_ids: the id of the topic of `position`, and the id of the topic of `target`.
    """
    # The topic id in the committed metadata is replaced: scorers take another id as a sign that the topic was recreated.
    metadata = position.metadata.replace(*topic_ids) if topic_ids[0] else position.metadata
    return GroupMove(group, *target, before, after, max(0, end - after), position.topic, position.next, metadata)
