"""Where may a partition's copy go on? Pure: what the checkpoint and the clusters say, in; an offset or a refusal, out.

A relay never guesses: where two facts do not fit together it says both, and the command that goes on deliberately.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from publisher.errors import Fatal
from publisher.kafka.topics import Bounds, Topic
from publisher.relay.checkpoints import Checkpoint, Place


@dataclass(frozen=True)
class End:
    """One end of a copy: the cluster's id, the topic, and the partition's bounds."""

    cluster: str
    name: str
    topic: Topic
    bounds: Bounds


class Refused(Fatal):
    """The facts do not fit together; going on is somebody's decision."""

    def __init__(self, fact: str, hint: str) -> None:
        super().__init__(fact, hint, 3)


class OutOfRange(Exception):
    """The source does not hold the offset that comes next."""

    def __init__(self, message: str, topic: str | None, partition: int | None) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition


def way_on(place: Place, to: str = "earliest|latest|OFFSET") -> str:
    return (
        f"to go on deliberately: publisher checkpoint set CONFIG --topic {place.topic} --partition {place.partition} --to {to}"
    )


def start(
    place: Place,
    own: Checkpoint | None,
    others: Mapping[Place, Checkpoint],
    source: End,
    destination: End,
    known: Collection[int],
) -> int:
    """The offset from which the partition `place` is copied. `own` is its checkpoint, `others` those of all other places,
    `known` the partitions of the topic that have one. Raises Refused."""
    refuse_a_second_writer(place, others, source, destination)
    if own is None:
        _refuse_a_lost_checkpoint(place, others, destination, known)
        return source.bounds.low
    _refuse_other_places(place, own, source, destination)
    low, high = source.bounds
    at = f"{place.topic}[{place.partition}] is copied up to offset {own.next}"
    if own.next > high:
        raise Refused(f"{at}, but its log in {place.region} ends at {high}: it was truncated, or restored", way_on(place))
    if own.next < low:
        lost = f"offsets {own.next} to {low - 1} were deleted before they were copied"
        raise Refused(f"{at}, but its log in {place.region} begins at {low}: {lost}", way_on(place, "earliest"))
    return own.next


def refuse_a_second_writer(place: Place, others: Mapping[Place, Checkpoint], source: End, destination: End) -> None:
    """Raises Refused where another relay copies the same into the same."""
    for other, found in others.items():
        same_source = (found.cluster, other.topic, other.partition) == (source.cluster, place.topic, place.partition)
        if same_source and (found.destination_cluster, found.destination_topic) == (destination.cluster, destination.name):
            raise Refused(
                f"relay {other.relay!r} copies {place.topic}[{place.partition}] into {destination.name} already, as far as "
                f"offset {found.next}",
                f"keep its name; or end it for good, publisher checkpoint reset with its configuration, and {way_on(place)}",
            )


def cut(place: Place, copied: int, destination: str, last: int, low: int) -> Refused:
    """A destination partition lacks what its checkpoint says was copied; `low` is where the source's log begins."""
    there = f"ends with the copy of offset {last}" if last >= 0 else "holds no copy"
    return Refused(
        f"{place.topic}[{place.partition}] is copied up to offset {copied}, but {destination}[{place.partition}] at the "
        f"destination {there}: it was cut, or restored",
        way_on(place, str(last + 1) if last + 1 >= low else "earliest"),
    )


def gone(topic: str, region: str) -> Refused:
    return Refused(
        f"topic {topic} in {region} does not exist",
        "make it again and say where to go on (publisher checkpoint set), or take it out of source.topics",
    )


def recreated(topic: str, region: str, was: str, now: str) -> Refused:
    """A topic was deleted and made again under the same name."""
    return Refused(
        f"topic {topic} in {region} was made again: its id was {was}, now it is {now}",
        f"to go on deliberately: publisher checkpoint set CONFIG --topic {topic} --to earliest|latest",
    )


def _refuse_a_lost_checkpoint(
    place: Place, others: Mapping[Place, Checkpoint], destination: End, known: Collection[int]
) -> None:
    """Without a checkpoint a partition is new, or its checkpoint is lost: then starting over would copy everything twice."""
    if any(number > place.partition for number in known):
        raise Refused(
            f"{place.topic}[{place.partition}] has no checkpoint, but higher partitions have: it is lost", way_on(place)
        )
    explained = any(
        (found.destination_topic, other.partition) == (destination.name, place.partition) for other, found in others.items()
    )
    if destination.bounds.high > 0 and not explained:
        raise Refused(
            f"{place.topic}[{place.partition}] has no checkpoint, but {destination.name}[{place.partition}] at the "
            f"destination holds data up to offset {destination.bounds.high}",
            way_on(place),
        )


def _refuse_other_places(place: Place, own: Checkpoint, source: End, destination: End) -> None:
    if own.cluster != source.cluster:
        raise Refused(
            f"the checkpoint of {place.topic}[{place.partition}] is of cluster {own.cluster}, {place.region} now is cluster "
            f"{source.cluster}",
            f"check source.bootstrap_servers; {way_on(place)}",
        )
    if own.topic_id != source.topic.id:
        raise recreated(place.topic, place.region, own.topic_id, source.topic.id)
    if (own.destination_cluster, own.destination_topic) != (destination.cluster, destination.name):
        raise Refused(
            f"the checkpoint of {place.topic}[{place.partition}] is of {own.destination_topic} in cluster "
            f"{own.destination_cluster}, the destination now is {destination.name} in cluster {destination.cluster}",
            f"check the destination's settings; {way_on(place)}",
        )
    if own.destination_topic_id != destination.topic.id:
        raise Refused(
            f"destination topic {destination.name} was made again: its id was {own.destination_topic_id}, now it is "
            f"{destination.topic.id}; what was copied into it up to offset {own.next} is gone",
            f"{way_on(place)}",
        )
