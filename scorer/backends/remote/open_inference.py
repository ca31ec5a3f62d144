"""The backend for servers of the Open Inference Protocol (KServe v2) over gRPC: MLServer, Triton and others.

A version with files in the package's folder `repository/` becomes a separate model on the server, named `<name>-<fingerprint>`.
A package with only `remote.json` uses a model that is already on the servers. Tensors are sent as raw bytes.
"""

# These servers load and unload models, not versions. The scorer copies the folder to the server's repository.

import shutil
from pathlib import Path
from typing import Any

import grpc
from numpy.typing import NDArray

from model_registry.package import Package
from scorer.backends.base import InferenceFailed, ModelRefused
from scorer.backends.remote.dispatch_requests import GONE, OVERLOAD, DeclaredTensors, Tensors, VersionNotReady, explain
from scorer.backends.remote.model_repository import RemoteModelName, fingerprint
from scorer.backends.remote.oip_codec import NAMES, M, describe, pack, unpack
from scorer.backends.remote.remote_model import (
    STATUS_SECONDS,
    UNLOAD_SECONDS,
    RemoteBackend,
    for_each,
    select_outputs,
    unary_method,
)


class OpenInference(RemoteBackend):
    """The backend for servers of the Open Inference Protocol. Raises BackendMissing if a setting is missing."""

    NAME = "open-inference"
    FILES = "repository"
    ENDPOINT = "127.0.0.1:8081"

    def version(self, package: Package, named: RemoteModelName, folder: Path | None, outputs: list[str]) -> "_OipVersion":
        if named.label:
            raise ModelRefused(f"remote.json: label {named.label!r}: the Open Inference Protocol has no labels; name a version")
        model = named.model or package.name
        if folder is None:
            return _OipVersion(self._channels, model, named.version, None, outputs)
        target = folder / f"{model}-{fingerprint(package)[:12]}"
        return _OipVersion(self._channels, target.name, "", target, outputs)


class _OipVersion:
    """One model version on servers of the Open Inference Protocol; see `RemoteVersion`."""

    def __init__(self, channels: list[grpc.Channel], model: str, version: str, target: Path | None, outputs: list[str]) -> None:
        self._calls = [_OipCalls(channel) for channel in channels]
        self._model = model
        self._version = version
        self.target = target
        self._outputs = outputs

    def send(self, at: int, tensors: Tensors, seconds: float) -> Any:
        request = M["ModelInferRequest"](model_name=self._model, model_version=self._version)
        for name, tensor in tensors.items():
            request.inputs.add(name=name, datatype=describe(tensor), shape=tensor.shape)
            request.raw_input_contents.append(pack(tensor))
        for name in self._outputs:
            request.outputs.add(name=name)
        return self._calls[at].infer.future(request, timeout=seconds)

    def read(self, reply: Any) -> Tensors:
        raw = list(reply.raw_output_contents) or [None] * len(reply.outputs)
        decoded: dict[str, NDArray[Any]] = {}
        for output, content in zip(reply.outputs, raw, strict=True):
            try:
                decoded[output.name] = unpack(output, content)
            except (ValueError, UnicodeDecodeError) as error:
                raise InferenceFailed(f"output {output.name!r} cannot be read: {error}") from error
        return select_outputs(decoded, self._outputs)

    def prepare(self, at: int, seconds: float) -> None:
        if self._is_ready(at, min(seconds, STATUS_SECONDS)):
            return
        if self.target is None:
            raise VersionNotReady(f"the model {self._model} is not ready")
        try:
            self._calls[at].load(M["RepositoryModelLoadRequest"](model_name=self._model), timeout=seconds)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND and error.code() in (*GONE, *OVERLOAD):
                raise
            raise VersionNotReady(f"{explain(error)} (does it load from {self.target.parent}?)", final=True) from error
        if not self._is_ready(at, seconds):
            raise VersionNotReady(f"the model {self._model} is loaded, but not ready")

    def stated(self, at: int) -> tuple[DeclaredTensors, DeclaredTensors]:
        """Return the inputs and outputs that the server declares. Both are empty if it declares none. Raises grpc.RpcError."""
        reply = self._calls[at].metadata(M["ModelRequest"](name=self._model, version=self._version), timeout=STATUS_SECONDS)
        return _stated(reply.inputs), _stated(reply.outputs)

    def unload(self) -> None:
        if self.target is None:
            return
        request = M["RepositoryModelLoadRequest"](model_name=self._model)
        for_each(self._calls, lambda calls: calls.unload(request, timeout=UNLOAD_SECONDS))
        shutil.rmtree(self.target, ignore_errors=True)

    def _is_ready(self, at: int, seconds: float) -> bool:
        """Return whether the model is ready; False if the server does not know it.

        Raises grpc.RpcError if the server is unavailable or overloaded.
        """
        # Some servers answer the request for an unknown model with false, others with an error.
        try:
            reply = self._calls[at].ready(M["ModelRequest"](name=self._model, version=self._version), timeout=seconds)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND and error.code() in (*GONE, *OVERLOAD):
                raise
            return False
        return bool(reply.ready)


class _OipCalls:
    def __init__(self, channel: grpc.Channel) -> None:
        service = "/inference.GRPCInferenceService"
        self.infer = unary_method(channel, f"{service}/ModelInfer", M["ModelInferResponse"])
        self.ready = unary_method(channel, f"{service}/ModelReady", M["ModelReadyResponse"])
        self.metadata = unary_method(channel, f"{service}/ModelMetadata", M["ModelMetadataResponse"])
        self.load = unary_method(channel, f"{service}/RepositoryModelLoad", M["Empty"])
        self.unload = unary_method(channel, f"{service}/RepositoryModelUnload", M["Empty"])


def _stated(tensors: Any) -> DeclaredTensors:
    return {one.name: (NAMES.get(one.datatype, one.datatype), list(one.shape)) for one in tensors}
