"""The backend that runs models by ONNX Runtime in this process, on the CPU or an NVIDIA GPU.

If the configured device is missing, the start fails. Operators that TensorRT does not support run on CUDA, and operators that
CUDA does not support run on the CPU. Batches are padded to buckets (fixed batch sizes) on a GPU, or if `model.buckets` is set.
"""

# Each model has one session, and each worker has one inference thread. On the CPU, bound buffers would save only 2.5 us per
# call (measured), which is negligible for 64 or more events.

import logging
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from model_registry.cache import Cache
from model_registry.errors import RegistryError
from model_registry.extras import install_command
from model_registry.oci.digests import hex_digits
from model_registry.onnx_tools import declared_tensors, locale_hints, ort_extensions, runtime_requirements, safety
from model_registry.onnx_tools.declared_tensors import ModelTensor
from model_registry.onnx_tools.derive_signature import derive
from model_registry.package import Package
from model_registry.package.model_inputs import InputAssembler, neutral_rows
from model_registry.package.padding import add_batch_dimension
from model_registry.package.signature import Signature, SignatureError
from scorer.backends.base import BackendMissing, InferenceFailed, ModelRefused, check_rows
from scorer.backends.cost_curve import measure_cost_curve
from scorer.backends.onnx import gpu
from scorer.backends.onnx.batch_buckets import CANDIDATES, select_sizes
from scorer.backends.onnx.gpu import Gpu
from scorer.backends.onnx.run_timeout import RunTimeout, cpu_time, wall_time
from scorer.settings.model import ModelSettings

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read at import: nothing is collected, written or sent
try:
    import onnxruntime as ort
except ImportError as error:
    raise BackendMissing(
        "ONNX Runtime is not installed", f"{install_command('cpu')} (or [gpu] on a machine with an NVIDIA GPU)"
    ) from error

from scorer.backends.onnx.io_binding import BindableSession, BucketBinding, BufferDevice, has_fixed_shapes

log = logging.getLogger(__name__)

Result = TypeVar("Result")
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
ORDER = {
    "cpu": [PROVIDERS["cpu"]],
    "cuda": [PROVIDERS["cuda"], PROVIDERS["cpu"]],
    "tensorrt": [PROVIDERS["tensorrt"], PROVIDERS["cuda"], PROVIDERS["cpu"]],
}
"""The execution providers by device. Each provider runs the operators that the previous ones do not support."""
RECORD_ASSIGNMENT = "session.record_ep_graph_assignment_info"  # since ONNX Runtime 1.24; earlier versions ignore it
RUN_DEADLINES = 3.0  # time limit of a run as a multiple of `model.deadline_ms`; batch sizes are chosen for one deadline
NUMPY_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64"} | {
    f"tensor({name})": name
    for name in ("float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "string")
}


class OnnxRuntime:
    """The backend that runs models by ONNX Runtime. Raises BackendMissing if the device or a library is missing."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        device = settings.device
        if (provider := PROVIDERS[device]) not in (available := ort.get_available_providers()):
            raise BackendMissing(
                f"model.device is {device!r} ({provider}), but ONNX Runtime here has only {', '.join(available)}",
                f"{install_command('gpu')} in an environment without [cpu], or set model.device: cpu",
            )
        ort.set_default_logger_severity(3)
        self._gpu: Gpu | None = None
        if device != "cpu":
            ort.preload_dlls()  # CUDA and cuDNN from the wheels of [gpu], which are not in the search path of the loader
            self._gpu = gpu.find_gpu(device, Path(ort.__file__).parent / "capi")
            log.info(
                "GPU %s, driver %s; ONNX Runtime prefers the execution providers in the order %s",
                self._gpu.name,
                self._gpu.driver,
                " > ".join(ORDER[device]),
            )

    def open(self, package: Package) -> "OnnxModel":
        """Check the package's `model.onnx`, then load it. Raises ModelRefused."""
        if package.model_path.suffix != ".onnx":
            hint = "set model.backend to tf-serving or open-inference"
            raise ModelRefused(f"the package has {package.model_path.name} for a model server instead of a model.onnx; {hint}")
        if self._settings.device == "tensorrt" and package.signature is not None and package.signature.varies:
            raise ModelRefused(
                "the signature has fields of variable length, but TensorRT needs fixed lengths; set model.device: cuda"
            )
        library = _check_package(package, self._settings.device, self._settings.op_domains)
        if self._settings.device == "cuda":  # some models cannot run in CUDA graphs
            try:
                return self._opened(package, library, graphs=True)
            except ModelRefused as error:
                log.info("the model runs without CUDA graphs: %s", error)
        return self._opened(package, library, graphs=False)

    def _opened(self, package: Package, library: str | None, *, graphs: bool) -> "OnnxModel":
        watch = RunTimeout(RUN_DEADLINES * self._settings.deadline_ms / 1_000, wall_time if self._gpu else cpu_time)
        session = self._session(package, library, graphs)
        model = OnnxModel(session, package, watch, used_device(session, self._settings.device))
        sizes = self._settings.buckets or (CANDIDATES if self._gpu else ())
        if not sizes:
            return model
        if not model.bindable:
            if graphs or self._settings.buckets:
                raise ModelRefused(
                    "model.buckets does not support tensors of strings or of variable shape; remove model.buckets"
                )
            return model
        try:
            model.bind(self._device(graphs), sorted(set(sizes)), self._settings.load_seconds, choose=not self._settings.buckets)
        except InferenceFailed as error:
            raise ModelRefused(f"the model cannot be run in buckets of {', '.join(map(str, sizes))}: {error}") from error
        return model

    def _session(self, package: Package, library: str | None, graphs: bool) -> Any:
        device = self._settings.device
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.enable_mem_pattern = package.signature is None or not package.signature.varies  # one is kept for each shape
        stated: dict[str, dict[str, str]] = {name: {} for name in ORDER[device]}
        if device != "cpu":
            options.add_session_config_entry(RECORD_ASSIGNMENT, "1")
            stated[PROVIDERS["cuda"]] = {"enable_cuda_graph": "1" if graphs else "0"}
        if device == "tensorrt":
            stated[PROVIDERS["tensorrt"]] = self._engines(package)
        try:
            if library is not None:
                options.register_custom_ops_library(library)
            session = ort.InferenceSession(str(package.model_path), options, providers=list(stated.items()))
        except Exception as error:
            missing = locale_hints.hint(str(error))
            raise ModelRefused(
                f"ONNX Runtime cannot load the model: {_first_line(error)}{missing and f'; {missing}'}"
            ) from error
        if PROVIDERS[device] not in session.get_providers():
            raise ModelRefused(f"the model does not run on {PROVIDERS[device]}; ONNX Runtime offers {session.get_providers()}")
        return session

    def _engines(self, package: Package) -> dict[str, str]:
        """Return the options of TensorRT for a package: its cache folder, and the batch sizes that its engines must support."""
        # The cache folder has the engines and timings of one model version for one GPU, driver and release of ONNX Runtime.
        # With a signing policy there is no cache: a cached engine is not signed, so nothing would detect a replaced file.
        assert self._gpu is not None
        card = f"{self._gpu.capability}-{self._gpu.driver}-{ort.__version__}"
        options: dict[str, str] = {}
        if self._settings.policy is None:
            folder = Cache(self._settings.cache).root / "engines" / f"{hex_digits(package.digest)}-{card}"
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            options = {"trt_engine_cache_enable": "1", "trt_engine_cache_path": str(folder)}
            options |= {"trt_timing_cache_enable": "1", "trt_timing_cache_path": str(folder)}
        if package.signature is None:
            return options
        sizes = sorted(self._settings.buckets or CANDIDATES)
        for word, size in (("min", sizes[0]), ("opt", sizes[len(sizes) // 2]), ("max", sizes[-1])):
            given = [(one.tensor, [length or size for length in one.full_shape]) for one in package.signature.inputs]
            shapes = (f"{name}:{'x'.join(map(str, shape))}" for name, shape in given if shape)
            options[f"trt_profile_{word}_shapes"] = ",".join(shapes)
        return options

    def _device(self, graphs: bool) -> BufferDevice:
        if self._gpu is None:
            return BufferDevice()
        runtime = gpu.runtime_library(ort.cuda_version)
        return BufferDevice("cuda", graphs, lambda buffer: gpu.pin(buffer, runtime), lambda buffer: gpu.unpin(buffer, runtime))


class OnnxModel:
    """An open ONNX model, which has been checked against its signature.

    Args:
        session: the session of ONNX Runtime.
        package: the package of the version.
        watch: the object that enforces the time limit of each run.
        device: the device that runs the model: `tensorrt`, `cuda` or `cpu`.
    """

    def __init__(self, session: Any, package: Package, watch: RunTimeout, device: str) -> None:
        self._session = session
        self.device = device
        inputs = _tensors(session.get_inputs())
        outputs = _tensors(session.get_outputs())
        self._signature = package.signature or _derive_signature(inputs, outputs)
        if fault := declared_tensors.find_fault(self._signature, inputs, outputs):
            raise ModelRefused(fault)
        self._assembler = InputAssembler(self._signature)
        self._outputs = list(dict.fromkeys(output.tensor for output in self._signature.outputs))
        self._read = [one for one in outputs if one.name in self._outputs]
        self._watch = watch
        self._options = ort.RunOptions()
        self._bound: BucketBinding | None = None

    @property
    def bindable(self) -> bool:
        """Whether batches can be padded to fixed sizes (buckets): no input is a string, and all shapes are fixed."""
        strings = any(one.dtype == "string" for one in self._signature.inputs)
        return not strings and not self._signature.alone and has_fixed_shapes([*self._batched(), *self._read])

    @property
    def buckets(self) -> tuple[int, ...]:
        """The bucket sizes; empty if batches are not padded to buckets."""
        return self._bound.sizes if self._bound else ()

    def bind(self, device: BufferDevice, sizes: Sequence[int], seconds: float, *, choose: bool) -> None:
        """Allocate buckets and measure their run times. All later batches run in these buckets.

        Args:
            device: The device of the buffers.
            sizes: The bucket sizes, ascending.
            seconds: The time limit of each run that measures or warms up a bucket.
            choose: Whether to keep only the sizes that fit in the memory of the device and that `select_sizes` selects.

        Raises:
            InferenceFailed: The model cannot run in these buckets.
        """
        model = BindableSession(self._session, self._batched(), self._read, self._assembler.constants)
        bound = self._bound = _allocate("its constants", lambda: BucketBinding(model, device))
        run_seconds = self._watch.seconds
        self._watch.seconds = seconds
        row = neutral_rows(self._signature)

        def run(size: int) -> None:
            _allocate(f"{size} events", lambda: bound.add(size))
            self.run({name: np.repeat(one, size, axis=0) for name, one in row.items()})

        curve = measure_cost_curve(sizes, run, too_large=(InferenceFailed,) if choose else ())
        omitted = [size for size in sizes if size not in curve]
        if choose:
            bound.keep(select_sizes(curve))
            log.info(
                "using batch buckets of %s events; not using these sizes, which are too slow or too large for the device: %s",
                bound.sizes,
                omitted or "none",
            )
        else:
            for size in omitted:
                _allocate(f"{size} events", lambda size=size: bound.add(size))  # type: ignore[misc]
        self._watch.seconds = run_seconds

    def signature(self) -> Signature:
        """Return the signature of the model; see `Model.signature`."""
        return self._signature

    def run(self, tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Run the model on a batch, and return the outputs; see `Model.run`."""
        try:
            if self._bound is not None:
                return self._bound.run(self._assembler.batch_tensors(tensors), self._watch)
            given = self._assembler.all_tensors(tensors)
            outputs = self._watch(self._options, lambda: self._session.run(self._outputs, given, self._options))
        except InferenceFailed:
            raise
        except Exception as error:
            raise InferenceFailed(_first_line(error)) from error
        named_outputs = dict(zip(self._outputs, outputs, strict=True))
        if self._signature.alone:
            named_outputs = add_batch_dimension(self._signature, named_outputs)
        check_rows(named_outputs, len(next(iter(tensors.values()))))
        return named_outputs

    def close(self) -> None:
        """Free the session and the buckets; see `Model.close`."""
        if self._bound is not None:
            self._bound.free()
        self._bound = self._session = None

    def _batched(self) -> list[ModelTensor]:
        """Return the inputs that have a batch dimension, that is, all inputs except constant ones."""
        return [ModelTensor(one.tensor, one.dtype, one.full_shape) for one in self._signature.inputs if one.batch]


def used_device(session: Any, configured: str) -> str:
    """Return the device that runs the operators of a model: `tensorrt`, `cuda` or `cpu`.

    Args:
        session: the session of ONNX Runtime.
        configured: the setting `model.device`.
    """
    # Of several devices, the first in this order counts. If the configured device supports no operator of the model, the result
    # is `cpu`, although the session lists the GPU's execution provider. Before ONNX Runtime 1.24, the session does not report
    # which device runs an operator; the result is then the device of its first provider.
    used = set(session.get_providers()[:1])
    if configured != "cpu" and hasattr(session, "get_provider_graph_assignment_info"):
        used = {subgraph.ep_name for subgraph in session.get_provider_graph_assignment_info()} or used
    return next((device for device in ("tensorrt", "cuda", "cpu") if PROVIDERS[device] in used), configured)


def _check_package(package: Package, device: str, op_domains: Collection[str]) -> str | None:
    """Check a package as far as this is possible without loading its model.

    Returns:
        The path of the operator library that the model needs; None if it needs none.

    Raises:
        ModelRefused: The model cannot be served.
    """
    try:
        if lack := runtime_requirements.missing_requirement(package.annotations, onnxruntime=ort.__version__, device=device):
            raise ModelRefused(lack)
        operators = safety.check(package.model_path, package.signature, op_domains)
        library = ort_extensions.library(operators)
    except RegistryError as error:
        if error.transient:
            raise
        raise ModelRefused(str(error)) from error
    if lack := runtime_requirements.missing_requirement(
        runtime_requirements.derive_requirements(operators), onnxruntime=ort.__version__, device=device
    ):
        raise ModelRefused(lack)
    return library


def _allocate(content: str, allocate: Callable[[], Result]) -> Result:
    """Call `allocate` and return its result. Raises InferenceFailed if it fails.

    `content` completes the error message "no buffers for ...", such as `32 events`.
    """
    try:
        return allocate()
    except Exception as error:
        raise InferenceFailed(f"no buffers for {content}: {_first_line(error)}") from error


def _tensors(stated: Iterable[Any]) -> list[ModelTensor]:
    return [ModelTensor(one.name, NUMPY_TYPES.get(one.type, one.type), tuple(one.shape)) for one in stated]


def _derive_signature(inputs: list[ModelTensor], outputs: list[ModelTensor]) -> Signature:
    try:
        signature = derive(inputs, outputs)
    except SignatureError as error:
        raise ModelRefused(f"the package has no signature.json, and none can be derived: {error}") from error
    log.warning("the package has no signature.json; using a signature derived from the model: %s", signature.to_json())
    return signature


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:500] if str(error).strip() else type(error).__name__
