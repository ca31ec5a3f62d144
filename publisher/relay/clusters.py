"""Connections to the two clusters of a relay: queries of both, and the sessions that write to the destination."""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer

from publisher.kafka import clients as kafka
from publisher.kafka.connection import connect
from publisher.kafka.groups import ConsumerGroups
from publisher.kafka.reader import TopicReader
from publisher.kafka.topics import Topics
from publisher.relay.checkpoints import CheckpointLog
from publisher.relay.clients import create_destination_producer, with_short_timeouts
from publisher.relay.settings import ClusterSettings, RelaySettings
from publisher.transactions.exactly_once import TransactionSession

ANSWER_SECONDS = 5.0


def check_reachable(settings: RelaySettings) -> None:
    """Check that both clusters answer. Raises Fatal within seconds, with the remedy as its hint, as `connect` does."""
    for cluster in (settings.source.kafka, settings.destination.kafka):
        connect(with_short_timeouts(cluster), settings.name, ANSWER_SECONDS)


def open_topics(settings: RelaySettings) -> tuple[Topics, Topics]:
    """Return the `Topics` of the source cluster and of the destination cluster."""
    source, destination = (
        Topics(with_short_timeouts(side.kafka), settings.name, f"{side.region} ({side.reached.section})", ANSWER_SECONDS)
        for side in (settings.source, settings.destination)
    )
    return source, destination


def open_groups(cluster: ClusterSettings, client_id: str) -> ConsumerGroups:
    """Return the `ConsumerGroups` of a cluster."""
    settings = with_short_timeouts(cluster.kafka)
    return ConsumerGroups(kafka.admin(settings, client_id), settings, cluster.region, ANSWER_SECONDS)


def open_checkpoint_log(settings: RelaySettings, *, repairing: bool = False) -> CheckpointLog:
    """Return the checkpoint log of the relay, before any record is read. `CheckpointLog` explains `repairing`."""
    reader = TopicReader(settings.destination.kafka, settings.name, ANSWER_SECONDS)
    return CheckpointLog(reader, settings.checkpoint_topic, settings.name, repairing=repairing)


def open_session(
    settings: RelaySettings, ids: Sequence[str], batch_bytes: int = kafka.LARGEST_BATCH, **more: Any
) -> TransactionSession:
    """Return a session that writes to the destination under these transactional ids.

    Args:
        settings: the settings of the relay.
        ids: the transactional ids.
        batch_bytes: the largest batch that every destination topic accepts.
        **more: further arguments of TransactionSession.
    """

    def producer(name: str) -> Producer:
        return kafka.warm_up(create_destination_producer(settings, name, batch_bytes), settings.checkpoint_topic)

    seconds = settings.destination.transaction_timeout_ms / 1_000
    return TransactionSession(
        producer, ids, transaction_seconds=seconds, producer_wait_seconds=seconds + ANSWER_SECONDS, **more
    )
