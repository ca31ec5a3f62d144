"""TensorFlow Serving over gRPC: versions in the server's model folder, PredictRequest with tensor_content.

A version's number is made from its digest, so that every scorer and every server name the same content alike. Only versions
that are asked for are served (`specific`), beside those that the server has already; the server's configuration is replaced by
that, so a server whose folder a scorer writes serves nothing else. A package that has only `remote.json` uses a version, or a
label, that others keep on a shared fleet, and loads and unloads nothing.
"""

import threading
from pathlib import Path
from typing import Any

import grpc

from model_registry.package import Package
from scorer.backends import BackendMissing, InferenceFailed, ModelRefused
from scorer.backends.servers.flight import Flight, NotReady, Tensors
from scorer.backends.servers.placement import Remote, fingerprint, place, read_remote, remove
from scorer.backends.servers.remote import (
    UNLOAD_SECONDS,
    RemoteModel,
    connect,
    for_each,
    neutral_row,
    open_on_all,
    signature_of,
)
from scorer.backends.servers.tensor_check import Stated, check
from scorer.backends.servers.tf_messages import DTYPES, M, decode, encode
from scorer.settings import ModelSettings

SAVED_MODEL = "saved_model"
LOADING, AVAILABLE, END = 20, 30, 50  # ModelVersionStatus.State
STATUS_SECONDS = 5.0  # for what a server answers at once, or not at all
SERVED = range(LOADING, AVAILABLE + 1)


class TensorFlowServing:
    """The backend. Raises BackendMissing where a setting is missing."""

    def __init__(self, settings: ModelSettings) -> None:
        if not settings.endpoints:
            raise BackendMissing("model.backend is 'tf-serving', but model.endpoints names no server", "such as 127.0.0.1:8500")
        self._settings = settings
        self._channels = connect(settings)

    def open(self, package: Package) -> RemoteModel:
        """Put the version on the servers, or find it there. Raises ModelRefused and BackendAway."""
        signature, named = signature_of(package), read_remote(package)
        folder = self._settings.server_folder
        managed = (package.folder / SAVED_MODEL).is_dir()
        if managed and folder is None:
            hint = "set model.server_folder to the folder that the servers load from"
            raise ModelRefused(f"the package brings a {SAVED_MODEL} for a server; {hint}")
        version = _Version(self._channels, package, named, folder if managed else None)
        if managed:
            version.place(package.folder / SAVED_MODEL)
        flight = Flight(version, self._settings.endpoints, self._settings.deadline_ms / 1_000, neutral_row(signature))
        wanted = list(dict.fromkeys(output.tensor for output in signature.outputs))
        version.outputs = wanted
        open_on_all(version, flight, self._settings.load_seconds, lambda at: check(signature, *version.stated(at)))
        return RemoteModel(signature, flight)


class _Version:
    """One version on the servers; see flight.Remote. `folder` is None where others load it."""

    def __init__(self, channels: list[grpc.Channel], package: Package, named: Remote, folder: Path | None) -> None:
        self.outputs: list[str] = []
        self._folder = folder
        self._spec = M["ModelSpec"](name=named.model or package.name, signature_name=named.signature)
        if folder is not None:
            self._spec.version.value = int(fingerprint(package)[:15], 16) + 1
        elif named.version:
            if not named.version.isdecimal():
                raise ModelRefused(f"remote.json: version {named.version!r} is no whole number, as TensorFlow Serving has them")
            self._spec.version.value = int(named.version)
        elif named.label:
            self._spec.version_label = named.label
        self._calls = [_Calls(channel) for channel in channels]
        self._loading = threading.Lock()

    @property
    def name(self) -> str:
        """See flight.Remote."""
        version = str(self._spec.version.value) if self._spec.HasField("version") else str(self._spec.version_label)
        return f"{self._spec.name}:{version}" if version else str(self._spec.name)

    def place(self, saved_model: Path) -> None:
        """The files into the servers' folder, before any server is asked to load them."""
        place(saved_model, self._target)

    @property
    def _target(self) -> Path:
        assert self._folder is not None
        return self._folder / str(self._spec.name) / str(self._spec.version.value)

    def send(self, at: int, tensors: Tensors, seconds: float) -> Any:
        """See flight.Remote."""
        request = M["PredictRequest"](model_spec=self._spec, output_filter=self.outputs)
        for name, tensor in tensors.items():
            encode(tensor, request.inputs[name])
        return self._calls[at].predict.future(request, timeout=seconds)

    def read(self, reply: Any) -> Tensors:
        """See flight.Remote."""
        missing = [name for name in self.outputs if name not in reply.outputs]
        if missing:
            raise InferenceFailed(f"the reply lacks the output {missing[0]!r}; it has {sorted(reply.outputs)}")
        return {name: decode(reply.outputs[name]) for name in self.outputs}

    def prepare(self, at: int, seconds: float) -> None:
        """See flight.Remote."""
        states = self._states(at, min(seconds, STATUS_SECONDS))
        if self._spec.HasField("version"):
            state, message = states.get(self._spec.version.value, (0, "the server does not know the version"))
        else:
            nothing = (0, "no version of the model is available")
            state, message = next((one for one in states.values() if one[0] == AVAILABLE), nothing)
        if state == AVAILABLE:
            return
        if state == END and message:
            raise NotReady(message, final=True)
        if self._folder is not None and state not in SERVED:
            self._serve(at, {v for v, (s, _) in states.items() if s in SERVED} | {self._spec.version.value}, seconds)
        raise NotReady(message or f"the version is in state {state}")

    def stated(self, at: int) -> tuple[Stated, Stated]:
        """Inputs and outputs of the called signature, as the server states them. Raises grpc.RpcError, ModelRefused."""
        request = M["GetModelMetadataRequest"](model_spec=self._spec, metadata_field=["signature_def"])
        packed = self._calls[at].metadata(request, timeout=STATUS_SECONDS).metadata["signature_def"].value
        signatures = M["SignatureDefMap"].FromString(packed).signature_def
        name = self._spec.signature_name
        if name not in signatures:
            raise ModelRefused(f"the SavedModel has no signature {name!r}, only {sorted(signatures)}; name one in remote.json")
        return _stated(signatures[name].inputs), _stated(signatures[name].outputs)

    def unload(self) -> None:
        """See flight.Remote."""
        if self._folder is None:
            return
        for_each(range(len(self._calls)), self._unload)
        remove(self._target)

    def _unload(self, at: int) -> None:
        """A server cannot be told to serve nothing: it lets go of its last version when the files are gone."""
        rest = {v for v, (s, _) in self._states(at, STATUS_SECONDS).items() if s in SERVED} - {self._spec.version.value}
        if rest:
            self._serve(at, rest, UNLOAD_SECONDS)

    def _states(self, at: int, seconds: float) -> dict[int, tuple[int, str]]:
        """State and error message by version; nothing where the server does not know the model."""
        spec = M["ModelSpec"](name=self._spec.name)
        try:
            reply = self._calls[at].status(M["GetModelStatusRequest"](model_spec=spec), timeout=seconds)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            return {}
        return {one.version: (one.state, one.status.error_message) for one in reply.model_version_status}

    def _serve(self, at: int, versions: set[int], seconds: float) -> None:
        """Let the server serve exactly these versions. Returns when it has loaded them. Raises grpc.RpcError, NotReady."""
        assert self._folder is not None
        request = M["ReloadConfigRequest"]()
        base = str(self._folder / self._spec.name)
        one = request.config.model_config_list.config.add(name=self._spec.name, base_path=base, model_platform="tensorflow")
        one.model_version_policy.specific.versions.extend(sorted(versions))
        with self._loading:
            reply = self._calls[at].reload(request, timeout=seconds)
        if reply.status.error_code:
            raise NotReady(reply.status.error_message, final=True)


class _Calls:
    """The methods of one server."""

    def __init__(self, channel: grpc.Channel) -> None:
        def method(service: str, name: str, reply: str) -> Any:
            return channel.unary_unary(
                f"/tensorflow.serving.{service}/{name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=M[reply].FromString,
            )

        self.predict = method("PredictionService", "Predict", "PredictResponse")
        self.metadata = method("PredictionService", "GetModelMetadata", "GetModelMetadataResponse")
        self.status = method("ModelService", "GetModelStatus", "GetModelStatusResponse")
        self.reload = method("ModelService", "HandleReloadConfigRequest", "ReloadConfigResponse")


def _stated(tensors: Any) -> Stated:
    names = {number: name for name, number in DTYPES.items()}
    return {
        name: (
            names.get(info.dtype, f"dtype {info.dtype}"),
            None if info.tensor_shape.unknown_rank else [d.size for d in info.tensor_shape.dim],
        )
        for name, info in tensors.items()
    }
