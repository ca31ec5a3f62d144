"""The common part of the backends for model servers.

This module opens the channels to the servers, loads a version on every server, and returns a model that scores events there.
"""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import grpc

from model_registry import suggestions
from model_registry.onnx_tools.declared_tensors import UNKNOWN, ModelTensor, input_fault, output_fault
from model_registry.package import Package
from model_registry.package.model_inputs import InputAssembler, neutral_rows
from model_registry.package.signature import Signature
from scorer.backends.base import REMOTE, BackendMissing, BackendUnavailable, InferenceFailed, ModelRefused
from scorer.backends.remote.dispatch_requests import (
    GONE,
    OVERLOAD,
    BatchDispatcher,
    DeclaredTensors,
    RemoteVersion,
    Tensors,
    VersionNotReady,
    explain,
)
from scorer.backends.remote.model_repository import RemoteModelName, copy_folder, read_remote
from scorer.settings.model import ModelSettings

log = logging.getLogger(__name__)

Server = TypeVar("Server")
STATUS_SECONDS = 5.0  # the time limit of requests that a server answers at once
UNLOAD_SECONDS = 30.0
RETRY_SECONDS = 0.1  # between checks of a server that is loading
OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),  # dispatch_requests.py repeats requests
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


def for_each(servers: Iterable[Server], unload: Callable[[Server], object]) -> None:
    """Call `unload` for each server. If a call fails, log the error and continue; that server keeps the version."""
    for server in servers:
        try:
            unload(server)
        except (grpc.RpcError, VersionNotReady) as error:
            log.info("a model server did not unload a version and keeps it in memory: %s", explain(error))


def connect(settings: ModelSettings) -> list[grpc.Channel]:
    """Return a gRPC channel to each server. No connection is made yet. Raises BackendMissing if a TLS file cannot be read."""
    tls = settings.server_tls
    if not tls.enabled:
        return [grpc.insecure_channel(address, options=OPTIONS) for address in settings.endpoints]
    try:
        files = [path.read_bytes() if path else None for path in (tls.ca_file, tls.key_file, tls.certificate_file)]
    except OSError as error:
        hint = suggestions.file_question(Path(error.filename)) or "name existing files"
        raise BackendMissing(f"model.server_tls: cannot read {error.filename}: {error.strerror}", hint) from error
    credentials = grpc.ssl_channel_credentials(*files)
    return [grpc.secure_channel(address, credentials, options=OPTIONS) for address in settings.endpoints]


class RemoteBackend(ABC):
    """A backend whose models run on servers. Raises BackendMissing if `model.endpoints` is empty.

    FILES is the name of the folder in a package that contains the files for the servers. If a package has this folder, the
    backend copies it to `model.server_folder`, from which the servers read, and makes the servers load the version. Closing the
    model unloads the version. If a package does not have the folder, the version must already be on the servers.
    """

    NAME: ClassVar[str]
    FILES: ClassVar[str]
    ENDPOINT: ClassVar[str]  # an example

    def __init__(self, settings: ModelSettings) -> None:
        if not settings.endpoints:
            message = f"model.backend is {self.NAME!r}, but model.endpoints names no server"
            raise BackendMissing(message, f"list the model servers in model.endpoints, such as {self.ENDPOINT}")
        self._settings = settings
        self._channels = connect(settings)

    def open(self, package: Package) -> "RemoteModel":
        """Load the version on the servers, or use the version that is already on them.

        Raises ModelRefused and BackendUnavailable.
        """
        if (signature := package.signature) is None:
            raise ModelRefused("the package has no signature.json, which a model server needs; add a signature.json")
        if signature.alone:
            raise ModelRefused(f'the signature has "batch": false (one event at a time), which {self.NAME} does not support')
        settings = self._settings
        remote_name = read_remote(package)
        files = package.folder / self.FILES
        folder = settings.server_folder
        if files.is_dir() and folder is None:
            hint = "set model.server_folder to the folder that the servers load from"
            raise ModelRefused(f"the package contains a {self.FILES} for a model server; {hint}")
        outputs = list(dict.fromkeys(output.tensor for output in signature.outputs))
        version = self.version(package, remote_name, folder if files.is_dir() else None, outputs)
        if version.target is not None:
            copy_folder(files, version.target)
        assembler = InputAssembler(signature)
        control = assembler.batch_tensors(neutral_rows(signature))
        flight = BatchDispatcher(version, settings.endpoints, settings.deadline_ms / 1_000, control, assembler.constants)
        open_on_all(flight, settings.load_seconds, signature)
        return RemoteModel(signature, flight, assembler)

    @abstractmethod
    def version(self, package: Package, named: RemoteModelName, folder: Path | None, outputs: list[str]) -> RemoteVersion:
        """Create the object that calls a version on the servers of `self._channels`.

        Args:
            package: the package of the version.
            named: the names of the version on the servers, from the package's `remote.json`.
            folder: the folder that the servers load from, if the package contains files for a server; None otherwise.
            outputs: the names of the output tensors to request.

        Raises:
            ModelRefused: The servers cannot serve the version.
        """


def select_outputs(tensors: Tensors, outputs: Sequence[str]) -> Tensors:
    """Return only the outputs with these names. Raises InferenceFailed if an output is missing."""
    if missing := [name for name in outputs if name not in tensors]:
        raise InferenceFailed(f"the reply lacks the output {missing[0]!r}; it has {sorted(tensors)}")
    return {name: tensors[name] for name in outputs}


def unary_method(channel: grpc.Channel, path: str, reply: Any) -> Any:
    """Return a callable for the gRPC method at `path`; `reply` is the message class of its responses."""
    return channel.unary_unary(
        path, request_serializer=lambda message: message.SerializeToString(), response_deserializer=reply.FromString
    )


class RemoteModel:
    """An open model on servers: a version that is ready on at least one server."""

    device = REMOTE

    def __init__(self, signature: Signature, flight: BatchDispatcher, assembler: InputAssembler) -> None:
        self._signature = signature
        self._assembler = assembler
        self.flight = flight

    def signature(self) -> Signature:
        """Return the signature of the model; see `Model.signature`."""
        return self._signature

    def run(self, tensors: Tensors) -> Tensors:
        """Run the model on a batch, and return the outputs; see `Model.run`."""
        return self.flight.run(self._assembler.batch_tensors(tensors))

    def close(self) -> None:
        """Unload the version if this process loaded it on the servers. A server that does not answer keeps the version."""
        self.flight.remote.unload()


def open_on_all(flight: BatchDispatcher, load_seconds: float, signature: Signature) -> None:
    """Wait until the version on each server is ready, matches the signature, and has scored one row.

    `flight` dispatches requests to the servers. Servers that do not answer are skipped as soon as one server is ready.

    Raises:
        BackendUnavailable: No server is ready after `load_seconds`.
        ModelRefused: A server cannot load the version, or the tensors on a server do not match the signature.
    """
    # A skipped server gets no requests until a probe succeeds.
    try:
        missing = _open_until(flight, time.monotonic() + load_seconds, signature)
    except ModelRefused:
        flight.remote.unload()  # otherwise the servers keep a version that is not served
        raise
    for at, error in missing.items():
        flight.endpoints.failed(at, time.monotonic(), explain(error))
    if len(missing) == len(flight.endpoints.all):
        raise BackendUnavailable(
            f"no server has the version after {load_seconds:g} s: {flight.endpoints.describe_faults()}", RETRY_SECONDS
        )


def _open_until(flight: BatchDispatcher, until: float, signature: Signature) -> dict[int, grpc.RpcError | VersionNotReady]:
    """Prepare the version on all servers. Return the errors of the servers that are not ready, by server number.

    `flight` dispatches requests to the servers. After `until` (monotonic seconds), servers that are not ready
    are not tried again.
    """
    # The function waits for servers that are loading the version. It waits for servers that do not answer only until one server
    # is ready.
    servers = len(flight.endpoints.all)
    waiting = list(range(servers))
    while True:
        missing: dict[int, grpc.RpcError | VersionNotReady] = {}
        for at in waiting:
            left = max(RETRY_SECONDS, until - time.monotonic())
            try:
                flight.remote.prepare(at, left)
                check_tensors(signature, *flight.remote.stated(at))
                flight.warm(at, left)
            except (grpc.RpcError, VersionNotReady) as error:
                _refuse_if_final(error)
                missing[at] = error
        waiting = list(missing)
        loading = len(missing) == servers or any(isinstance(error, VersionNotReady) for error in missing.values())
        if not missing or not loading or time.monotonic() >= until:
            return missing
        threading.Event().wait(RETRY_SECONDS)


def check_tensors(signature: Signature, inputs: DeclaredTensors, outputs: DeclaredTensors) -> None:
    """Check that the tensors that a server declares match the signature. A server that declares no tensors is accepted.

    Raises ModelRefused with a message that names the tensor and describes the mismatch.
    """
    declared = {tensor.tensor: tensor for tensor in signature.inputs}
    if inputs and set(declared) != set(inputs):
        raise ModelRefused(f"the signature feeds the inputs {sorted(declared)}, but the model has the inputs {sorted(inputs)}")
    for name, (dtype, shape) in inputs.items():
        given = declared[name]
        if fault := input_fault(given, ModelTensor(name, dtype, given.full_shape if shape is None else tuple(shape))):
            raise ModelRefused(fault)
    for output in signature.outputs:
        if outputs and output.tensor not in outputs:
            raise ModelRefused(f"the signature reads output {output.tensor!r}, but the model has the outputs {sorted(outputs)}")
        dtype, stated = outputs.get(output.tensor, (UNKNOWN, None))
        if output.index is None and (
            fault := output_fault(signature, output, ModelTensor(output.tensor, dtype, tuple(stated or ())))
        ):
            raise ModelRefused(fault)


def _refuse_if_final(error: grpc.RpcError | VersionNotReady) -> None:
    if isinstance(error, VersionNotReady):
        if error.final:
            raise ModelRefused(f"the model server cannot load the version: {error}") from error
    elif error.code() is grpc.StatusCode.UNIMPLEMENTED:
        raise ModelRefused(
            f"the model server does not have the API of model.backend: {explain(error)}; correct model.backend or "
            "model.endpoints"
        ) from error
    elif error.code() not in (*GONE, *OVERLOAD):
        raise ModelRefused(f"the model server rejects the version: {explain(error)}") from error
