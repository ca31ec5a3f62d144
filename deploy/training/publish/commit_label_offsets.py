"""Commit the offsets of the labels that runs have used, as the consumer group `<name>.training`.

A trigger that starts runs can watch the lag of this group.
"""

# Every run commits, even if it found no new label, because the offsets of a group without members expire.

from publisher.errors import retriable_as_fatal
from publisher.kafka.connection import ANSWER_SECONDS, connect
from publisher.kafka.groups import ConsumerGroups, GroupPosition
from scorer.settings import Settings
from training.snapshot.files import Frozen


def group_of(settings: Settings) -> str:
    """Return the consumer group whose committed offsets follow the used labels."""
    return f"{settings.name}.training"


def commit(settings: Settings, frozen: Frozen) -> tuple[GroupPosition, ...]:
    """Commit the end offset of each frozen label range, unless a larger offset is committed; return the committed positions.

    Raises:
        Fatal: Exit code 3 if the broker rejects the commit or a consumer has joined the group, 4 if the broker is unreachable.
    """
    group = group_of(settings)
    groups = ConsumerGroups(connect(settings.kafka, group), settings.kafka, "the broker", ANSWER_SECONDS)
    with retriable_as_fatal("see the broker's log, and run again: all other steps are complete"):
        positions = ahead(frozen, groups.positions(group))
        groups.move(group, positions)
    return positions


def ahead(frozen: Frozen, committed: tuple[GroupPosition, ...]) -> tuple[GroupPosition, ...]:
    """Return the end of each frozen label range, or the partition's committed offset if that is larger."""
    committed_offsets = {(position.topic, position.partition): position.next for position in committed}
    ends = {partition: stop for partition, (_, stop) in frozen.spans("labels").items()}
    return tuple(GroupPosition(*partition, max(stop, committed_offsets.get(partition, 0))) for partition, stop in ends.items())
