"""Leaves out what waits in some partitions, or is gone from them: the group goes on at their ends."""

from collections.abc import Collection

from confluent_kafka import TopicPartition

from publisher.kafka.partitions import Partition
from publisher.transactions.protocol import Session
from scorer.consumer.consumer import EventConsumer


def skip(partitions: Collection[Partition], intake: EventConsumer, session: Session, owner: str) -> int:
    """How many offsets are passed over in these partitions, as far as they are ours. The marks stay. Nothing that was published
    may be undecided. Raises Aborted; then it has to be done again."""
    lag = {place: records for place, records in intake.lag().items() if place in partitions and records}
    positions = []
    for at in intake.partitions.claims(lag, owner):
        place = at.topic, at.partition
        positions.append(TopicPartition(*place, (intake.partitions.next(place) or 0) + lag[place], at.metadata))
    if positions:
        session.publish([], positions, intake.group)
        session.checkpoint()
        intake.follow(lag)
    return sum(lag.values())
