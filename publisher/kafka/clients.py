"""Kafka client settings, security and tuning in one place; every client of the product is made here.

Sources of the numbers: the timeouts and the back-off follow from what librdkafka does with a transaction whose outcome is
unknown (see `publisher/transactions/`); the fetch settings keep a worker's memory bounded in bytes.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Set
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pydantic import BaseModel, ConfigDict, Field, model_validator

from publisher.errors import Fatal
from publisher.kafka import client_properties
from publisher.kafka import security as security_section
from publisher.kafka.error_codes import NOBODY_THERE, REFUSED, UNKNOWN_CLIENT
from publisher.kafka.security import SecuritySettings

RETRY_BACKOFF_MS = 250  # large on purpose: a commit slower than 0.75 of it may have been sent twice (`TransactionSession`)
LARGEST_MESSAGE = 1_000_000_000  # bytes, librdkafka's most: what a topic takes is the broker's to say
LARGEST_BATCH = 1_000_000  # bytes, librdkafka's default: a larger record travels alone
FIRST_ANSWER_SECONDS = 1.0
READING: dict[str, Any] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 10,
}
"""Of every consumer: it commits nothing by itself, and is not moved where its position is not there."""
SECRET_MARKS = ("passw", "secret", "token", "key.pem", "jaas", "credential")
PATH_ENDS = ("_file", ".location")  # names of files are no secrets

log = logging.getLogger(__name__)
library_log = logging.getLogger("librdkafka")


class KafkaSettings(BaseModel):
    """The `kafka:` section of a configuration file. `section` is what it is called where errors name its settings."""

    section: ClassVar[str] = "kafka"
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    bootstrap_servers: str = Field(min_length=1)
    """The brokers to ask first, `host:port`, commas between several."""
    group_protocol: Literal["classic", "consumer"] = "classic"
    """`consumer` is KIP-848: half the pause in a rebalance, if the broker allows short sessions."""
    session_timeout_ms: int = Field(default=10_000, ge=1_000, le=1_800_000)
    """After a crash the partitions move on when this has passed (ms)."""
    transaction_timeout_ms: int = Field(default=10_000, ge=1_000, le=900_000)
    """How long the broker may take to confirm a batch (ms)."""
    security: SecuritySettings = SecuritySettings()
    extra: dict[str, str | int | float | bool] = Field(default_factory=dict, repr=False)
    """Properties of librdkafka (tuning, other mechanisms), except those that a guarantee needs; secrets are never printed."""

    @model_validator(mode="after")
    def _keeps_guarantees(self) -> Self:
        """`extra` wins over everything: it must undo neither a guarantee nor what `security` says."""
        client_properties.check(self.extra)
        security_section.said_once(self.security, self.extra, self.section)
        return self


def is_secret(key: str, properties: Set[str] = client_properties.ALLOWED) -> bool:
    """Whether the value of a setting or of a client property must never be printed. In `security` and `extra` everything that
    is not known to be harmless: a password under a misspelt name is one. `properties` are the harmless ones of `extra`."""
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
    """Properties that every client shares; those in `extra` win. Raises Fatal (2) for a password file that cannot be read."""
    try:
        proof = security_section.properties(settings.security)
    except (OSError, ValueError) as error:
        named = f"a file of {settings.section}.security cannot be used: {error}"
        raise Fatal(named, "see the configuration for its name", 2) from None
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
    """Properties of a group member that commits nothing by itself."""
    properties: dict[str, Any] = {
        "group.id": group,
        "group.protocol": settings.group_protocol,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,  # only this gives a position behind markers and aborted records (librdkafka #2539)
        "topic.metadata.refresh.interval.ms": 10_000,  # how late a partition that was added may be read
        "queued.min.messages": 1,  # fetched when nothing is left: a sixth of the requests at 1,000 events/s
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
    """Remembers the one kind of client error that retrying never cures; librdkafka itself retries it for ever. `last` is the
    last error of any kind: what the client says while it cannot reach anybody."""

    def __init__(self) -> None:
        self.fatal: KafkaError | None = None
        self.last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if error in UNKNOWN_CLIENT or error.fatal():
            self.fatal = self.fatal or error
        if self.last is None or error not in NOBODY_THERE:
            self.last = error
        log.info("kafka client: %s", error.str())


@contextlib.contextmanager
def unwrap_kafka_errors() -> Iterator[None]:
    """Around calls of a producer that others may fence: the KafkaException of a fatal error is raised as such. While the
    library holds one it may still call its logger, and Python makes a SystemError of what that returns."""
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


class Plugin(Protocol):
    """A plugin of librdkafka that moves bytes for a client."""

    path: str

    def handle(self) -> int:
        """librdkafka's handle of the client that this thread made last."""


class HandledConsumer(Consumer):
    """A consumer with librdkafka's handle of it."""

    handle = 0


class HandledProducer(Producer):
    """A producer with librdkafka's handle of it, and the setting of its transaction timeout as errors name it."""

    handle = 0
    timeout_setting = "transaction_timeout_ms"


Client = TypeVar("Client", Consumer, Producer, AdminClient, HandledConsumer, HandledProducer)
Handled = TypeVar("Handled", HandledConsumer, HandledProducer)


def _handled(plugin: Plugin | None, settings: KafkaSettings, kind: type[Handled], properties: dict[str, Any]) -> Handled:
    """A client that has its handle from the plugin, if there is one."""
    if plugin is None:
        return _made(settings, kind, properties)
    made = _made(settings, kind, properties | {"plugin.library.paths": plugin.path})
    made.handle = plugin.handle()
    return made


def _made(settings: KafkaSettings, kind: Callable[..., Client], properties: dict[str, Any]) -> Client:
    """A client; `error_cb` hears of its errors. Raises Fatal (2) for properties that librdkafka does not take."""
    try:
        return kind({"error_cb": ErrorWatch()} | properties, logger=library_log)
    except KafkaException as error:
        said = error.args[0].str()
        hint = f"check {settings.section}.extra and {settings.section}.security"
        raise Fatal(f"the Kafka client refuses its settings: {said}", hint, 2) from None


def consumer(
    settings: KafkaSettings,
    client_id: str,
    group: str,
    watch: Callable[[KafkaError], None],
    on_commit: Callable[[KafkaError | None, list[TopicPartition]], None],
    plugin: Plugin | None = None,
) -> Consumer:
    """A group member for scoring: reads committed events only and never commits by itself. `on_commit` hears, within a poll,
    how a commit ended that did not wait for its answer."""
    properties = consumer_properties(settings, client_id, group)
    return _handled(plugin, settings, HandledConsumer, properties | {"on_commit": on_commit, "error_cb": watch})


def transactional_producer(
    settings: KafkaSettings,
    transactional_id: str,
    client_id: str,
    batch_bytes: int = LARGEST_BATCH,
    plugin: Plugin | None = None,
    **more: Any,
) -> Producer:
    """A producer of the pool of a transaction session, not yet initialised. `batch_bytes`: what every topic that it writes to
    takes at once. `more` properties win over all others."""
    timeout = settings.transaction_timeout_ms
    properties = {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout,
        "message.timeout.ms": timeout,
        "socket.timeout.ms": min(timeout, 10_000),
        "retry.backoff.ms": RETRY_BACKOFF_MS,
        "retry.backoff.max.ms": 4 * RETRY_BACKOFF_MS,
        "metadata.recovery.strategy": "none",  # else a call may never return (`transactions/exactly_once.py`)
        "linger.ms": 100,  # nobody waits for it: a commit sends at once what is there, and so in one request a partition
        "message.max.bytes": LARGEST_MESSAGE,
        "batch.size": min(batch_bytes, LARGEST_BATCH),
        "compression.type": "lz4",
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
    }
    made = _handled(plugin, settings, HandledProducer, properties | client(settings, client_id) | more)
    made.timeout_setting = f"{settings.section}.transaction_timeout_ms ({timeout})"
    return made


def warm_up(client: Client, topic: str) -> Client:
    """The client, once it has a connection, if a broker answers soon about a topic that the client may use.

    `init_transactions` asks for the coordinator at once, `assign` for the partitions' leaders; where no connection is up by
    then, the library (2.16) asks again only half a second later. Two questions: in the first answer the broker behind a
    configured address gets its name.
    """
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
    """The producer of an at-least-once session; `on_delivery` hears of records that failed and of no others. `singly`: each
    record is a request of its own. Records never expire: the session gives them up together, lest one overtakes another."""
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
    return _handled(plugin, settings, HandledProducer, properties | client(settings, client_id) | {"on_delivery": on_delivery})


def plain_producer(settings: KafkaSettings, client_id: str, **properties: Any) -> Producer:
    """An idempotent producer outside transactions: status records, `scorer emit`."""
    defaults = {"enable.idempotence": True, "compression.type": "lz4"}
    return _made(settings, Producer, client(settings, client_id) | defaults | properties)


def reader(settings: KafkaSettings, client_id: str, **properties: Any) -> Consumer:
    """A consumer outside any group's work, for assigned partitions: sees committed records only, commits nothing. The client
    wants a name of a group all the same; where it may not use that group it says so once (`is_group_auth_noise`)."""
    return plugged_reader(settings, client_id, None, **properties)


def plugged_reader(settings: KafkaSettings, client_id: str, plugin: Plugin | None, **properties: Any) -> Consumer:
    """The same with a plugin, if there is one."""
    properties = client(settings, client_id) | READING | {"group.id": client_id} | properties
    return _handled(plugin, settings, HandledConsumer, properties)


def is_group_auth_noise(error: KafkaError) -> bool:
    """Whether a `reader` only says that it may not use the group of its name, which it has no need of."""
    return REFUSED.why(error) == "group"


def admin(settings: KafkaSettings, client_id: str, watch: Callable[[KafkaError], None] | None = None) -> AdminClient:
    """An administrative client; `watch` hears of errors while it is polled."""
    return _made(settings, AdminClient, client(settings, client_id) | {"error_cb": watch or ErrorWatch()})
