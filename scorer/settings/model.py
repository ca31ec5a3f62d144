"""The settings of the model (`model`): its registry, the backend that runs it, its limits, and its fallback."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ByteSize, Field, model_validator

from model_registry import suggestions
from model_registry.default_limits import DEFAULT_DOMAINS, MAX_BYTES, MAX_VERSION_BYTES
from publisher.kafka import tls_files
from publisher.runtime.configuration import Section

LONGEST_DEADLINE_MS = 2_500.0  # three missed deadlines in a row stay below the time limit of /livez
SHORTEST_DEADLINE_MS = 500.0  # lower limit of a deadline that is derived from the latency target
DEADLINE_TARGETS = 50.0  # a derived deadline is this multiple of the latency target
MAX_SCORE_NUMBERS = 10_000


class ServerTlsSettings(Section):
    """TLS of the connection to model servers."""

    enabled: bool = False
    """Use TLS to the model servers."""
    ca_file: Path | None = None
    """The certificate authorities of the servers (PEM); default: the system's."""
    certificate_file: Path | None = None
    """The client certificate of the scorer (PEM), for servers that require one."""
    key_file: Path | None = None
    """The private key of `certificate_file` (PEM)."""

    @model_validator(mode="after")
    def _usable(self) -> "ServerTlsSettings":
        files = {"ca_file": self.ca_file, "certificate_file": self.certificate_file, "key_file": self.key_file}
        given = [name for name, path in files.items() if path is not None]
        if given and not self.enabled:
            raise ValueError(f"{given[0]} needs TLS; set enabled: true, or leave {given[0]} out")
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file belong together; set both, or neither")
        for name, path in files.items():
            if path is None:
                continue
            try:
                if name != "key_file":
                    tls_files.certificates(path)
                elif self.certificate_file is not None:
                    tls_files.check_key(path, None, self.certificate_file)
            except OSError as error:
                hint = (
                    suggestions.file_question(path)
                    or "a relative path starts at the folder of the file that contains the setting"
                )
                raise ValueError(f"{name}: cannot read {path}: {error.strerror}; {hint}") from None
            except ValueError as error:
                raise ValueError(f"{name}: {path}: {error}") from None
        return self


def _check_score(score: Any) -> Any:
    """Return the score unchanged. Raises ValueError if it is empty or too large, or contains an invalid value.

    Valid values are texts and finite numbers. NaN, infinities, booleans and null are invalid.
    """
    if score is None:
        return None
    count = 0
    for value in _values(score):
        count += 1
        if isinstance(value, bool) or value is None or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"{value!r} is not a valid score: use only finite numbers and texts, as the model does")
    if not 0 < count <= MAX_SCORE_NUMBERS:
        raise ValueError(f"a score has from 1 to {MAX_SCORE_NUMBERS} numbers, but the given score has {count}")
    return score


def _values(score: Any) -> Iterator[Any]:
    inner = list(score.values()) if isinstance(score, dict) else score
    if isinstance(inner, list):
        for each in inner:
            yield from _values(each)
    else:
        yield inner


class FallbackSettings(Section):
    """The constant answer to events while all model servers are unavailable."""

    score: Annotated[Any, AfterValidator(_check_score)] = None
    """The score of events while all model servers are unavailable, in the shape of the model's scores. If it is not set, events
    wait for the servers."""
    decision: str | None = Field(default=None, max_length=200)
    """The decision that is written with `score`. It need not be a decision of the model."""
    after_ms: float = Field(default=5_000.0, ge=0, le=86_400_000)
    """How long all model servers must be unavailable before `score` is used (ms). Until then, events wait."""

    @model_validator(mode="after")
    def _decision_needs_score(self) -> "FallbackSettings":
        if self.score is None and self.decision is not None:
            raise ValueError("decision needs a score; set score too, or leave decision out")
        return self


class ModelSettings(Section):
    """The model's registry, the backend that runs it, and its limits."""

    source: str
    """The repository of the model in a registry: `HOST/PATH` or `oci:FOLDER`."""
    tag: str = "prod"
    """The channel to follow. A digest, `sha256:...`, fixes the version."""
    plain_http: bool | list[Annotated[str, Field(pattern=r"^[^\s/]+$")]] = False
    """Use HTTP without TLS: `true` for loopback hosts, or a list of hosts, `["registry:5000"]`."""
    ca_file: Path | None = None
    """Certificate authorities of the registry (PEM), which are trusted in addition to the system's."""
    poll_seconds: float = Field(default=10.0, ge=0.1, le=3_600)
    """How often the channel is polled (s)."""
    backend: Literal["onnx-runtime", "tf-serving", "open-inference"] = "onnx-runtime"
    """The runtime of the model; see `deploy/gpus.md` and `deploy/model-servers.md`."""
    device: Literal["cpu", "cuda", "tensorrt"] = "cpu"
    """The device of ONNX Runtime. `cuda` and `tensorrt` need the extra `gpu`; without a GPU the scorer does not start."""
    devices: list[Annotated[int, Field(ge=0)]] | Literal["all"] = "all"
    """The GPUs that the workers of `scorer run` use: their numbers among the visible GPUs, such as `[0, 1]`, or `all`. Each
    worker uses one GPU."""
    buckets: list[Annotated[int, Field(ge=1, le=100_000)]] = Field(default=[])
    """The sizes to which batches are padded. If the list is empty, batches are not padded on the CPU; on a GPU the sizes are
    selected by a measurement."""
    endpoints: list[Annotated[str, Field(pattern=r"^[^\s/]+:\d{1,5}$")]] = Field(default=[])
    """The model servers (gRPC, `host:port`) of `tf-serving` and `open-inference`."""
    server_folder: Path | None = None
    """The folder that the model servers load from. The scorer writes versions there."""
    server_tls: ServerTlsSettings = ServerTlsSettings()
    deadline_ms: float = Field(default=1_000.0, ge=1, le=LONGEST_DEADLINE_MS)
    """How long the model may take for a batch (ms); default: 50 latency targets, from 500 to 2500."""
    fallback: FallbackSettings = FallbackSettings()
    load_seconds: float = Field(default=120.0, gt=0)
    """The time limit of loading a version (s). It applies to the trial process, which loads each version first, to each run
    that measures a batch size, and to loading on a model server."""
    load_bytes: ByteSize | None = Field(default=None, ge=1)
    """The memory limit of a version's trial process; default: the container's free memory divided by the workers."""
    cache: Path | None = None
    """The folder of pulled versions; default: the user's cache. Several scorers may share the folder."""
    policy: Path | None = None
    """The policy file, with the trusted keys and the denied versions. If it is not set, every version is admitted."""
    cache_bytes: ByteSize = ByteSize(MAX_BYTES)
    """The maximum size of the cache (such as `20GiB`): at least three times the largest version. For a new version, the least
    recently used versions are deleted, except versions in use. A version that does not fit beside these is rejected."""
    max_bytes: ByteSize = Field(default=ByteSize(MAX_VERSION_BYTES), ge=1)
    """The largest version. A larger version is rejected. The size of a version in a container image is the size of the layers
    that are read, or of the content of `/models`."""
    op_domains: list[Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]+$")]] = Field(default_factory=lambda: list(DEFAULT_DOMAINS))
    """Operator domains that a model may use in addition to ONNX's own domains."""

    @model_validator(mode="after")
    def _devices_are_gpus(self) -> "ModelSettings":
        if self.devices == "all":
            return self
        if self.device == "cpu":
            raise ValueError("devices lists GPUs, but device is cpu: set device to cuda or tensorrt, or leave devices out")
        if not self.devices or len(set(self.devices)) < len(self.devices):
            raise ValueError("devices is empty or has a GPU twice: list each GPU once, or leave devices out")
        return self

    @model_validator(mode="after")
    def _fallback_needs_servers(self) -> "ModelSettings":
        if self.fallback.score is not None and self.backend == "onnx-runtime":
            raise ValueError(
                "fallback is for model servers, which can be unavailable; onnx-runtime runs in the scorer: leave fallback out"
            )
        return self
