"""ONNX Runtime in this process: one session a model, one inference thread a worker, on CPU or on a CUDA device.

A device that was asked for and is not there is an error at start. Nothing falls back to the CPU in silence.
"""

import logging
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.package import Package
from model_registry.signature import Signature, SignatureError, TensorInput, derive
from scorer.backends import BackendMissing, InferenceFailed, ModelRefused

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read at import: nothing is collected, written or sent
try:
    import onnxruntime as ort
except ImportError as error:
    raise BackendMissing(
        "ONNX Runtime is not installed", "pip install 'scorestream[cpu]' (or [gpu] on a machine with an NVIDIA GPU)"
    ) from error

log = logging.getLogger(__name__)

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
NUMPY_TYPES = {
    "tensor(float16)": "float16",
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(int8)": "int8",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(uint8)": "uint8",
    "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32",
    "tensor(uint64)": "uint64",
    "tensor(bool)": "bool",
    "tensor(string)": "string",
}


class OnnxRuntime:
    """The backend. Raises BackendMissing where the device's execution provider is not installed."""

    def __init__(self, device: str) -> None:
        self._provider = PROVIDERS[device]
        available = ort.get_available_providers()
        if self._provider not in available:
            raise BackendMissing(
                f"model.device is {device!r}, but ONNX Runtime here has only {', '.join(available)}",
                "install scorestream[gpu] in an environment without [cpu], or set model.device: cpu",
            )
        ort.set_default_logger_severity(3)

    def open(self, package: Package) -> "OnnxModel":
        """Load `model.onnx`. Raises ModelRefused."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            session = ort.InferenceSession(str(package.model_path), options, providers=[self._provider])
        except Exception as error:
            raise ModelRefused(f"ONNX Runtime cannot load the model: {_first_line(error)}") from error
        if self._provider not in session.get_providers():
            raise ModelRefused(f"the model does not run on {self._provider}; ONNX Runtime offers {session.get_providers()}")
        return OnnxModel(session, package)


class OnnxModel:
    """An open ONNX model whose inputs and outputs agree with its signature."""

    def __init__(self, session: Any, package: Package) -> None:
        self._session = session
        self._signature = package.signature or _derived(session)
        _check_inputs(session, self._signature)
        self._outputs = _checked_outputs(session, self._signature)

    def signature(self) -> Signature:
        """See `Model`."""
        return self._signature

    def run(self, tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """See `Model`."""
        try:
            outputs = self._session.run(self._outputs, tensors)
        except Exception as error:
            raise InferenceFailed(_first_line(error)) from error
        rows = len(next(iter(tensors.values())))
        for name, output in zip(self._outputs, outputs, strict=True):
            if not isinstance(output, np.ndarray) or output.ndim == 0 or len(output) != rows:
                raise InferenceFailed(f"output {name!r} has shape {np.shape(output)}, not one row for each of {rows} events")
        return dict(zip(self._outputs, outputs, strict=True))

    def close(self) -> None:
        """See `Model`."""
        self._session = None


def _derived(session: Any) -> Signature:
    inputs = [(i.name, NUMPY_TYPES.get(i.type, i.type), list(i.shape)) for i in session.get_inputs()]
    outputs = [(o.name, NUMPY_TYPES.get(o.type, o.type), list(o.shape)) for o in session.get_outputs()]
    try:
        signature = derive(inputs, outputs)
    except SignatureError as error:
        raise ModelRefused(f"the package has no signature.json, and none can be derived: {error}") from error
    log.warning("the package has no signature.json; derived: %s", signature.to_json())
    return signature


def _check_inputs(session: Any, signature: Signature) -> None:
    """Names, dtypes and widths of the model's inputs against the signature's tensors."""
    declared = {tensor.tensor: tensor for tensor in signature.inputs}
    found = {i.name: i for i in session.get_inputs()}
    if set(declared) != set(found):
        raise ModelRefused(f"the signature feeds {sorted(declared)}, the model's inputs are {sorted(found)}")
    for name, tensor in declared.items():
        dtype = NUMPY_TYPES.get(found[name].type, found[name].type)
        if dtype != tensor.dtype:
            raise ModelRefused(f"input {name!r}: the signature says {tensor.dtype}, the model wants {dtype}")
        _check_shape(name, tensor, list(found[name].shape))


def _check_shape(name: str, tensor: TensorInput, shape: list[Any]) -> None:
    width = tensor.width
    fits = len(shape) == 2 and (not isinstance(shape[1], int) or shape[1] == width)
    if not fits:
        raise ModelRefused(f"input {name!r}: the signature gives (B, {width}), the model wants {shape}")
    if isinstance(shape[0], int):
        raise ModelRefused(f"input {name!r} has the fixed batch size {shape[0]}; export it with a dynamic first axis")


def _checked_outputs(session: Any, signature: Signature) -> list[str]:
    found = {o.name: o for o in session.get_outputs()}
    names = list(dict.fromkeys(output.tensor for output in signature.outputs))
    for name in names:
        if name not in found:
            raise ModelRefused(f"the signature reads output {name!r}, the model's outputs are {sorted(found)}")
        if found[name].type not in NUMPY_TYPES:
            raise ModelRefused(f"output {name!r} is a {found[name].type}, not a tensor; export it without ZipMap")
    return names


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:500] if str(error).strip() else type(error).__name__
