"""Every setting of the scorer, typed, in one place: flag > environment > file > default, and where each value came from.

A YAML file, environment variables (`SCORER_KAFKA__BOOTSTRAP_SERVERS`) and `--set kafka.bootstrap_servers=...` name the same
keys. `${NAME}` and `${NAME:-default}` in a file stand for environment variables. Unknown keys are errors.
"""

import difflib
import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ByteSize, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from model_registry import reference
from model_registry.errors import RegistryError
from model_registry.limits import DEFAULT_DOMAINS, MAX_BYTES, MAX_VERSION_BYTES
from publisher.kafka import KafkaSettings, is_secret

TopicName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
NAMELESS = ("json-array", "float32")
SCHEMA_FORMATS = ("avro", "protobuf")
OWNER_PART = r"^[a-zA-Z0-9._-]{1,100}$"


class SettingsError(Exception):
    """The configuration is wrong. The message holds one line a fault: the name, the value and the way out."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class InputSettings(Section):
    topics: list[TopicName] = Field(min_length=1)
    format: Literal["json", "json-array", "json-envelope", "float32", "avro", "protobuf"] = "json"
    schema_file: Path | None = None
    message: str | None = Field(default=None, min_length=1, description="the Protobuf message, where schema_file has several")
    id: str = Field(default="header:ce_id", min_length=1, description="a field of the event, or header:ce_id")
    start: Literal["earliest", "latest"] = "earliest"
    tombstones: Literal["dead-letter", "skip"] = "dead-letter"
    max_event_bytes: int = Field(default=1_000_000, ge=1)

    @property
    def id_field(self) -> str | None:
        """The event field that holds the id, or None where only the header does."""
        return None if self.id == "header:ce_id" else self.id

    @model_validator(mode="after")
    def _consistent(self) -> "InputSettings":
        if self.format in NAMELESS and self.id_field:
            raise ValueError(f"format {self.format} has no named fields to find the id {self.id!r} in; use header:ce_id")
        if self.schema_file and self.format not in SCHEMA_FORMATS:
            raise ValueError(f"format {self.format} has no schema; leave schema_file out")
        if self.message and not (self.schema_file and self.format == "protobuf"):
            raise ValueError("message names a message of a Protobuf schema_file; leave it out")
        return self


class SchemaRegistrySettings(Section):
    url: str | None = Field(default=None, pattern=r"^https?://")
    extra: dict[str, str | int | float | bool] = Field(default_factory=dict)

    @property
    def client(self) -> dict[str, str | int | float | bool]:
        """Properties of Confluent's client. The thread that scores asks: there are a few seconds to answer, `extra` wins."""
        timing = {"timeout": 3, "max.retries": 3, "retries.wait.ms": 200, "retries.max.wait.ms": 1_000}
        return {"url": self.url or "", **timing, **self.extra}


class OutputSettings(Section):
    topic: TopicName
    format: Literal["json", "avro", "protobuf"] = "json"
    headers: list[Literal["id", "status", "decision", "model", "version", "digest", "role", "region"]] = []


class DeadLetterSettings(Section):
    topic: TopicName


class ModelSettings(Section):
    source: str
    tag: str = "prod"
    plain_http: bool = False
    ca_file: Path | None = None
    poll_seconds: float = Field(default=10.0, ge=0.1, le=3_600)
    backend: Literal["onnx-runtime"] = "onnx-runtime"
    device: Literal["cpu", "cuda"] = "cpu"
    cache: Path | None = None
    policy: Path | None = None
    cache_bytes: ByteSize = ByteSize(MAX_BYTES)
    max_bytes: ByteSize = Field(default=ByteSize(MAX_VERSION_BYTES), ge=1)
    op_domains: list[Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]+$")]] = list(DEFAULT_DOMAINS)


class BatchingSettings(Section):
    latency_target_ms: float = Field(default=20.0, gt=0)
    max_events: int = Field(default=4_096, ge=1, le=100_000)


class HttpSettings(Section):
    listen: str = Field(default="127.0.0.1:9464", pattern=r"^.+:\d{1,5}$")


class Settings(BaseSettings):
    """The whole configuration of a scorer."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_prefix="SCORER_", env_nested_delimiter="__")

    name: str = Field(pattern=OWNER_PART)
    kafka: KafkaSettings
    input: InputSettings
    schema_registry: SchemaRegistrySettings = SchemaRegistrySettings()
    output: OutputSettings
    dead_letter: DeadLetterSettings
    model: ModelSettings
    delivery: Literal["exactly-once", "at-least-once"] = "exactly-once"
    batching: BatchingSettings = BatchingSettings()
    http: HttpSettings = HttpSettings()
    region: str = Field(default="local", pattern=OWNER_PART)
    replica: str = Field(default_factory=socket.gethostname, pattern=OWNER_PART)

    @model_validator(mode="before")
    @classmethod
    def _dead_letter_default(cls, values: dict[str, Any]) -> dict[str, Any]:
        topics = (values.get("input") or {}).get("topics") if isinstance(values.get("input"), dict) else None
        if isinstance(topics, list) and topics and "dead_letter" not in values:
            return {**values, "dead_letter": {"topic": f"{topics[0]}.dead"}}
        return values

    @model_validator(mode="after")
    def _schemas_somewhere(self) -> "Settings":
        if self.input.format not in SCHEMA_FORMATS:
            return self
        both = self.input.schema_file and self.schema_registry.url and self.output.format not in SCHEMA_FORMATS
        if both or not (self.input.schema_file or self.schema_registry.url):
            raise ValueError(
                f"input.format {self.input.format} needs a schema: give either schema_registry.url or input.schema_file"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the names are the base class's
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `load` has merged: it keeps the origin of each value."""
        return (init_settings,)

    @property
    def owner(self) -> str:
        """`<name>.<replica>`: client.id, prefix of the transactional ids, and the owner that committed offsets name."""
        return f"{self.name}.{self.replica}"

    @property
    def status_topic(self) -> str:
        return f"{self.name}.status"

    @property
    def replayed_topic(self) -> str:
        return f"{self.dead_letter.topic}.replayed"

    @property
    def swaps_topic(self) -> str:
        return f"{self.name}.swaps"


@dataclass(frozen=True)
class Loaded:
    """Settings, and for each dotted key the place its value came from."""

    settings: Settings
    origins: Mapping[str, str]


def load(path: Path, flags: Sequence[str] = ()) -> Loaded:
    """Read and merge file, environment and `--set` flags. Raises SettingsError."""
    origins: dict[str, str] = {}
    merged: dict[str, Any] = {}
    from_environment = EnvSettingsSource(Settings, case_sensitive=False)()
    for values, origin, base in (
        (_read_file(path), str(path), path.parent),
        (from_environment, "environment", Path.cwd()),
        (_read_flags(flags), "--set", Path.cwd()),
    ):
        _absolute(values, base)
        _merge(merged, values)
        origins |= {key: origin for key, _ in flatten(values)}
    try:
        return Loaded(Settings.model_validate(merged), origins)
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(fault, origins) for fault in error.errors())) from None


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and leaf values."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def shown(key: str, value: Any) -> Any:
    """A value as it may be printed: never a secret."""
    return "***" if is_secret(key) or key.endswith("user.info") else value


def nearest(name: str, valid: Sequence[str]) -> str:
    """`the nearest valid name is X`, or the whole list where nothing is near."""
    near = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    return f"the nearest valid name is {near[0]!r}" if near else f"valid names: {', '.join(sorted(valid))}"


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {path}: {error}") from None
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"{path} is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{path} must hold a mapping of settings, not {type(values).__name__}")
    expanded: dict[str, Any] = _expand(values, path)
    return expanded


def _expand(value: Any, path: Path) -> Any:
    """`${NAME}` and `${NAME:-default}` inside strings."""
    if isinstance(value, dict):
        return {str(k): _expand(v, path) for k, v in value.items()}
    if isinstance(value, list):
        return [_expand(v, path) for v in value]
    if not isinstance(value, str):
        return value

    def one(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        found = os.environ.get(name) or (socket.gethostname() if name == "HOSTNAME" else default)
        if found is None:
            raise SettingsError(f"{path}: ${{{name}}} is not set; export {name} or write ${{{name}:-default}}")
        return found

    return re.sub(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}", one, value)


def _read_flags(flags: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for flag in flags:
        key, equals, text = flag.partition("=")
        if not equals or not key:
            raise SettingsError(f"--set {flag}: write --set key=value, for instance --set batching.latency_target_ms=10")
        nested: Any = yaml.safe_load(text) if text else ""
        for part in reversed(key.split(".")):
            nested = {part: nested}
        _merge(values, nested)
    return values


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def _absolute(values: dict[str, Any], base: Path) -> None:
    """Paths resolve from where they were written: a file's from its folder, others from the working directory."""
    section = values.get("input")
    if isinstance(section, dict) and isinstance(section.get("schema_file"), str):
        section["schema_file"] = (base / section["schema_file"]).resolve()
    model = values.get("model")
    if not isinstance(model, dict):
        return
    for key in ("cache", "ca_file", "policy"):
        if isinstance(model.get(key), str):
            model[key] = (base / model[key]).resolve()
    if isinstance(model.get("source"), str):
        try:
            model["source"] = str(reference.parse(model["source"], base_dir=base.resolve()))
        except RegistryError as error:
            raise SettingsError(f"model.source: {error}") from None


def _explain(fault: Any, origins: Mapping[str, str]) -> str:
    """One line for one fault that pydantic found."""
    path = [str(part) for part in fault["loc"]]
    key = ".".join(path)
    where = origins.get(key, "")
    value = shown(key, fault.get("input"))
    place = f"{key} ({where})" if where else key
    if fault["type"] == "extra_forbidden":
        return f"{place}: unknown key with value {value!r}; {nearest(path[-1], _names_at(path[:-1]))}"
    if fault["type"] == "missing":
        return f"{place}: missing; write it in the file, or --set {key}=..., or export SCORER_{'__'.join(path).upper()}"
    if fault["type"] == "literal_error":
        return f"{place}: {value!r} is not one of {fault['ctx']['expected']}"
    return f"{place}: {value!r}: {fault['msg']}"


def _names_at(path: Sequence[str]) -> list[str]:
    model: Any = Settings
    for part in path:
        model = model.model_fields[part].annotation
    return list(model.model_fields)
