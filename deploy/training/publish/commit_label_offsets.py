"""Commits how far the labels were taken, as the group `<name>.training`: what starts a run by event looks at its lag.

The group has no members. As those of any such group, its offsets expire: a run that found nothing new commits too.
"""

from publisher.errors import answered
from publisher.kafka.connection import ANSWER_SECONDS, connect
from publisher.kafka.groups import ConsumerGroups, GroupPosition
from scorer.settings import Settings
from training.snapshot.files import Frozen


def group_of(settings: Settings) -> str:
    return f"{settings.name}.training"


def commit(settings: Settings, frozen: Frozen) -> tuple[GroupPosition, ...]:
    """Commit the ends of the labels' stretches, and never less than what is committed; the positions now.

    Raises Fatal: 3 where the broker refuses, or a consumer has joined the group; 4 where it does not answer.
    """
    group = group_of(settings)
    groups = ConsumerGroups(connect(settings.kafka, group), settings.kafka, "the broker", ANSWER_SECONDS)
    with answered("see its log; run again: everything else of the run is done"):
        positions = ahead(frozen, groups.positions(group))
        groups.move(group, positions)
    return positions


def ahead(frozen: Frozen, committed: tuple[GroupPosition, ...]) -> tuple[GroupPosition, ...]:
    """The end of each stretch of labels, or what is committed of that partition where that is more."""
    known = {(position.topic, position.partition): position.next for position in committed}
    ends = {partition: stop for partition, (_, stop) in frozen.spans("labels").items()}
    return tuple(GroupPosition(*partition, max(stop, known.get(partition, 0))) for partition, stop in ends.items())
