"""The sections of a scorer's configuration, one class each."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ByteSize, Field, model_validator

from model_registry.default_limits import DEFAULT_DOMAINS, MAX_BYTES, MAX_VERSION_BYTES
from model_registry.package import json_path
from publisher.kafka import tls_files
from publisher.runtime.configuration import Listen, Section, TopicName
from scorer.settings import registry_properties
from scorer.settings.carry import CarriedFields
from scorer.settings.fallback import FallbackSettings

NAMELESS = ("json-array", "float32", "bytes")
SCHEMA_FORMATS = ("avro", "protobuf")
HeaderField = Literal["id", "status", "decision", "model", "version", "digest", "role", "arm", "region"]
TARGET_MS = 20.0
LONGEST_DEADLINE_MS = 2_500.0  # three in a row stay below the patience of livez
SHORTEST_DEADLINE_MS = 500.0  # of those that nobody has set
DEADLINE_TARGETS = 50.0  # latency targets that make a deadline which nobody has set


class InputSettings(Section):
    topics: list[TopicName] = Field(min_length=1)
    """The topics that events are read from."""
    format: Literal["json", "json-array", "json-envelope", "float32", "avro", "protobuf", "bytes"] = "json"
    """How an event is written; `scorer/docs/formats.md` describes each."""
    schema_file: Path | None = None
    """The schema of `avro` or `protobuf` events that come without a registry: `.avsc`, `.proto`, or a descriptor set."""
    message: str | None = Field(default=None, min_length=1)
    """The Protobuf message, where `schema_file` has several."""
    id: Annotated[str, AfterValidator(json_path.canonical)] = Field(default="header:ce_id", min_length=1)
    """The path of the id in an event (`after.id`, `"a.b"`), or header `ce_id`; else `<region>/<topic>/<partition>/<offset>`."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where a group that has never read a topic begins. A partition that is added later is read from its beginning."""
    tombstones: Literal["dead-letter", "skip"] = "dead-letter"
    """What becomes of an event without a value."""
    max_event_bytes: int = Field(default=1_000_000, ge=1)
    """Larger events are dead-lettered (`oversize`)."""
    expanded_bytes: int = Field(default=268_435_456, ge=1_048_576, le=2_000_000_000)
    """A compressed batch of records that takes more memory than this is dead-lettered whole (`unreadable-batch`)."""

    @property
    def id_field(self) -> str | None:
        """The path of the event field that holds the id, or None where only the header does."""
        return None if self.id == "header:ce_id" else self.id

    @model_validator(mode="after")
    def _consistent(self) -> "InputSettings":
        if self.format in NAMELESS and self.id_field:
            raise ValueError(f"format {self.format} has no named fields to find the id {self.id!r} in; use header:ce_id")
        if self.format == "json-envelope" and len(json_path.parse(self.id)) > 1:
            raise ValueError(f"format json-envelope has the id beside the features: a name, and no path as {self.id!r}")
        if self.schema_file and self.format not in SCHEMA_FORMATS:
            raise ValueError(f"format {self.format} has no schema; leave schema_file out")
        if self.message and not (self.schema_file and self.format == "protobuf"):
            raise ValueError("message names a message of a Protobuf schema_file; leave it out")
        return self


class SchemaRegistrySettings(Section):
    url: Annotated[str, AfterValidator(registry_properties.check_url)] | None = Field(default=None, pattern=r"^https?://")
    """The registry of `avro` and `protobuf` schemas (Confluent's API)."""
    extra: Annotated[dict[str, str | int | float | bool], AfterValidator(registry_properties.check)] = Field(
        default_factory=dict, repr=False
    )
    """Properties of Confluent's client: TLS, credentials, timeouts. Secrets are never printed."""

    @property
    def client(self) -> dict[str, str | int | float | bool]:
        """Properties of Confluent's client. The thread that scores asks: there are a few seconds to answer, `extra` wins."""
        timing = {"timeout": 3, "max.retries": 1, "retries.wait.ms": 200}
        return {"url": self.url or "", **timing, **self.extra}


class OutputSettings(Section):
    topic: TopicName
    """The topic that scores are written to."""
    format: Literal["json", "avro", "protobuf"] = "json"
    """How a score is written."""
    headers: list[HeaderField] = Field(default_factory=list)
    """Fields of the score record that are copied into headers: `[decision, version]`."""
    carry: CarriedFields = Field(default_factory=list)
    """Fields of the event that stand in its score, by path: `[amount, {path: after.id, as: customer, type: string}]`."""


class DeadLetterSettings(Section):
    topic: TopicName
    """The topic of dead letters; default: the first input topic's name with `.dead` behind it."""


class ServerTlsSettings(Section):
    enabled: bool = False
    """TLS to the model servers."""
    ca_file: Path | None = None
    """The authorities that the servers' certificates come from (PEM); default: the well-known ones."""
    certificate_file: Path | None = None
    """The scorer's own certificate (PEM), for servers that ask for one."""
    key_file: Path | None = None
    """The key of that certificate (PEM)."""

    @model_validator(mode="after")
    def _usable(self) -> "ServerTlsSettings":
        files = {"ca_file": self.ca_file, "certificate_file": self.certificate_file, "key_file": self.key_file}
        named = [name for name, path in files.items() if path is not None]
        if named and not self.enabled:
            raise ValueError(f"{named[0]} is for TLS; set enabled: true, or leave it out")
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file belong together; name both, or neither")
        for name, path in files.items():
            try:
                if path is not None and name != "key_file":
                    tls_files.certificates(path)
                elif path is not None and self.certificate_file is not None:
                    tls_files.check_key(path, None, self.certificate_file)
            except OSError as error:
                raise ValueError(f"{name}: cannot read {path}: {error.strerror}") from None
            except ValueError as error:
                raise ValueError(f"{name}: {path} {error}") from None
        return self


class ModelSettings(Section):
    source: str
    """The model's repository in a registry, `HOST/PATH` or `oci:FOLDER`."""
    tag: str = "prod"
    """The tag to follow; or a digest, `sha256:...`, which stays."""
    plain_http: bool | list[Annotated[str, Field(pattern=r"^[^\s/]+$")]] = False
    """HTTP without TLS: `true` on loopback hosts, or a list of hosts, `["registry:5000"]`."""
    ca_file: Path | None = None
    """Certificates of the registry to trust beside the system's (PEM)."""
    poll_seconds: float = Field(default=10.0, ge=0.1, le=3_600)
    """How often the tag is looked at (s)."""
    backend: Literal["onnx-runtime", "tf-serving", "open-inference"] = "onnx-runtime"
    """What runs the model; `deploy/backends.md` tells each."""
    device: Literal["cpu", "cuda", "tensorrt"] = "cpu"
    """Where ONNX Runtime runs it. `cuda` and `tensorrt` need the extra `gpu`, and refuse to start without a GPU."""
    devices: list[Annotated[int, Field(ge=0)]] | Literal["all"] = "all"
    """The GPUs that the workers of `scorer run` use in turn, one each, by number among the visible ones: `[0, 1]`, or `all`."""
    buckets: list[Annotated[int, Field(ge=1, le=100_000)]] = Field(default=[])
    """Batch sizes to pad to; empty: none on the CPU, those that are measured to pay on a GPU."""
    endpoints: list[Annotated[str, Field(pattern=r"^[^\s/]+:\d{1,5}$")]] = Field(default=[])
    """The model servers (gRPC, `host:port`) of `tf-serving` and `open-inference`."""
    server_folder: Path | None = None
    """The folder that those servers load models from; versions are written there."""
    server_tls: ServerTlsSettings = ServerTlsSettings()
    deadline_ms: float = Field(default=1_000.0, ge=1, le=LONGEST_DEADLINE_MS)
    """How long a batch may take the model (ms); default: 50 latency targets, from 500 to 2500."""
    fallback: FallbackSettings = FallbackSettings()
    load_seconds: float = Field(default=120.0, gt=0)
    """How long a version may take until it is ready: in its trial process, in its buckets, or on a server (s)."""
    load_bytes: ByteSize | None = Field(default=None, ge=1)
    """How much memory a version may need in its trial process; default: what the container has free, divided by the workers."""
    cache: Path | None = None
    """Where pulled versions are kept, for any number of scorers; default: the user's cache."""
    policy: Path | None = None
    """A file with the trusted keys and the denied versions; without one every version is loaded."""
    cache_bytes: ByteSize = ByteSize(MAX_BYTES)
    """Beyond this the longest unused versions are deleted, but none in use or known to be good (`20GiB` is a value)."""
    max_bytes: ByteSize = Field(default=ByteSize(MAX_VERSION_BYTES), ge=1)
    """A larger version is refused; of an image the layers that are read count, or what is under `/models`."""
    op_domains: list[Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]+$")]] = Field(default_factory=lambda: list(DEFAULT_DOMAINS))
    """Domains of operators that a model may use beside ONNX's own."""

    @model_validator(mode="after")
    def _devices_are_gpus(self) -> "ModelSettings":
        if self.devices == "all":
            return self
        if self.device == "cpu":
            raise ValueError("devices are GPUs and device is cpu: set device to cuda or tensorrt, or leave devices out")
        if not self.devices or len(set(self.devices)) < len(self.devices):
            raise ValueError("devices names no GPU, or one of them twice: name each once, or leave devices out")
        return self

    @model_validator(mode="after")
    def _servers_to_be_away(self) -> "ModelSettings":
        if self.fallback.score is not None and self.backend == "onnx-runtime":
            raise ValueError("fallback is for model servers, which can be away; onnx-runtime runs in the scorer: leave it out")
        return self


class BatchingSettings(Section):
    latency_target_ms: float = Field(default=TARGET_MS, gt=0)
    """A batch grows for as long as its oldest event can be answered in this time (ms), longer where broker or model is busy."""
    max_events: int = Field(default=8_192, ge=1, le=100_000)
    """The most events in a batch; fewer where the records for a partition do not fit a produce request (1 MB); 1,000 always."""


class TracingSettings(Section):
    endpoint: Annotated[str, AfterValidator(registry_properties.check_url)] | None = Field(default=None, pattern=r"^https?://")
    """An OTLP/HTTP collector, `http://host:4318`: a span a batch; needs the extra `tracing`."""


class HttpSettings(Section):
    listen: Listen = "127.0.0.1:9464"
    """Where `/livez`, `/readyz` and `/metrics` are served; worker k adds k to the port (0: any free one)."""


class RolloutSettings(Section):
    listen: Listen = "127.0.0.1:9764"
    """Where `scorer rollout run` serves what a scorer does at `http.listen`."""
    key_file: Path | None = None
    """The private key that signs moves of the channel, for the controller, the console, `promote` and `rollback`."""
    password_file: Path | None = None
    """Holds the key's password; or set MODEL_REGISTRY_KEY_PASSWORD."""

    @model_validator(mode="after")
    def _password_of_a_key(self) -> "RolloutSettings":
        if self.password_file is not None and self.key_file is None:
            raise ValueError("password_file is for a key; name key_file, or leave it out")
        return self
