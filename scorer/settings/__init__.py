"""Every setting of the scorer, typed, in one place. How they are read and merged: publisher/runtime/configuration.py."""

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
from scorer.settings.carry import check_source
from scorer.settings.labels import LabelSettings
from scorer.settings.sections import (
    DEADLINE_TARGETS,
    LONGEST_DEADLINE_MS,
    SCHEMA_FORMATS,
    SHORTEST_DEADLINE_MS,
    TARGET_MS,
    BatchingSettings,
    DeadLetterSettings,
    HttpSettings,
    InputSettings,
    ModelSettings,
    OutputSettings,
    RolloutSettings,
    SchemaRegistrySettings,
    TracingSettings,
)
from scorer.settings.shadow import ShadowSection


class Settings(Configuration):
    """The whole configuration of a scorer."""

    model_config = SettingsConfigDict(env_prefix="SCORER_")

    name: Name
    """The consumer group; `<name>.status` and `<name>.swaps` are its topics."""
    kafka: KafkaSettings
    input: InputSettings
    schema_registry: SchemaRegistrySettings = SchemaRegistrySettings()
    output: OutputSettings
    dead_letter: DeadLetterSettings
    model: ModelSettings
    delivery: Literal["exactly-once", "at-least-once"] = "exactly-once"
    """`at-least-once` has a lower latency, and repeats about a second of answers after a crash."""
    batching: BatchingSettings = BatchingSettings()
    http: HttpSettings = HttpSettings()
    tracing: TracingSettings = TracingSettings()
    labels: LabelSettings = LabelSettings()
    shadow: ShadowSection = ShadowSection()
    rollout: RolloutSettings = RolloutSettings()
    region: Name = "local"
    """Stands in every score."""
    replica: Name = Field(default_factory=socket.gethostname)
    """`<name>.<replica>` owns partitions and transactions; default: the host name."""

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
        """A model that does not answer in many latency targets does not answer."""
        model, batching = values.get("model"), values.get("batching")
        if not isinstance(model, dict) or "deadline_ms" in model:
            return values
        try:
            target = float(batching["latency_target_ms"]) if isinstance(batching, dict) else TARGET_MS
        except (KeyError, TypeError, ValueError):  # not set, or no number, which is told elsewhere
            target = TARGET_MS
        derived = min(max(DEADLINE_TARGETS * target, SHORTEST_DEADLINE_MS), LONGEST_DEADLINE_MS)
        return {**values, "model": {**model, "deadline_ms": derived}}

    @model_validator(mode="after")
    def _each_topic_once(self) -> "Settings":
        """A topic that is written to and read, or written to as two things, would feed on itself or mix what must not be."""
        uses = [(f"input.topics[{at}]", topic) for at, topic in enumerate(self.input.topics)]
        uses += [("output.topic", self.output.topic), ("dead_letter.topic", self.dead_letter.topic)]
        uses += [("name (its status topic)", self.status_topic), ("name (its topic of swaps)", self.swaps_topic)]
        uses += [("dead_letter.topic (its topic of what was replayed)", self.replayed_topic)]
        uses += [("labels.topic", self.labels.topic)] if self.labels.topic else []
        uses += [("name (its topic of rollouts)", self.rollouts_topic)]
        uses += [("output.topic (its topic of corrections)", self.corrections_topic)]
        uses += [("output.topic (its topic of the shadow)", self.shadow_topic)]
        first: dict[str, str] = {}
        for key, topic in uses:
            if first.setdefault(topic, key) != key:
                raise ValueError(f"{first[topic]} and {key} are the same topic, {topic}; give each a topic of its own")
        return self

    @model_validator(mode="after")
    def _formats_suffice(self) -> "Settings":
        check_source(self.output.carry, self.input.format)
        if self.input.format not in SCHEMA_FORMATS:
            return self
        both = self.input.schema_file and self.schema_registry.url and self.output.format not in SCHEMA_FORMATS
        if both or not (self.input.schema_file or self.schema_registry.url):
            raise ValueError(
                f"input.format {self.input.format} needs a schema: give either schema_registry.url or input.schema_file"
            )
        return self

    @property
    def owner(self) -> str:
        """`<name>.<replica>`: client.id, and within the group the owner that committed offsets and status records name."""
        return f"{self.name}.{self.replica}"

    def transactional_prefix(self, owner: str) -> str:
        """What the transactional ids of an owner in this group begin with."""
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
    def offsets_command(self) -> str:
        """What shows the group's offsets, and moves them."""
        return "scorer offsets CONFIG"

    @property
    def answer_topics(self) -> tuple[str, ...]:
        """What a batch's transaction writes to, beside the offsets."""
        return self.output.topic, self.dead_letter.topic, self.swaps_topic


def load(path: Path | Mapping[str, Any], flags: Sequence[str] = ()) -> Loaded[Settings]:
    """Read and merge file (or what stands for one), environment (`SCORER_...`) and `--set` flags. Raises SettingsError."""
    return configuration.load(Settings, path, flags, _absolute)


def _absolute(values: dict[str, Any], base: Path) -> None:
    """Paths resolve from where they were written: a file's from its folder, others from the working directory."""
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
            model["source"] = str(reference.parse(model["source"], base_dir=base.resolve()))
        except RegistryError as error:
            raise SettingsError(f"model.source: {error}") from None
