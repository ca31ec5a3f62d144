"""The settings of a relay, typed. `publisher/runtime/configuration.py` reads and merges them."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import SettingsConfigDict

from publisher.kafka import client_properties, security
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.security import SecuritySettings
from publisher.kafka.source_position import renamed
from publisher.runtime import configuration
from publisher.runtime.configuration import TOPIC, Configuration, Listen, Loaded, Name, Section, TopicName
from publisher.runtime.log_settings import LogSettings

PRODUCERS = 2  # per lane: one writes while the broker completes the last transaction of the other


def _topic_or_pattern(text: str) -> str:
    if text.startswith("^"):
        try:
            re.compile(text)
        except re.error as error:
            raise ValueError(f"the pattern is not a valid regular expression: {error}") from None
    elif not re.match(TOPIC, text):
        raise ValueError("this is neither the name of a topic nor a pattern that begins with ^")
    return text


def _renaming(text: str) -> str:
    if "{topic}" not in text and not re.match(TOPIC, text):
        raise ValueError("this is neither the name of a topic nor a template such as '{region}.{topic}'")
    if not re.match(TOPIC, text.replace("{topic}", "t").replace("{region}", "r")):
        raise ValueError("the name may contain only {topic}, {region}, letters, digits, '.', '_' and '-'")
    return text


TopicOrPattern = Annotated[str, AfterValidator(_topic_or_pattern)]
Renaming = Annotated[str, AfterValidator(_renaming)]


class SourceKafka(KafkaSettings):
    """Client settings whose error messages name the section `source`."""

    section: ClassVar[str] = "source"


class DestinationKafka(KafkaSettings):
    """Client settings whose error messages name the section `destination`."""

    section: ClassVar[str] = "destination"


class ClusterSettings(Section):
    """The connection to a cluster. `region` is part of the positions in record headers."""

    reached: ClassVar[type[KafkaSettings]]
    region: Name
    bootstrap_servers: str = Field(min_length=1)
    security: SecuritySettings = SecuritySettings()
    extra: dict[str, str | int | float | bool] = Field(default_factory=dict, repr=False)

    @property
    def kafka(self) -> KafkaSettings:
        """Return the settings of the cluster's clients."""
        return self.reached(bootstrap_servers=self.bootstrap_servers, security=self.security, extra=self.extra)

    @model_validator(mode="after")
    def _check_guarantees(self) -> Self:
        client_properties.check(self.extra)
        security.check_not_repeated(self.security, self.extra, self.reached.section)
        return self


class SourceSettings(ClusterSettings):
    """The cluster from which records are copied. The sizes in bytes are limits for each copy worker (lane)."""

    reached: ClassVar[type[KafkaSettings]] = SourceKafka
    topics: list[TopicOrPattern] = Field(min_length=1)
    groups: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    fetch_bytes: int = Field(default=393_216, ge=1_024, le=1_000_000_000)
    queue_bytes: int = Field(default=6_291_456, ge=65_536, le=2_000_000_000)
    expanded_bytes: int = Field(default=268_435_456, ge=1_048_576, le=2_000_000_000)
    socket_buffer_bytes: int = Field(default=0, ge=0, le=100_000_000)


class DestinationSettings(ClusterSettings):
    """The cluster to which records are copied."""

    reached: ClassVar[type[KafkaSettings]] = DestinationKafka
    topic: Renaming = "{topic}"
    create_topics: bool = False
    compression: Literal["none", "lz4", "zstd", "snappy", "gzip"] = "lz4"
    transaction_timeout_ms: int = Field(default=15_000, ge=1_000, le=900_000)

    @property
    def kafka(self) -> KafkaSettings:
        """Return the settings of the cluster's clients, with the transaction timeout."""
        return super().kafka.model_copy(update={"transaction_timeout_ms": self.transaction_timeout_ms})


class HttpSettings(Section):
    """The address of health checks and metrics."""

    listen: Listen = "127.0.0.1:9474"


class RelaySettings(Configuration):
    """The configuration of a relay."""

    model_config = SettingsConfigDict(env_prefix="PUBLISHER_")

    name: Name
    source: SourceSettings
    destination: DestinationSettings
    lanes: int = Field(default=1, ge=1, le=64)
    checkpoint_topic: TopicName = "scorestream.checkpoints"
    refusal_topic: TopicName | None = None
    filter: dict[str, list[str]] = Field(default_factory=dict)
    transaction_records: int = Field(default=10_000, ge=1, le=100_000)
    bytes_per_second: int = Field(default=0, ge=0)
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _check_regions_differ(self) -> "RelaySettings":
        if self.source.region == self.destination.region:
            raise ValueError(f"source.region and destination.region are both {self.source.region!r}: give each its own name")
        return self

    @model_validator(mode="after")
    def _check_topics_differ(self) -> "RelaySettings":
        if self.refusal_topic == self.checkpoint_topic:
            raise ValueError(f"refusal_topic and checkpoint_topic are both {self.refusal_topic!r}: give each its own topic")
        return self

    @model_validator(mode="after")
    def _check_groups_can_fail_over(self) -> "RelaySettings":
        if not self.source.groups:
            return self
        if "{region}" not in self.destination.topic or "{topic}" not in self.destination.topic:
            raise ValueError(
                f"source.groups requires separate topics for copies, but destination.topic is {self.destination.topic!r}: "
                "write '{region}.{topic}'"
            )
        if self.filter:
            raise ValueError("source.groups requires copies of all records, but filter is set: use a second relay to filter")
        return self

    def destination_topic(self, topic: str) -> str:
        """Return the name of the destination topic into which a source topic is copied."""
        return renamed(self.destination.topic, self.source.region, topic)

    def lane_id(self, lane: int) -> str:
        """Return the client id of the copying thread with this number."""
        return f"{self.name}.{lane}"

    @property
    def transactional_prefix(self) -> str:
        """Return the prefix of all transactional ids of the relay.

        The ids of other relays cannot begin with this prefix, because the name of a relay cannot contain `/`.
        """
        return f"{self.name}/relay/"

    def transactional_ids(self, lane: int) -> list[str]:
        """Return the transactional ids that the copying thread with this number uses in turn."""
        return [f"{self.transactional_prefix}{lane}/{number}" for number in range(PRODUCERS)]

    def lane(self, topic: str, partition: int) -> int:
        """Return the number of the thread that copies a partition.

        The assignment changes only if the setting `lanes` changes.
        """
        # It is balanced even for few topics.
        return (sum(topic.encode()) + partition) % self.lanes


def load(path: Path, flags: Sequence[str] = ()) -> Loaded[RelaySettings]:
    """Read and merge the settings in a file, the environment (`PUBLISHER_...`) and `--set` flags. Raises SettingsError."""
    return configuration.load(RelaySettings, path, flags, _absolute)


def _absolute(values: dict[str, Any], base: Path) -> None:
    """Resolve paths against `base`: the folder of the file, or the working directory for other origins."""
    for side in ("source", "destination"):
        security.resolve(values.get(side), base)
