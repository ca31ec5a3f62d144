"""ONNX Runtime in this process: one session a model, one inference thread a worker, on CPU or on a CUDA device.

A device that was asked for and is not there is an error at start. Nothing falls back to the CPU in silence.
"""

import logging
import os
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry import needs, safety, tensors
from model_registry.derive import derive
from model_registry.errors import RegistryError
from model_registry.package import Package
from model_registry.signature import Signature, SignatureError
from model_registry.tensors import Tensor
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

    def __init__(self, device: str, op_domains: Collection[str] = ()) -> None:
        self._device = device
        self._op_domains = op_domains
        self._provider = PROVIDERS[device]
        available = ort.get_available_providers()
        if self._provider not in available:
            raise BackendMissing(
                f"model.device is {device!r}, but ONNX Runtime here has only {', '.join(available)}",
                "install scorestream[gpu] in an environment without [cpu], or set model.device: cpu",
            )
        ort.set_default_logger_severity(3)
        if device == "cuda":
            ort.preload_dlls()  # CUDA and cuDNN from the wheels that [gpu] brings: no loader looks there by itself

    def open(self, package: Package) -> "OnnxModel":
        """Check `model.onnx`, then load it. Raises ModelRefused."""
        if package.model_path.suffix != ".onnx":
            hint = "model.backend tf-serving or open-inference serves it"
            raise ModelRefused(f"the package has no model.onnx but {package.model_path.name}, for a model server; {hint}")
        _checked(package, self._device, self._op_domains)
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
        inputs, outputs = _tensors(session.get_inputs()), _tensors(session.get_outputs())
        self._signature = package.signature or _derived(inputs, outputs)
        if fault := tensors.fault(self._signature, inputs, outputs):
            raise ModelRefused(fault)
        self._outputs = list(dict.fromkeys(output.tensor for output in self._signature.outputs))

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


def _checked(package: Package, device: str, op_domains: Collection[str]) -> None:
    """Settle what can be settled before anything of the model is loaded. Raises ModelRefused."""
    try:
        if lack := needs.missing(needs.read(package.annotations), onnxruntime=ort.__version__, device=device):
            raise ModelRefused(lack)
        found = safety.check(package.model_path, package.signature, op_domains)
    except RegistryError as error:
        if error.transient:
            raise
        raise ModelRefused(str(error)) from error
    if lack := needs.missing(needs.of(found), onnxruntime=ort.__version__, device=device):
        raise ModelRefused(lack)


def _tensors(stated: Iterable[Any]) -> list[Tensor]:
    return [Tensor(one.name, NUMPY_TYPES.get(one.type, one.type), tuple(one.shape)) for one in stated]


def _derived(inputs: list[Tensor], outputs: list[Tensor]) -> Signature:
    try:
        signature = derive(inputs, outputs)
    except SignatureError as error:
        raise ModelRefused(f"the package has no signature.json, and none can be derived: {error}") from error
    log.warning("the package has no signature.json; derived: %s", signature.to_json())
    return signature


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:500] if str(error).strip() else type(error).__name__
