"""Create every Kafka client of the product, with its settings, security and tuning.

The timeouts and the backoff follow from the behaviour of librdkafka when the outcome of a transaction is unknown (see
`publisher/transactions/`). The fetch settings limit the memory of a worker.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Set
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition, libversion
from confluent_kafka.admin import AdminClient
from pydantic import BaseModel, ConfigDict, Field, model_validator

from publisher.errors import Fatal
from publisher.kafka import client_properties
from publisher.kafka import security as security_section
from publisher.kafka.error_codes import NO_CONNECTION, REFUSED, UNKNOWN_CLIENT
from publisher.kafka.security import SecuritySettings

RETRY_BACKOFF_MS = 250  # large on purpose: a commit that takes 0.75 of it may have been sent twice (`TransactionSession`)
LARGEST_MESSAGE = 1_000_000_000  # bytes, the maximum of librdkafka: the broker enforces the limit of each topic
LARGEST_BATCH = 1_000_000  # bytes, the default of librdkafka: a larger record is a batch by itself
FIRST_ANSWER_SECONDS = 1.0
READING: dict[str, Any] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 10,
}
"""The properties of every consumer: it does not commit by itself, and does not reset a position that is out of range."""
SECRET_MARKS = ("passw", "secret", "token", "key.pem", "jaas", "credential")
PATH_ENDS = ("_file", ".location")  # the name of a file is not a secret

log = logging.getLogger(__name__)
library_log = logging.getLogger("librdkafka")


def librdkafka_version() -> str:
    """Return the version of librdkafka, such as 2.16.0."""
    return str(libversion()[0])


class KafkaSettings(BaseModel):
    """The `kafka:` section of a configuration file. `section` is the name of the section in error messages."""

    section: ClassVar[str] = "kafka"
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    bootstrap_servers: str = Field(min_length=1)
    """The brokers that a client connects to first, as `host:port`; commas between several."""
    group_protocol: Literal["classic", "consumer"] = "classic"
    """`consumer` selects the protocol of KIP-848, which halves the pause of a rebalance if the broker allows short sessions."""
    session_timeout_ms: int = Field(default=10_000, ge=1_000, le=1_800_000)
    """How long the partitions of a crashed consumer stay assigned to it (ms)."""
    transaction_timeout_ms: int = Field(default=10_000, ge=1_000, le=900_000)
    """How long the broker may take to confirm a batch (ms)."""
    security: SecuritySettings = SecuritySettings()
    extra: dict[str, str | int | float | bool] = Field(default_factory=dict, repr=False)
    """Properties of librdkafka (tuning, other SASL mechanisms) that weaken neither delivery nor security; secrets are never
    printed."""

    @model_validator(mode="after")
    def _keeps_guarantees(self) -> Self:
        """Reject a property in `extra` that weakens delivery or security, or overrides a setting of `security`."""
        client_properties.check(self.extra)
        security_section.check_not_repeated(self.security, self.extra, self.section)
        return self


def is_secret(key: str, properties: Set[str] = client_properties.ALLOWED) -> bool:
    """Return whether the value of a setting or client property must never be printed.

    Args:
        key: The full name of the setting, such as `kafka.security.password` or `kafka.extra.linger.ms`.
        properties: The client properties whose values may be printed if a section `extra` sets them.
    """
    # In `security` and `extra` every value is secret unless its name is known to be harmless: a misspelt name may have a
    # password as its value.
    lowered = key.lower()
    _, pass_through, name = lowered.partition(".extra.")
    if pass_through and name in properties:
        return False
    if pass_through or lowered.endswith(".extra") or lowered in client_properties.SECRET:
        return True
    section, _, name = lowered.rpartition(".")
    if section.endswith("security") and name not in security_section.OPEN:
        return True
    return any(mark in lowered for mark in SECRET_MARKS) and not lowered.endswith(PATH_ENDS)


def client(settings: KafkaSettings, client_id: str) -> dict[str, Any]:
    """Return the client properties that all clients share. The properties in `settings.extra` have precedence.

    Raises:
        Fatal: with exit code 2 if a password file cannot be used.
    """
    try:
        proof = security_section.properties(settings.security)
    except (OSError, ValueError) as error:
        message = f"a file of {settings.section}.security cannot be used: {error}"
        raise Fatal(message, f"check the files that {settings.section}.security names", 2) from None
    return {
        **proof,
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": client_id,
        "socket.nagle.disable": True,
        "reconnect.backoff.max.ms": 1_000,
        "log_level": 5,
        **settings.extra,
    }


def consumer_properties(settings: KafkaSettings, client_id: str, group: str) -> dict[str, Any]:
    """Return the properties of a consumer that joins `group` and does not commit automatically."""
    properties: dict[str, Any] = {
        "group.id": group,
        "group.protocol": settings.group_protocol,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,  # reports a position after markers and aborted records (librdkafka #2539)
        "topic.metadata.refresh.interval.ms": 10_000,  # the delay until an added partition is read
        "queued.min.messages": 1,  # fetch when the queue is empty: a sixth of the requests at 1,000 events/s
        "fetch.queue.backoff.ms": 2,
        "queued.max.messages.kbytes": 32_768,
    }
    if settings.group_protocol == "classic":
        properties |= {
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": settings.session_timeout_ms,
            "heartbeat.interval.ms": max(200, min(1_000, settings.session_timeout_ms // 6)),
        }
    return READING | properties | client(settings, client_id)


class ErrorWatch:
    """An error callback that stores two errors of a client.

    Attributes:
        fatal: the first error that a retry cannot cure, such as a wrong password; None if there was none.
        last: the most recent error; None if there was none.
    """

    # librdkafka retries even after such an error. "No broker is connected" never replaces another error.

    def __init__(self) -> None:
        self.fatal: KafkaError | None = None
        self.last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if error in UNKNOWN_CLIENT or error.fatal():
            self.fatal = self.fatal or error
        if self.last is None or error not in NO_CONNECTION:
            self.last = error
        log.info("a Kafka client reports an error: %s", error.str())


@contextlib.contextmanager
def unwrap_kafka_errors() -> Iterator[None]:
    """Replace a SystemError of confluent-kafka in the block by the KafkaException that caused it."""
    # After a fatal error of a producer, confluent-kafka calls the Python logger between setting the KafkaException and
    # returning to Python. Python reports this as a SystemError whose cause is the KafkaException.
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


class Plugin(Protocol):
    """A native plugin, which fetches or produces records through the librdkafka handle of a client.

    `path` is the file of the plugin, a shared library that librdkafka loads.
    """

    path: str

    def handle(self) -> int:
        """Return the librdkafka handle of the client that the calling thread has created last."""
        # librdkafka passes the handle to the plugin while it creates the client, and the plugin stores it for the thread.


class HandledConsumer(Consumer):
    """A consumer. `handle` is its librdkafka handle (a pointer), which a plugin needs; it is 0 without a plugin."""

    handle = 0


class HandledProducer(Producer):
    """A producer. `handle` is its librdkafka handle (a pointer), which a plugin needs; it is 0 without a plugin.

    `timeout_setting` is the name of the setting for the transaction timeout, for error messages.
    """

    handle = 0
    timeout_setting = "transaction_timeout_ms"


Client = TypeVar("Client", Consumer, Producer, AdminClient, HandledConsumer, HandledProducer)
Handled = TypeVar("Handled", HandledConsumer, HandledProducer)


def _create_with_handle(
    plugin: Plugin | None, settings: KafkaSettings, kind: type[Handled], properties: dict[str, Any]
) -> Handled:
    """Create a client. If a plugin is given, set the client's attribute `handle` to its librdkafka handle."""
    if plugin is None:
        return _create(settings, kind, properties)
    created = _create(settings, kind, properties | {"plugin.library.paths": plugin.path})
    created.handle = plugin.handle()
    return created


def _create(settings: KafkaSettings, kind: Callable[..., Client], properties: dict[str, Any]) -> Client:
    """Create a client. Its errors are passed to an ErrorWatch, unless `properties` contain another `error_cb`.

    Raises:
        Fatal: with exit code 2 if librdkafka rejects the properties.
    """
    try:
        return kind({"error_cb": ErrorWatch()} | properties, logger=library_log)
    except KafkaException as error:
        reason = error.args[0].str()
        hint = f"check {settings.section}.extra and {settings.section}.security"
        raise Fatal(f"the Kafka client rejects its settings: {reason}", hint, 2) from None


def consumer(
    settings: KafkaSettings,
    client_id: str,
    group: str,
    watch: Callable[[KafkaError], None],
    on_commit: Callable[[KafkaError | None, list[TopicPartition]], None],
    plugin: Plugin | None = None,
) -> Consumer:
    """Create a consumer for scoring. It joins `group`, reads committed events only, and does not commit automatically.

    Args:
        settings: the connection.
        client_id: the client id.
        group: the consumer group.
        watch: called with the errors of the client.
        on_commit: called during a poll with the result of an asynchronous commit.
        plugin: a plugin that fetches records.
    """
    properties = consumer_properties(settings, client_id, group)
    return _create_with_handle(plugin, settings, HandledConsumer, properties | {"on_commit": on_commit, "error_cb": watch})


def transactional_producer(
    settings: KafkaSettings,
    transactional_id: str,
    client_id: str,
    batch_bytes: int = LARGEST_BATCH,
    plugin: Plugin | None = None,
    **more: Any,
) -> Producer:
    """Create a producer for the pool of a transaction session. The caller must call `init_transactions`.

    Args:
        settings: The connection and the transaction timeout.
        transactional_id: The transactional id.
        client_id: The client id.
        batch_bytes: The largest batch (bytes) that every destination topic accepts.
        plugin: A plugin that produces records.
        more: Properties with precedence over all others.
    """
    timeout = settings.transaction_timeout_ms
    properties = {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout,
        "message.timeout.ms": timeout,
        "socket.timeout.ms": min(timeout, 10_000),
        "retry.backoff.ms": RETRY_BACKOFF_MS,
        "retry.backoff.max.ms": 4 * RETRY_BACKOFF_MS,
        "metadata.recovery.strategy": "none",  # otherwise a call may never return (`transactions/exactly_once.py`)
        "linger.ms": 100,  # adds no latency: a commit flushes the queue, usually in one request per partition
        "message.max.bytes": LARGEST_MESSAGE,
        "batch.size": min(batch_bytes, LARGEST_BATCH),
        "compression.type": "lz4",
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
    }
    producer = _create_with_handle(plugin, settings, HandledProducer, properties | client(settings, client_id) | more)
    producer.timeout_setting = f"{settings.section}.transaction_timeout_ms ({timeout})"
    return producer


def warm_up(client: Client, topic: str) -> Client:
    """Connect a client to a broker by requesting the metadata of `topic`, and return the client. Errors are ignored.

    The client must have a right on the topic.
    """
    # If no connection is open when librdkafka (2.16) sends a request to the coordinator or to a partition leader, it waits half
    # a second before it repeats the request. There are two metadata requests: after the first answer the client replaces the
    # configured address by the broker's own address, and the second request opens a connection to that address.
    with contextlib.suppress(KafkaException):
        for _ in range(2):
            client.list_topics(topic, timeout=FIRST_ANSWER_SECONDS)
    return client


def checkpoint_producer(
    settings: KafkaSettings,
    client_id: str,
    batch_bytes: int,
    on_delivery: Callable[[KafkaError, Message], None],
    *,
    singly: bool = False,
    plugin: Plugin | None = None,
) -> Producer:
    """Create the idempotent producer of an at-least-once session. `on_delivery` is called for failed records only.

    If `singly` is true, each record is sent as a batch of its own. Records do not expire in the producer's queue.
    """
    # After a failure the session discards all unconfirmed records, so that no later record overtakes the failed one.
    properties = {
        "enable.idempotence": True,
        "delivery.report.only.error": True,
        "message.timeout.ms": 0,
        "socket.timeout.ms": min(settings.transaction_timeout_ms, 10_000),
        "linger.ms": 0,
        "message.max.bytes": LARGEST_MESSAGE,
        "batch.size": min(batch_bytes, LARGEST_BATCH),
        "batch.num.messages": 1 if singly else 10_000,
        "compression.type": "lz4",
        "queue.buffering.max.messages": 100_000,
        "queue.buffering.max.kbytes": 65_536,
    }
    return _create_with_handle(
        plugin, settings, HandledProducer, properties | client(settings, client_id) | {"on_delivery": on_delivery}
    )


def plain_producer(settings: KafkaSettings, client_id: str, **properties: Any) -> Producer:
    """Create an idempotent producer without transactions, for status records and `scorer emit`."""
    defaults = {"enable.idempotence": True, "compression.type": "lz4"}
    return _create(settings, Producer, client(settings, client_id) | defaults | properties)


def reader(settings: KafkaSettings, client_id: str, **properties: Any) -> Consumer:
    """Create a consumer that reads committed records of assigned partitions, and that joins no consumer group."""
    # librdkafka still requires a group id. If the user has no right to a group with this id, the client reports one error,
    # which callers ignore (`is_group_auth_noise`).
    return plugged_reader(settings, client_id, None, **properties)


def plugged_reader(settings: KafkaSettings, client_id: str, plugin: Plugin | None, **properties: Any) -> Consumer:
    """Create a consumer as `reader` does. If a plugin is given, it can fetch the records of this consumer."""
    properties = client(settings, client_id) | READING | {"group.id": client_id} | properties
    return _create_with_handle(plugin, settings, HandledConsumer, properties)


def is_group_auth_noise(error: KafkaError) -> bool:
    """Return whether an error reports a missing right to a group.

    Callers ignore such an error of a `reader`, because a reader joins no group.
    """
    return REFUSED.reason(error) == "group"


def admin(settings: KafkaSettings, client_id: str, watch: Callable[[KafkaError], None] | None = None) -> AdminClient:
    """Create an administrative client. While the client is polled, it calls `watch` with its errors."""
    return _create(settings, AdminClient, client(settings, client_id) | {"error_cb": watch or ErrorWatch()})
