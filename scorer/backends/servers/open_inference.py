"""Servers of the Open Inference Protocol (KServe v2) over gRPC, tensors as raw bytes: MLServer, Triton and others.

A version that the package brings (`repository/`: what the server's model repository holds under the model's name) is a model
of its own on the server, `<name>-<fingerprint>`, since these servers load and unload models, not versions. A package that has
only `remote.json` uses a model that others keep there.
"""

from pathlib import Path
from typing import Any

import grpc
from numpy.typing import NDArray

from model_registry.package import Package
from scorer.backends import BackendMissing, InferenceFailed, ModelRefused
from scorer.backends.servers.flight import GONE, OVERLOAD, Flight, NotReady, Tensors, explain
from scorer.backends.servers.oip_messages import NAMES, M, describe, pack, unpack
from scorer.backends.servers.placement import fingerprint, place, read_remote, remove
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
from scorer.settings import ModelSettings

REPOSITORY = "repository"
STATUS_SECONDS = 5.0  # for what a server answers at once, or not at all


class OpenInference:
    """The backend. Raises BackendMissing where a setting is missing."""

    def __init__(self, settings: ModelSettings) -> None:
        if not settings.endpoints:
            message = "model.backend is 'open-inference', but model.endpoints names no server"
            raise BackendMissing(message, "such as 127.0.0.1:8081")
        self._settings = settings
        self._channels = connect(settings)

    def open(self, package: Package) -> RemoteModel:
        """Put the version on the servers, or find it there. Raises ModelRefused and BackendAway."""
        signature, named = signature_of(package), read_remote(package)
        if named.label:
            raise ModelRefused(f"remote.json: label {named.label!r}: this protocol has no labels; name a version")
        folder = self._settings.server_folder
        source = package.folder / REPOSITORY
        outputs = list(dict.fromkeys(output.tensor for output in signature.outputs))
        if source.is_dir():
            if folder is None:
                hint = "set model.server_folder to the folder that the servers load from"
                raise ModelRefused(f"the package brings a {REPOSITORY} for a server; {hint}")
            target = folder / f"{named.model or package.name}-{fingerprint(package)[:12]}"
            place(source, target)
            version = _Version(self._channels, target.name, "", target, outputs)
        else:
            version = _Version(self._channels, named.model or package.name, named.version, None, outputs)
        flight = Flight(version, self._settings.endpoints, self._settings.deadline_ms / 1_000, neutral_row(signature))
        open_on_all(version, flight, self._settings.load_seconds, lambda at: check(signature, *version.stated(at)))
        return RemoteModel(signature, flight)


class _Version:
    """One version on the servers; see flight.Remote. `target` is its folder, None where others load it."""

    def __init__(self, channels: list[grpc.Channel], model: str, version: str, target: Path | None, outputs: list[str]) -> None:
        self._calls = [_Calls(channel) for channel in channels]
        self._model = model
        self._version = version
        self._target = target
        self._outputs = outputs

    @property
    def name(self) -> str:
        """See flight.Remote."""
        return f"{self._model}:{self._version}" if self._version else self._model

    def send(self, at: int, tensors: Tensors, seconds: float) -> Any:
        """See flight.Remote."""
        request = M["ModelInferRequest"](model_name=self._model, model_version=self._version)
        for name, tensor in tensors.items():
            request.inputs.add(name=name, datatype=describe(tensor), shape=tensor.shape)
            request.raw_input_contents.append(pack(tensor))
        for name in self._outputs:
            request.outputs.add(name=name)
        return self._calls[at].infer.future(request, timeout=seconds)

    def read(self, reply: Any) -> Tensors:
        """See flight.Remote."""
        raw = list(reply.raw_output_contents) or [None] * len(reply.outputs)
        found: dict[str, NDArray[Any]] = {}
        for output, content in zip(reply.outputs, raw, strict=True):
            try:
                found[output.name] = unpack(output, content)
            except (ValueError, UnicodeDecodeError) as error:
                raise InferenceFailed(f"output {output.name!r} cannot be read: {error}") from error
        missing = [name for name in self._outputs if name not in found]
        if missing:
            raise InferenceFailed(f"the reply lacks the output {missing[0]!r}; it has {sorted(found)}")
        return {name: found[name] for name in self._outputs}

    def prepare(self, at: int, seconds: float) -> None:
        """See flight.Remote."""
        if self._is_ready(at, min(seconds, STATUS_SECONDS)):
            return
        if self._target is None:
            raise NotReady(f"the model {self._model} is not ready")
        try:
            self._calls[at].load(M["RepositoryModelLoadRequest"](model_name=self._model), timeout=seconds)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND and error.code() in (*GONE, *OVERLOAD):
                raise
            raise NotReady(f"{explain(error)} (does it load from {self._target.parent}?)", final=True) from error
        if not self._is_ready(at, seconds):
            raise NotReady(f"the model {self._model} is loaded, but not ready")

    def stated(self, at: int) -> tuple[Stated, Stated]:
        """Inputs and outputs as the server states them, if it does. Raises grpc.RpcError."""
        reply = self._calls[at].metadata(M["ModelRequest"](name=self._model, version=self._version), timeout=STATUS_SECONDS)
        return _stated(reply.inputs), _stated(reply.outputs)

    def unload(self) -> None:
        """See flight.Remote."""
        if self._target is None:
            return
        request = M["RepositoryModelLoadRequest"](model_name=self._model)
        for_each(self._calls, lambda calls: calls.unload(request, timeout=UNLOAD_SECONDS))
        remove(self._target)

    def _is_ready(self, at: int, seconds: float) -> bool:
        """Servers differ in what they say of a model that they do not know: false, or some error."""
        try:
            reply = self._calls[at].ready(M["ModelRequest"](name=self._model, version=self._version), timeout=seconds)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND and error.code() in (*GONE, *OVERLOAD):
                raise
            return False
        return bool(reply.ready)


class _Calls:
    """The methods of one server."""

    def __init__(self, channel: grpc.Channel) -> None:
        def method(name: str, reply: str) -> Any:
            return channel.unary_unary(
                f"/inference.GRPCInferenceService/{name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=M[reply].FromString,
            )

        self.infer = method("ModelInfer", "ModelInferResponse")
        self.ready = method("ModelReady", "ModelReadyResponse")
        self.metadata = method("ModelMetadata", "ModelMetadataResponse")
        self.load = method("RepositoryModelLoad", "Empty")
        self.unload = method("RepositoryModelUnload", "Empty")


def _stated(tensors: Any) -> Stated:
    return {one.name: (NAMES.get(one.datatype, one.datatype), list(one.shape)) for one in tensors}
