"""The settings of a scorer. `publisher.runtime.configuration` reads and merges them."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from model_registry.errors import RegistryError
from model_registry.oci import reference
from publisher.kafka import security
from publisher.kafka.clients import KafkaSettings
from publisher.runtime import configuration
from publisher.runtime.configuration import Configuration, Loaded, Name, SettingsError
from publisher.runtime.log_settings import LogSettings
from scorer.settings.batching import DEFAULT_LATENCY_TARGET_MS, BatchingSettings
from scorer.settings.carry import check_source
from scorer.settings.features import FeatureLogSettings
from scorer.settings.input import InputSettings, SchemaRegistrySettings
from scorer.settings.input_formats import SCHEMA_FORMATS
from scorer.settings.labels import LabelSettings
from scorer.settings.model import DEADLINE_TARGETS, LONGEST_DEADLINE_MS, SHORTEST_DEADLINE_MS, ModelSettings
from scorer.settings.observability import ScorerHttpSettings, TracingSettings
from scorer.settings.output import DeadLetterSettings, OutputSettings
from scorer.settings.rollout import RolloutSettings
from scorer.settings.shadow import ShadowSettings
from scorer.settings.tables import TableName, TableSettings


class Settings(Configuration):
    """The whole configuration of a scorer."""

    model_config = SettingsConfigDict(env_prefix="SCORER_")

    name: Name
    """The name of the scorer: its consumer group, and the prefix of its topics `<name>.status` and `<name>.swaps`."""
    kafka: KafkaSettings
    input: InputSettings
    schema_registry: SchemaRegistrySettings = SchemaRegistrySettings()
    output: OutputSettings
    dead_letter: DeadLetterSettings
    model: ModelSettings
    delivery: Literal["exactly-once", "at-least-once"] = "exactly-once"
    """The delivery guarantee. `at-least-once` has a lower latency, but repeats about one second of scores after a crash."""
    batching: BatchingSettings = BatchingSettings()
    http: ScorerHttpSettings = ScorerHttpSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()
    labels: LabelSettings = LabelSettings()
    features: FeatureLogSettings = FeatureLogSettings()
    shadow: ShadowSettings = ShadowSettings()
    rollout: RolloutSettings = RolloutSettings()
    tables: dict[TableName, TableSettings] = Field(default_factory=dict)
    """The tables of features by key, by name. The field `customers.age` of a signature is the column `age` of `customers`."""
    region: Name = "local"
    """The region of the scorer. It is a field of every score."""
    replica: Name = Field(default_factory=socket.gethostname)
    """The name of this instance; default: the host name. It owns its partitions and transactions as `<name>.<replica>`."""

    @model_validator(mode="before")
    @classmethod
    def _dead_letter_default(cls, values: dict[str, Any]) -> dict[str, Any]:
        topics = (values.get("input") or {}).get("topics") if isinstance(values.get("input"), dict) else None
        if isinstance(topics, list) and topics and "dead_letter" not in values:
            return {**values, "dead_letter": {"topic": f"{topics[0]}.dead"}}
        return values

    @model_validator(mode="before")
    @classmethod
    def _deadline_from_target(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Set `model.deadline_ms`, if it is not configured, to DEADLINE_TARGETS times the latency target.

        The value is at least SHORTEST_DEADLINE_MS and at most LONGEST_DEADLINE_MS.
        """
        model = values.get("model")
        batching = values.get("batching")
        if not isinstance(model, dict) or "deadline_ms" in model:
            return values
        try:
            target = float(batching["latency_target_ms"]) if isinstance(batching, dict) else DEFAULT_LATENCY_TARGET_MS
        except (KeyError, TypeError, ValueError):  # not set, or not a number, which its own validation reports
            target = DEFAULT_LATENCY_TARGET_MS
        derived = min(max(DEADLINE_TARGETS * target, SHORTEST_DEADLINE_MS), LONGEST_DEADLINE_MS)
        return {**values, "model": {**model, "deadline_ms": derived}}

    @model_validator(mode="after")
    def _topics_are_distinct(self) -> "Settings":
        """Check that no topic has two uses, because the scorer would read its own output, or mix different kinds of records."""
        uses = [
            *((f"input.topics[{index}]", topic) for index, topic in enumerate(self.input.topics)),
            ("output.topic", self.output.topic),
            ("dead_letter.topic", self.dead_letter.topic),
            ("name (its status topic)", self.status_topic),
            ("name (its swaps topic)", self.swaps_topic),
            ("dead_letter.topic (its topic of replayed dead letters)", self.replayed_topic),
            *([("labels.topic", self.labels.topic)] if self.labels.topic else []),
            *([("features.topic", self.features.topic)] if self.features.topic else []),
            ("name (its rollouts topic)", self.rollouts_topic),
            ("name (its runs topic)", self.runs_topic),
            ("output.topic (its corrections topic)", self.corrections_topic),
            ("output.topic (its shadow topic)", self.shadow_topic),
            *((f"tables.{name}.topic", table.topic) for name, table in self.tables.items()),
        ]
        first: dict[str, str] = {}
        for key, topic in uses:
            if first.setdefault(topic, key) != key:
                raise ValueError(f"{first[topic]} and {key} are the same topic, {topic}; use a separate topic for each")
        return self

    @model_validator(mode="after")
    def _schema_is_configured(self) -> "Settings":
        check_source(self.output.carry, self.input.format)
        logs_avro = self.features.topic is not None and self.features.format == "avro"
        if logs_avro and not self.schema_registry.url:
            raise ValueError("features.format avro needs a schema registry: set schema_registry.url")
        if self.input.format not in SCHEMA_FORMATS:
            return self
        writes_schema = self.output.format in SCHEMA_FORMATS or logs_avro
        both = self.input.schema_file and self.schema_registry.url and not writes_schema
        if both or not (self.input.schema_file or self.schema_registry.url):
            raise ValueError(
                f"input.format {self.input.format} needs a schema: set either schema_registry.url or input.schema_file"
            )
        return self

    @model_validator(mode="after")
    def _tables_have_schemas(self) -> "Settings":
        for name, table in self.tables.items():
            if table.format in SCHEMA_FORMATS and not self.schema_registry.url:
                raise ValueError(f"tables.{name}.format {table.format} needs a schema; set schema_registry.url")
        return self

    @property
    def owner(self) -> str:
        """The name of this instance, `<name>.<replica>`: its client.id, also used in committed offsets and status records."""
        return f"{self.name}.{self.replica}"

    def transactional_prefix(self, owner: str) -> str:
        """Return the prefix of the transactional ids of `owner`, an instance of this scorer."""
        return f"{self.name}/scorer/{owner.removeprefix(self.name + '.')}"

    @property
    def status_topic(self) -> str:
        return f"{self.name}.status"

    @property
    def replayed_topic(self) -> str:
        return f"{self.dead_letter.topic}.replayed"

    @property
    def swaps_topic(self) -> str:
        return f"{self.name}.swaps"

    @property
    def rollouts_topic(self) -> str:
        return f"{self.name}.rollouts"

    @property
    def runs_topic(self) -> str:
        return f"{self.name}.runs"

    @property
    def rollout_group(self) -> str:
        return f"{self.name}.rollout"

    @property
    def corrections_topic(self) -> str:
        return f"{self.output.topic}.corrections"

    @property
    def shadow_topic(self) -> str:
        return f"{self.output.topic}.shadow"

    @property
    def shadow_group(self) -> str:
        return f"{self.name}.shadow"

    @property
    def certificate_files(self) -> dict[str, Path]:
        """The configured certificate files of all connections, by the full name of their setting."""
        server = self.model.server_tls
        files = {
            "model.ca_file": self.model.ca_file,
            "model.server_tls.ca_file": server.ca_file,
            "model.server_tls.certificate_file": server.certificate_file,
        }
        configured = {name: path for name, path in files.items() if path is not None}
        return self.kafka.security.certificate_files("kafka.security") | configured

    @property
    def offsets_command(self) -> str:
        """The command line, for messages, that shows and moves the offsets of the consumer group."""
        return "scorer offsets CONFIG"

    @property
    def answer_topics(self) -> tuple[str, ...]:
        """The topics that the transaction of a batch writes records to. The committed offsets are not included."""
        features = (self.features.topic,) if self.features.topic else ()
        return self.output.topic, self.dead_letter.topic, self.swaps_topic, *features


def load(path: Path | Mapping[str, Any], flags: Sequence[str] = ()) -> Loaded[Settings]:
    """Load the settings from a file, the environment (`SCORER_...`) and `--set` flags.

    Args:
        path: the path of the file, or the content of the file as a mapping.
        flags: `key=value` pairs, which override the environment. The environment overrides the file.

    Raises:
        SettingsError: The configuration is not valid.
    """
    return configuration.load(Settings, path, flags, _absolute)


def _absolute(values: dict[str, Any], base: Path) -> None:
    """Make the relative paths in `values` absolute.

    `base` is the folder of the file for paths in the file, and the working directory for paths in the environment and in flags.
    """
    model: Any = values.get("model")
    if not isinstance(model, dict):
        model = {}
    sections: list[tuple[Any, Sequence[str]]] = [
        (values.get("input"), ("schema_file",)),
        (model, ("cache", "ca_file", "policy", "server_folder")),
        (values.get("rollout"), ("key_file", "password_file")),
        (model.get("server_tls"), ("ca_file", "certificate_file", "key_file")),
    ]
    for section, keys in sections:
        for key in keys if isinstance(section, dict) else ():
            if isinstance(section.get(key), str):
                section[key] = (base / section[key]).resolve()
    security.resolve(values.get("kafka"), base)
    if isinstance(model.get("source"), str):
        try:
            source = reference.parse(model["source"], base_dir=base.resolve())
        except RegistryError as error:
            raise SettingsError(f"model.source: {error}") from None
        if version := source.tag or source.digest:
            raise SettingsError(
                f"model.source: {source} names a version; write {source.bare()}, and set model.tag to {version}"
            )
        model["source"] = str(source)
