"""`publisher failover`: the scorers' consumer groups of the relay's source go on at its destination, where they stopped.

What they had committed is known from the source itself where it answers (a planned move), else from what the relay saw last.
A position never moves back: what lies before it was scored on one side or the other. What is scored once more, because its
commit was not seen in time, carries the same event id. Nobody can stop a region that is cut off: a person decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from publisher.errors import Fatal, Retriable, retriable_as_fatal
from publisher.failover.copy_reader import CopyReader
from publisher.failover.offset_translation import in_copy, in_source
from publisher.kafka.groups import ConsumerGroups, GroupPosition
from publisher.kafka.partitions import Partition
from publisher.kafka.reader import TopicReader
from publisher.kafka.topics import Bounds, Topics
from publisher.relay.checkpoints import Checkpoint, CheckpointLog, Place, Sighting
from publisher.relay.clusters import ANSWER_SECONDS, groups_of, log_of, topics_of
from publisher.relay.settings import RelaySettings
from publisher.relay.start_position import Refused, recreated


@dataclass(frozen=True)
class Move:
    """One partition at the destination that a group is to go on with: from `before` (None: it has no position there) to
    `after`, because at the source it has committed `source_next` in `source_topic`. `waiting`: offsets behind `after`."""

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
class Plan:
    """A move of groups, before it is carried out. All times are Unix ms.

    `source_answers`: whether the source tells the positions itself; else they are those seen at `seen_ms`. `lag_records`:
    what the source then held that is not copied. Everything that it held at `complete_ms` is copied (0: not known).
    """

    source: str
    destination: str
    source_answers: bool
    seen_ms: int
    complete_ms: int
    lag_records: int
    lag_scored: int
    moves: Sequence[Move]
    against: Mapping[str, Sequence[str]]


def plan(settings: RelaySettings, to: str, now_ms: int) -> Plan:
    """What a move of the groups would do. Raises Fatal: 2 where the settings do not allow it, 3 where it must not be (nothing
    known of the source, copies that are not what they were), 4 where the destination does not answer."""
    _refuse_other_regions(settings, to)
    with retriable_as_fatal("check destination.bootstrap_servers"):
        return _plan(settings, now_ms)


def carry_out(settings: RelaySettings, found: Plan) -> None:
    """Move the groups. Raises Fatal: 3 where one has members, 4 where the destination does not answer."""
    for region, members in found.against.items():
        raise Refused(
            f"group {', '.join(settings.source.groups)} has members in {region}: {', '.join(members)}",
            f"stop the scorers in {region} first (they leave the group at once; killed ones after the session timeout)",
        )
    groups = groups_of(settings.destination, settings.name)
    with retriable_as_fatal("run the command again: it goes on from what is done"):
        for group in settings.source.groups:
            targets = [
                GroupPosition(move.topic, move.partition, move.after, move.metadata)
                for move in found.moves
                if move.group == group and move.before != move.after
            ]
            groups.move(group, targets)


class _Known(NamedTuple):
    """What is known of the source; see Plan."""

    answers: bool
    seen_ms: int
    complete_ms: int
    ends: Mapping[Partition, int]
    groups: Mapping[str, Sequence[GroupPosition]]
    members: Sequence[str]


def _refuse_other_regions(settings: RelaySettings, to: str) -> None:
    if not settings.source.groups:
        raise Fatal("source.groups names no consumer group", "name those whose positions this relay is to follow", 2)
    if to != settings.destination.region:
        raise Fatal(
            f"--to {to}: this relay copies from {settings.source.region} to {settings.destination.region}",
            f"write --to {settings.destination.region}, or name the configuration of the relay that copies to {to}",
            2,
        )


def _plan(settings: RelaySettings, now_ms: int) -> Plan:
    (source, destination), checkpoints = topics_of(settings), log_of(settings)
    checkpoints.refresh()
    places = checkpoints.of_relay(settings.name)
    if not places:
        raise Refused(f"relay {settings.name!r} has no checkpoints in {settings.checkpoint_topic}", "it has never run")
    _refuse_other_copies(settings, destination, places)
    known = _known(settings, source, checkpoints, now_ms)
    here = groups_of(settings.destination, settings.name)
    moves: list[Move] = []
    for group in settings.source.groups:
        before = {(p.topic, p.partition): p.next for p in here.positions(group)}
        committed = known.groups.get(group, ())
        moves += _moves(settings, group, committed, places, before)
        if known.answers:
            moves += _homeward(settings, source, destination, group, committed, places, before)
    if not moves:
        names = ", ".join(settings.source.groups)
        raise Refused(f"{names} had committed nothing in {settings.source.region}", "is it the scorers' group?")
    reached = {(place.topic, place.partition): found.next for place, found in places.items()}
    lag = sum(max(0, end - reached.get(partition, 0)) for partition, end in known.ends.items())
    scored = [p for group in settings.source.groups for p in known.groups.get(group, ())]
    ahead = sum(max(0, p.next - reached.get((p.topic, p.partition), p.next)) for p in scored)
    regions = settings.source.region, settings.destination.region
    live = dict(zip(regions, (known.members, _members(here, settings.source.groups)), strict=True))
    against = {region: members for region, members in live.items() if members}
    return Plan(*regions, known.answers, known.seen_ms, known.complete_ms, lag, ahead, moves, against)


def _known(settings: RelaySettings, source: Topics, checkpoints: CheckpointLog, now_ms: int) -> _Known:
    """From the source, where it answers; else from what was kept."""
    kept = checkpoints.sighting()
    try:
        cluster = source.id()
        groups = groups_of(settings.source, settings.name)
        members = _members(groups, settings.source.groups)
        positions = {group: groups.positions(group) for group in settings.source.groups}
        copied = [(place.topic, place.partition) for place in checkpoints.of_relay(settings.name)]
        ends = {partition: bounds.high for partition, bounds in source.bounds(copied).items()}
    except Retriable:
        return _kept(settings, kept)
    if kept is not None and kept.cluster != cluster:
        raise Refused(
            f"{settings.source.region} was cluster {kept.cluster}, now cluster {cluster} answers",
            "check source.bootstrap_servers",
        )
    return _Known(True, now_ms, kept.complete_ms if kept is not None else 0, ends, positions, members)


def _kept(settings: RelaySettings, kept: Sighting | None) -> _Known:
    region = settings.source.region
    if kept is None:
        raise Refused(
            f"{region} does not answer, and the relay has kept no positions of {', '.join(settings.source.groups)}",
            "it keeps them while it runs with source.groups; without them: scorer offsets CONFIG --to earliest|latest",
        )
    ends = {(end.topic, end.partition): end.end for end in kept.ends}
    return _Known(False, kept.asked_ms, kept.complete_ms, ends, kept.groups, ())


def _members(groups: ConsumerGroups, names: Sequence[str]) -> list[str]:
    return [member for group in names for member in groups.members(group)]


def _refuse_other_copies(settings: RelaySettings, destination: Topics, places: Mapping[Place, Checkpoint]) -> None:
    """A copy that was made again does not hold what the checkpoints say."""
    there = destination.topics(found.destination_topic for found in places.values())
    for found in places.values():
        now = there.get(found.destination_topic)
        if now is None or now.id != found.destination_topic_id:
            was = found.destination_topic_id
            raise recreated(found.destination_topic, settings.destination.region, was, now.id if now else "none")


def _moves(
    settings: RelaySettings,
    group: str,
    committed: Sequence[GroupPosition],
    places: Mapping[Place, Checkpoint],
    before: Mapping[Partition, int],
) -> Iterator[Move]:
    """For each position of the group at the source, that at the destination."""
    copies = {(place.topic, place.partition): found for place, found in places.items()}
    known = [(p, copies[p.topic, p.partition]) for p in committed if (p.topic, p.partition) in copies]
    targets = [(found.destination_topic, p.partition) for p, found in known]
    spans = TopicReader(settings.destination.kafka, settings.name, ANSWER_SECONDS).spans(targets)
    with closing(CopyReader(settings.destination.kafka, settings.name, ANSWER_SECONDS)) as copy:
        for (position, found), target in zip(known, targets, strict=True):
            read = copy.of(target, (position.topic, position.partition), settings.source.region)
            low, high = spans[target]
            after = in_copy(read, max(low, before.get(target, 0)), high, position.next)
            ids = found.topic_id, found.destination_topic_id
            yield _move(group, target, before.get(target), after, high, position, ids)


def _homeward(
    settings: RelaySettings,
    source: Topics,
    destination: Topics,
    group: str,
    committed: Sequence[GroupPosition],
    places: Mapping[Place, Checkpoint],
    before: Mapping[Partition, int],
) -> Iterator[Move]:
    """What the group has taken at the source of copies that came from the destination: that is done at the destination too."""
    there = source.topics({p.topic for p in committed} - {place.topic for place in places})
    others = [p for p in committed if p.topic in there]
    bounds = source.bounds((p.topic, p.partition) for p in others)
    with closing(CopyReader(settings.source.kafka, settings.name, ANSWER_SECONDS)) as copy:
        for position in others:
            found = _home(settings, copy, position, bounds[position.topic, position.partition])
            if found is None:
                continue
            topic, after = found
            target = topic, position.partition
            ends = destination.bounds([target])
            old = before.get(target)
            ids = there[position.topic].id, destination.topics([topic])[topic].id
            yield _move(group, target, old, max(after, old or 0), ends[target].high, position, ids)


def _home(settings: RelaySettings, copy: CopyReader, position: GroupPosition, bounds: Bounds) -> tuple[str, int] | None:
    """The topic at the destination whose copy a position of the source lies in, and the position there."""
    if bounds.low == bounds.high:
        return None
    here = position.topic, position.partition
    origin = copy.first_origin(here, bounds.low)
    if origin is None or origin.region != settings.destination.region:
        return None
    read = copy.of(here, (origin.topic, origin.partition), origin.region)
    after = in_source(read, bounds.low, position.next)
    return None if after is None else (origin.topic, after)


def _move(
    group: str, target: Partition, before: int | None, after: int, end: int, position: GroupPosition, ids: tuple[str, str]
) -> Move:
    """`ids`: of the topic whose position it is, and of that at the destination. Scorers keep in the metadata under which id a
    position counts, and take one under another id for that of a topic that was made again."""
    metadata = position.metadata.replace(*ids) if ids[0] else position.metadata
    return Move(group, *target, before, after, max(0, end - after), position.topic, position.next, metadata)
