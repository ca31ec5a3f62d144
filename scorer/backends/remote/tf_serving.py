"""The backend for TensorFlow Serving over gRPC. Tensors are sent in `tensor_content` of a PredictRequest.

If a scorer loads versions on a server, the server must serve no other models, because the scorer replaces the server's whole
configuration. A package with only `remote.json` uses a version or a label on shared servers, and the scorer loads and unloads
nothing.
"""

# The number of a version is derived from its digest, so that every scorer and server uses the same number for the same content.
# The new configuration contains only this model, with the version policy `specific`: a list of the versions that are loaded
# already, and the new version.

import shutil
import threading
from pathlib import Path
from typing import Any

import grpc

from model_registry.package import Package
from scorer.backends.base import ModelRefused
from scorer.backends.remote.dispatch_requests import DeclaredTensors, Tensors, VersionNotReady
from scorer.backends.remote.model_repository import RemoteModelName, fingerprint
from scorer.backends.remote.remote_model import (
    STATUS_SECONDS,
    UNLOAD_SECONDS,
    RemoteBackend,
    for_each,
    select_outputs,
    unary_method,
)
from scorer.backends.remote.tf_codec import NAMES, M, decode, encode

# ModelVersionStatus.State
LOADING = 20
AVAILABLE = 30
END = 50
SERVED = range(LOADING, AVAILABLE + 1)


class TensorFlowServing(RemoteBackend):
    """The backend for TensorFlow Serving. Raises BackendMissing if a setting is missing."""

    NAME = "tf-serving"
    FILES = "saved_model"
    ENDPOINT = "127.0.0.1:8500"

    def version(self, package: Package, named: RemoteModelName, folder: Path | None, outputs: list[str]) -> "_TfServingVersion":
        return _TfServingVersion(self._channels, package, named, folder, outputs)


class _TfServingVersion:
    """One model version on servers of TensorFlow Serving; see `RemoteVersion`.

    `folder` is the folder that the servers load from; None if this process does not load the version.
    """

    def __init__(
        self, channels: list[grpc.Channel], package: Package, named: RemoteModelName, folder: Path | None, outputs: list[str]
    ) -> None:
        self._outputs = outputs
        self._folder = folder
        self._spec = M["ModelSpec"](name=named.model or package.name, signature_name=named.signature)
        if folder is not None:
            self._spec.version.value = int(fingerprint(package)[:15], 16) + 1
        elif named.version:
            if not named.version.isdecimal():
                raise ModelRefused(
                    f"remote.json: version {named.version!r} is not a whole number, which TensorFlow Serving requires"
                )
            self._spec.version.value = int(named.version)
        elif named.label:
            self._spec.version_label = named.label
        self.target = folder / self._spec.name / str(self._spec.version.value) if folder else None
        self._calls = [_TfServingCalls(channel) for channel in channels]
        self._loading = threading.Lock()

    def send(self, at: int, tensors: Tensors, seconds: float) -> Any:
        request = M["PredictRequest"](model_spec=self._spec, output_filter=self._outputs)
        for name, tensor in tensors.items():
            encode(tensor, request.inputs[name])
        return self._calls[at].predict.future(request, timeout=seconds)

    def read(self, reply: Any) -> Tensors:
        return {name: decode(tensor) for name, tensor in select_outputs(reply.outputs, self._outputs).items()}

    def prepare(self, at: int, seconds: float) -> None:
        states = self._states(at, min(seconds, STATUS_SECONDS))
        if self._spec.HasField("version"):
            state, message = states.get(self._spec.version.value, (0, "the server does not know the version"))
        else:
            nothing = (0, "no version of the model is available")
            state, message = next((one for one in states.values() if one[0] == AVAILABLE), nothing)
        if state == AVAILABLE:
            return
        if state == END and message:
            raise VersionNotReady(message, final=True)
        if self._folder is not None and state not in SERVED:
            self._serve(at, {v for v, (s, _) in states.items() if s in SERVED} | {self._spec.version.value}, seconds)
        raise VersionNotReady(message or f"the version is in state {state}")

    def stated(self, at: int) -> tuple[DeclaredTensors, DeclaredTensors]:
        """Return the inputs and the outputs that the server declares for the signature that requests use.

        Raises:
            grpc.RpcError: The server does not answer.
            ModelRefused: The SavedModel has no such signature.
        """
        request = M["GetModelMetadataRequest"](model_spec=self._spec, metadata_field=["signature_def"])
        packed = self._calls[at].metadata(request, timeout=STATUS_SECONDS).metadata["signature_def"].value
        signatures = M["SignatureDefMap"].FromString(packed).signature_def
        name = self._spec.signature_name
        if name not in signatures:
            raise ModelRefused(f"the SavedModel has no signature {name!r}, only {sorted(signatures)}; name one in remote.json")
        return _stated(signatures[name].inputs), _stated(signatures[name].outputs)

    def unload(self) -> None:
        if self.target is None:
            return
        for_each(range(len(self._calls)), self._unload)
        shutil.rmtree(self.target, ignore_errors=True)

    def _unload(self, at: int) -> None:
        """Unload the version from one server, unless it is the server's only version."""
        # A server must serve at least one.
        rest = {v for v, (s, _) in self._states(at, STATUS_SECONDS).items() if s in SERVED} - {self._spec.version.value}
        if rest:
            self._serve(at, rest, UNLOAD_SECONDS)

    def _states(self, at: int, seconds: float) -> dict[int, tuple[int, str]]:
        """Return state and error message of each version of the model; an empty dict if the server does not know the model."""
        spec = M["ModelSpec"](name=self._spec.name)
        try:
            reply = self._calls[at].status(M["GetModelStatusRequest"](model_spec=spec), timeout=seconds)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            return {}
        return {one.version: (one.state, one.status.error_message) for one in reply.model_version_status}

    def _serve(self, at: int, versions: set[int], seconds: float) -> None:
        """Configure the server to serve exactly these versions of the model, and wait until it has loaded them.

        Raises:
            grpc.RpcError: The server does not answer.
            VersionNotReady: The server rejects the configuration.
        """
        assert self._folder is not None
        request = M["ReloadConfigRequest"]()
        base = str(self._folder / self._spec.name)
        one = request.config.model_config_list.config.add(name=self._spec.name, base_path=base, model_platform="tensorflow")
        one.model_version_policy.specific.versions.extend(sorted(versions))
        with self._loading:
            reply = self._calls[at].reload(request, timeout=seconds)
        if reply.status.error_code:
            raise VersionNotReady(reply.status.error_message, final=True)


class _TfServingCalls:
    def __init__(self, channel: grpc.Channel) -> None:
        prediction = "/tensorflow.serving.PredictionService"
        models = "/tensorflow.serving.ModelService"
        self.predict = unary_method(channel, f"{prediction}/Predict", M["PredictResponse"])
        self.metadata = unary_method(channel, f"{prediction}/GetModelMetadata", M["GetModelMetadataResponse"])
        self.status = unary_method(channel, f"{models}/GetModelStatus", M["GetModelStatusResponse"])
        self.reload = unary_method(channel, f"{models}/HandleReloadConfigRequest", M["ReloadConfigResponse"])


def _stated(tensors: Any) -> DeclaredTensors:
    return {
        name: (
            NAMES.get(info.dtype, f"dtype {info.dtype}"),
            None if info.tensor_shape.unknown_rank else [d.size for d in info.tensor_shape.dim],
        )
        for name, info in tensors.items()
    }
