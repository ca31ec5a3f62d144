"""Decide at which source offset the copy of a partition starts, from its checkpoint and the state of both clusters. Pure.

If the checkpoint contradicts the state of a cluster, the error names both. Its hint has the command that sets the position.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from publisher.errors import REFUSED, Fatal
from publisher.kafka.topics import Bounds, Topic
from publisher.relay.checkpoints import Checkpoint, CheckpointKey


@dataclass(frozen=True)
class CopyEndpoint:
    """One end of the copy of a partition: the source or the destination.

    Attributes:
        cluster: the id of the cluster.
        name: the name of the topic.
        topic: the id and the number of partitions of the topic.
        bounds: the start and end offsets of the partition.
    """

    cluster: str
    name: str
    topic: Topic
    bounds: Bounds


class CopyRefused(Fatal):
    """The relay (or a failover) refuses to continue, because the stored positions contradict the state of the clusters.

    Also raised if another process has taken over the relay. An operator must decide how to continue. The command ends with
    exit code 3.
    """

    def __init__(self, fact: str, hint: str) -> None:
        super().__init__(fact, hint, REFUSED)


class OutOfRange(Exception):
    """The log of a source partition does not contain the next offset to copy."""

    def __init__(self, message: str, topic: str | None, partition: int | None) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition


def continue_hint(key: CheckpointKey, to: str = "earliest|latest|OFFSET") -> str:
    """Return the hint with the command that sets the position `key` to the offset `to`."""
    return (
        f"to continue deliberately: publisher checkpoint set CONFIG --topic {key.topic} --partition {key.partition} --to {to}"
    )


def start(
    key: CheckpointKey,
    checkpoint: Checkpoint | None,
    others: Mapping[CheckpointKey, Checkpoint],
    source: CopyEndpoint,
    destination: CopyEndpoint,
    checkpointed: Collection[int],
) -> int:
    """Return the source offset at which the copy of a partition starts.

    This is the next offset in the checkpoint. Without a checkpoint, it is the first retained offset of the partition.

    Args:
        key: the partition, as the key of its checkpoint.
        checkpoint: the checkpoint of the partition; None for a partition that was not copied before.
        others: the checkpoints of other relays.
        source: the current state of the source partition.
        destination: the current state of the destination partition.
        checkpointed: the numbers of the partitions of the topic that have a checkpoint.

    Raises:
        CopyRefused: if the checkpoint is lost, or contradicts the state of a cluster, or another relay writes the same copy.
    """
    refuse_second_writer(key, others, source, destination)
    if checkpoint is None:
        _refuse_lost_checkpoint(key, others, destination, checkpointed)
        return source.bounds.low
    _refuse_changed_endpoints(key, checkpoint, source, destination)
    low, high = source.bounds
    position = f"{key.topic}[{key.partition}] is copied up to offset {checkpoint.next}"
    if checkpoint.next > high:
        raise CopyRefused(
            f"{position}, but the partition in {key.region} ends at {high}: it was truncated or restored", continue_hint(key)
        )
    if checkpoint.next < low:
        lost = f"offsets {checkpoint.next} to {low - 1} were deleted before they were copied"
        raise CopyRefused(
            f"{position}, but the partition in {key.region} begins at {low}: {lost}", continue_hint(key, "earliest")
        )
    return checkpoint.next


def refuse_second_writer(
    key: CheckpointKey, others: Mapping[CheckpointKey, Checkpoint], source: CopyEndpoint, destination: CopyEndpoint
) -> None:
    """Raise CopyRefused if another relay has a checkpoint for the same source partition and the same destination topic."""
    for other, position in others.items():
        same_source = (position.cluster, other.topic, other.partition) == (source.cluster, key.topic, key.partition)
        if same_source and (position.destination_cluster, position.destination_topic) == (
            destination.cluster,
            destination.name,
        ):
            raise CopyRefused(
                f"relay {other.relay!r} already copies {key.topic}[{key.partition}] into {destination.name}, up to offset "
                f"{position.next}",
                f"if this relay was renamed, restore its name {other.relay!r}; otherwise stop relay {other.relay!r} and run "
                f"`publisher checkpoint reset` with its configuration; {continue_hint(key)}",
            )


def lost_tail(key: CheckpointKey, copied: int, destination: str, last: int, low: int) -> CopyRefused:
    """Return the error for a destination partition that no longer contains its last copy.

    Args:
        key: the source partition.
        copied: the source offset of the last copy, according to the checkpoint.
        destination: the destination topic.
        last: the source offset of the last existing copy; -1 if there is none.
        low: the first retained offset of the source partition.
    """
    tail = f"ends with the copy of offset {last}" if last >= 0 else "contains no copy"
    return CopyRefused(
        f"{key.topic}[{key.partition}] is copied up to offset {copied}, but {destination}[{key.partition}] at the "
        f"destination {tail}: the copy was truncated or restored",
        continue_hint(key, str(last + 1) if last + 1 >= low else "earliest"),
    )


def missing_topic(topic: str, region: str) -> CopyRefused:
    """Return the error for a topic of the relay that no longer exists in this region."""
    return CopyRefused(
        f"topic {topic} in {region} does not exist",
        "recreate the topic and run `publisher checkpoint set` to set its position, or remove the topic from source.topics",
    )


def recreated(topic: str, region: str, old_id: str, new_id: str) -> CopyRefused:
    """Return the error for a topic that was deleted and recreated under the same name in this region."""
    return CopyRefused(
        f"topic {topic} in {region} was recreated: its id was {old_id}, now it is {new_id}",
        f"to continue deliberately: publisher checkpoint set CONFIG --topic {topic} --to earliest|latest",
    )


def _refuse_lost_checkpoint(
    key: CheckpointKey,
    others: Mapping[CheckpointKey, Checkpoint],
    destination: CopyEndpoint,
    checkpointed: Collection[int],
) -> None:
    """Raise CopyRefused if a partition without a checkpoint was copied before."""
    # A new start would copy every record a second time. A checkpoint is lost if a partition of the topic with a higher number
    # has one, or if the destination partition contains records although no other relay copies into it.
    if any(number > key.partition for number in checkpointed):
        raise CopyRefused(
            f"{key.topic}[{key.partition}] has no checkpoint, but partitions with higher numbers have one: "
            "its checkpoint was lost",
            continue_hint(key),
        )
    has_other_source = any(
        (position.destination_topic, other.partition) == (destination.name, key.partition) for other, position in others.items()
    )
    if destination.bounds.high > 0 and not has_other_source:
        raise CopyRefused(
            f"{key.topic}[{key.partition}] has no checkpoint, but {destination.name}[{key.partition}] at the "
            f"destination holds data up to offset {destination.bounds.high}",
            continue_hint(key),
        )


def _refuse_changed_endpoints(
    key: CheckpointKey, checkpoint: Checkpoint, source: CopyEndpoint, destination: CopyEndpoint
) -> None:
    """Raise CopyRefused if a cluster or topic, at the source or at the destination, differs from the checkpoint."""
    if checkpoint.cluster != source.cluster:
        raise CopyRefused(
            f"the checkpoint of {key.topic}[{key.partition}] is from cluster {checkpoint.cluster}, but {key.region} is now "
            f"cluster {source.cluster}",
            f"check source.bootstrap_servers; {continue_hint(key)}",
        )
    if checkpoint.topic_id != source.topic.id:
        raise recreated(key.topic, key.region, checkpoint.topic_id, source.topic.id)
    if (checkpoint.destination_cluster, checkpoint.destination_topic) != (destination.cluster, destination.name):
        raise CopyRefused(
            f"the checkpoint of {key.topic}[{key.partition}] is for topic {checkpoint.destination_topic} in cluster "
            f"{checkpoint.destination_cluster}, but the destination is now {destination.name} in cluster {destination.cluster}",
            f"check destination.bootstrap_servers and destination.topic; {continue_hint(key)}",
        )
    if checkpoint.destination_topic_id != destination.topic.id:
        raise CopyRefused(
            f"destination topic {destination.name} was recreated: its id was {checkpoint.destination_topic_id}, now it is "
            f"{destination.topic.id}; the copies up to offset {checkpoint.next} are lost",
            continue_hint(key),
        )
