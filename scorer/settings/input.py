"""The settings of the events that a scorer reads (`input`) and of their schemas (`schema_registry`)."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from model_registry.package import json_path
from publisher.runtime.configuration import Section, TopicName
from scorer.settings import registry_properties
from scorer.settings.input_formats import INPUT_FORMATS, FormatName


class InputSettings(Section):
    """The topics that events are read from, and how an event is decoded."""

    topics: list[TopicName] = Field(min_length=1)
    """The topics to read events from."""
    format: FormatName = "json"
    """The format of an event; `scorer/docs/formats.md` describes each format."""
    schema_file: Path | None = None
    """The schema of `avro` or `protobuf` events without a schema registry: an `.avsc` or `.proto` file, or a descriptor set."""
    message: str | None = Field(default=None, min_length=1)
    """The Protobuf message type of the events. Required if `schema_file` has several message types."""
    id: Annotated[str, AfterValidator(json_path.canonical)] = Field(default="header:ce_id", min_length=1)
    """The path of an event's id (`after.id`, `"a.b"`), or `header:ce_id`. An event without an id gets the id
    `<region>/<topic>/<partition>/<offset>`."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where a group without committed offsets starts to read. A partition that is added later is always read from its
    beginning."""
    tombstones: Literal["dead-letter", "skip"] = "dead-letter"
    """What to do with an event whose value is null."""
    max_event_bytes: int = Field(default=1_000_000, ge=1)
    """The largest event (bytes). A larger event is dead-lettered (`oversize`)."""
    expanded_bytes: int = Field(default=268_435_456, ge=1_048_576, le=2_000_000_000)
    """The largest decompressed record batch (bytes). A larger batch is dead-lettered as a whole (`unreadable-batch`)."""

    @property
    def id_field(self) -> str | None:
        """The path of the event field with the id; None if only the header `ce_id` can contain the id."""
        return None if self.id == "header:ce_id" else self.id

    @model_validator(mode="after")
    def _consistent(self) -> "InputSettings":
        if self.id_field and not INPUT_FORMATS[self.format].has_id:
            raise ValueError(f"format {self.format} has no named fields, so there is no id at {self.id!r}; use header:ce_id")
        if self.format == "json-envelope" and len(json_path.parse(self.id)) > 1:
            raise ValueError(
                f"format json-envelope has the id beside the features; set id to the name of a field, not the path {self.id!r}"
            )
        if self.schema_file and not INPUT_FORMATS[self.format].has_schema:
            raise ValueError(f"events of the format {self.format} are read without a schema; leave schema_file out")
        if self.message and not (self.schema_file and self.format == "protobuf"):
            raise ValueError(
                "message needs format protobuf and a schema_file, from which it selects a message; leave message out"
            )
        return self


class SchemaRegistrySettings(Section):
    """The schema registry and the properties of its client."""

    url: Annotated[str, AfterValidator(registry_properties.check_url)] | None = Field(default=None, pattern=r"^https?://")
    """The URL of the schema registry for `avro` and `protobuf` (Confluent's API)."""
    extra: Annotated[dict[str, str | int | float | bool], AfterValidator(registry_properties.check)] = Field(
        default_factory=dict, repr=False
    )
    """Properties of Confluent's client: TLS, credentials, timeouts. Secrets are never printed."""

    @property
    def client(self) -> dict[str, str | int | float | bool]:
        """The configuration properties of Confluent's client. `extra` overrides the default timeouts.

        The default timeouts are short because the scoring thread waits for the responses.
        """
        timeouts = {"timeout": 3, "max.retries": 1, "retries.wait.ms": 200}
        return {"url": self.url or "", **timeouts, **self.extra}
