"""The two clusters of a relay: who asks them, and who writes to the destination."""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer

from publisher.kafka import clients as kafka
from publisher.kafka.connection import connect
from publisher.kafka.groups import ConsumerGroups
from publisher.kafka.reader import TopicReader
from publisher.kafka.topics import Topics
from publisher.relay.checkpoints import CheckpointLog
from publisher.relay.clients import near_writer, quick
from publisher.relay.settings import ClusterSettings, RelaySettings
from publisher.transactions.exactly_once import TransactionSession

ANSWER_SECONDS = 5.0


def reach(settings: RelaySettings) -> None:
    """See that both clusters answer. Raises Fatal as `connect` does, within seconds and with the way out."""
    for cluster in (settings.source.kafka, settings.destination.kafka):
        connect(quick(cluster), settings.name, ANSWER_SECONDS)


def topics_of(settings: RelaySettings) -> tuple[Topics, Topics]:
    """The topics of the source and of the destination, to be asked."""
    source, destination = (
        Topics(quick(side.kafka), settings.name, f"{side.region} ({side.reached.section})", ANSWER_SECONDS)
        for side in (settings.source, settings.destination)
    )
    return source, destination


def groups_of(cluster: ClusterSettings, client_id: str) -> ConsumerGroups:
    settings = quick(cluster.kafka)
    return ConsumerGroups(kafka.admin(settings, client_id), settings, cluster.region, ANSWER_SECONDS)


def log_of(settings: RelaySettings, *, repairing: bool = False) -> CheckpointLog:
    """Return the checkpoints, not read yet; see `CheckpointLog` for `repairing`."""
    reader = TopicReader(settings.destination.kafka, settings.name, ANSWER_SECONDS)
    return CheckpointLog(reader, settings.checkpoint_topic, settings.name, repairing=repairing)


def session_of(
    settings: RelaySettings, ids: Sequence[str], batch_bytes: int = kafka.LARGEST_BATCH, **more: Any
) -> TransactionSession:
    """A session that writes to the destination under these transactional ids. `batch_bytes`: what every topic takes at once.
    `more` as TransactionSession takes it."""

    def producer(name: str) -> Producer:
        return kafka.warm_up(near_writer(settings, name, batch_bytes), settings.checkpoint_topic)

    seconds = settings.destination.transaction_timeout_ms / 1_000
    return TransactionSession(
        producer, ids, transaction_seconds=seconds, producer_wait_seconds=seconds + ANSWER_SECONDS, **more
    )
