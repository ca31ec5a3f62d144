"""The broker connections of one worker: the checks before its start, its Kafka clients, and the objects that use the clients.

This module depends on the settings and on `publisher.kafka`. `worker_main.py` determines the order of the start-up.
"""

import threading
from collections.abc import Callable, Set
from functools import partial

from confluent_kafka import Consumer, KafkaError, Producer

from publisher.kafka import clients as kafka
from publisher.kafka.connection import refused
from publisher.kafka.error_codes import NO_CONNECTION
from publisher.kafka.groups import GroupMember
from publisher.kafka.sandboxed_reads import sandboxed
from publisher.kafka.skipped_records import SkippedRecords
from publisher.runtime.dependency_wait import DependencyWaiter
from publisher.transactions.at_least_once import CheckpointSession
from publisher.transactions.exactly_once import TransactionSession
from publisher.transactions.offset_commits import GroupCommits, OnCommit
from publisher.transactions.session import Session
from publisher.transactions.transactional_ids import transactional_ids
from publisher.transactions.wait_for_open_transactions import OpenTransactions
from scorer.consumer.consumer import EventConsumer
from scorer.consumer.fence_dead_owners import fence_dead_owners, wait_for_foreign_transactions
from scorer.consumer.sandboxed_partitions import SandboxedInputPartitions
from scorer.consumer.table_source import KafkaTableSource
from scorer.decoding.table_rows import row_decoder_factory
from scorer.fetch.native_source import plugin
from scorer.observability import foreign_members
from scorer.observability.channel_move_listener import ChannelMoveListener
from scorer.service import preflight, worker_variants
from scorer.service.preflight import StartCheck
from scorer.service.replica_claim import ReplicaGuard, guard_replica
from scorer.settings import Settings
from scorer.tables.tables import Tables
from scorer.worker.encode import TargetTopic


class BrokerConnections:
    """Opens the connections of one worker to its Kafka cluster. The caller must close the objects that the methods return.

    Args:
        settings: the settings of the worker.
        waiter: the object that waits while brokers are unavailable. Its background probe is started if the consumer loses all
            connections.
        skipped: the counter of unreadable records.
    """

    def __init__(self, settings: Settings, waiter: DependencyWaiter, skipped: SkippedRecords) -> None:
        self._settings = settings
        self._waiter = waiter
        self._skipped = skipped
        self._errors = kafka.ErrorWatch()

    def check_start(self, stopping: threading.Event) -> StartCheck:
        """Check topics, access rights, and whether another process uses the same replica name. Raises Fatal if a check fails.

        Fatal is also raised if no broker answers.
        """
        return preflight.check_start(self._settings, stopping)

    def check_rights(self) -> None:
        """Raise NotAllowed if the broker reports a missing access right. The error names the missing rights."""
        preflight.check_rights(self._settings)

    def raise_fatal_error(self) -> None:
        """Raise Fatal if the consumer has reported an error from which the client cannot recover."""
        if self._errors.fatal is not None:
            raise refused(self._settings.kafka, self._errors.fatal)

    def current_targets(self) -> tuple[TargetTopic, ...] | None:
        """Return the output and dead-letter topics as they are now, and the topic of the feature log if there is one.

        The result is None if the topics cannot be described.
        """
        return preflight.current_targets(self._settings)

    def group_members(self) -> list[GroupMember]:
        """Return the members of the consumer group. Raises KafkaException."""
        return foreign_members.query_members(self._settings)

    def open_commits(self) -> GroupCommits:
        """Return an object that commits offsets with a new consumer. The consumer joins the group when it is subscribed."""
        return GroupCommits(self._open_consumer)

    def open_session(self, commits: GroupCommits, batch_bytes: int) -> Session:
        """Return the session for the configured delivery guarantee. `batch_bytes` is the limit of a producer's record batch."""
        settings = self._settings
        timeout_seconds = settings.kafka.transaction_timeout_ms / 1_000
        if settings.delivery == "at-least-once":
            checkpoints = partial(kafka.checkpoint_producer, settings.kafka, settings.owner, batch_bytes, plugin=plugin())
            return CheckpointSession(
                lambda failed, singly: checkpoints(failed, singly=singly), commits, confirm_seconds=timeout_seconds
            )

        def open_producer(transactional_id: str) -> Producer:
            return kafka.warm_up(self.open_producer(transactional_id, batch_bytes), settings.output.topic)

        topics = settings.input.topics
        open_transactions = OpenTransactions(settings.kafka, settings.owner, settings.answer_topics, settings.name, topics)
        return TransactionSession(
            open_producer,
            transactional_ids(settings.transactional_prefix(settings.owner)),
            transaction_seconds=timeout_seconds,
            context=self._waiter.context,
            wait_until_decided=partial(wait_for_foreign_transactions, settings, open_transactions.wait),
        )

    def open_producer(self, transactional_id: str, batch_bytes: int) -> Producer:
        """Return a transactional producer whose record batches have at most `batch_bytes`."""
        settings = self._settings
        return kafka.transactional_producer(settings.kafka, transactional_id, settings.owner, batch_bytes, plugin())

    def open_intake(self, commits: GroupCommits, session: Session) -> EventConsumer:
        """Join the consumer group, and return the consumer that fetches the events of the assigned partitions."""
        settings = self._settings
        sandbox = sandboxed(settings.kafka, settings.owner, settings.input.expanded_bytes)
        return EventConsumer(
            commits.consumer,
            settings.input.topics,
            worker_variants.start_positions(settings, self._waiter.context, self._skipped),
            session,
            fence=partial(fence_dead_owners, settings, context=self._waiter.context),
            context=self._waiter.context,
            renew=commits.renew,
            offsets_command=settings.offsets_command,
            suspects=SandboxedInputPartitions(sandbox, settings.owner),
        )

    def open_tables(self) -> Tables:
        """Start to read the topics of the configured tables, and return the tables."""
        settings = self._settings
        source = KafkaTableSource(settings.kafka, settings.owner)
        tables = Tables(settings.tables, source, lambda name: row_decoder_factory(name, settings))
        tables.start()
        return tables

    def listen_for_moves(self, on_move: Callable[[], None]) -> ChannelMoveListener:
        """Return a listener that calls `on_move` for each notice that the followed channel has moved."""
        return ChannelMoveListener(self._settings, on_move, skipped=self._skipped)

    def guard_replica(self, dead_members: Set[str]) -> ReplicaGuard:
        """Start the guard that checks whether another process uses the worker's replica name.

        `dead_members` are the ids of group members whose processes are known to be dead.
        """
        return guard_replica(self._settings, dead_members)

    def open_status_producer(self) -> Producer:
        """Return a producer for status records."""
        return kafka.plain_producer(self._settings.kafka, self._settings.owner)

    def _open_consumer(self, on_commit: OnCommit) -> Consumer:
        settings = self._settings
        return kafka.consumer(settings.kafka, settings.owner, settings.name, self._on_client_error, on_commit, plugin())

    def _on_client_error(self, error: KafkaError) -> None:
        """Record an error of the consumer. If the consumer has lost all connections, start the broker probe."""
        self._errors(error)
        if error in NO_CONNECTION:
            self._waiter.start_probe()
