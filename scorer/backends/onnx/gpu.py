"""Detection of the configured GPU, and loading of each library that ONNX Runtime needs for the GPU.

If a library is missing, this module raises an error that names the library.
"""

# ONNX Runtime itself would run on the CPU without an error.

import contextlib
import ctypes
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.extras import install_command
from scorer.backends.base import BackendMissing

LIBRARIES = {
    "cuda": ("libonnxruntime_providers_cuda.so",),
    "tensorrt": ("libonnxruntime_providers_cuda.so", "libonnxruntime_providers_tensorrt.so"),
}
DRIVER = "libcuda.so.1"
MODULE = Path("/sys/module/nvidia/version")
RUNTIME = "libcudart.so"
# CUdevice_attribute
CAPABILITY_MAJOR = 75
CAPABILITY_MINOR = 76
HINTS = {
    DRIVER: "run on a machine with an NVIDIA driver (in a container: with the NVIDIA runtime), or set model.device: cpu",
    "libnvinfer": "pip install 'tensorrt-cu13<11', or set model.device: cuda",
    "": f"{install_command('gpu')} in an environment without [cpu], or set model.device: cpu",
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """The first visible GPU, as its driver describes it.

    Attributes:
        name: the name of the device.
        driver: the version of the driver, such as 580.65.06; if unknown, the CUDA version that the driver supports.
        capability: the compute capability, such as 9.0.
    """

    name: str
    driver: str
    capability: str


def find_gpu(device: str, libraries: Path, load: Callable[[str], Any] = ctypes.CDLL, module: Path = MODULE) -> Gpu:
    """Load the libraries that a device needs, and return the first GPU.

    Args:
        device: `cuda` or `tensorrt`.
        libraries: the folder of ONNX Runtime's libraries.
        load: loads a library by its path or name.
        module: the file from which the version of the driver is read.

    Raises:
        BackendMissing: A library cannot be loaded, or the driver reports an error.
    """
    if device == "tensorrt":
        with contextlib.suppress(ImportError):
            importlib.import_module(
                "tensorrt_libs"
            )  # loads TensorRT from its wheel, which is not in the search path of the loader
    for library in ("libonnxruntime_providers_shared.so", *LIBRARIES[device]):
        _load(device, str(libraries / library), load)
    driver = load_driver(device, load)
    count_gpus(device, driver)
    return _describe(driver, module)


def load_driver(device: str, load: Callable[[str], Any] = ctypes.CDLL) -> Any:
    """Load the NVIDIA driver's library. Raises BackendMissing."""
    return _load(device, DRIVER, load)


def count_gpus(device: str, driver: Any) -> int:
    """Initialize the driver, and return the number of GPUs that CUDA_VISIBLE_DEVICES makes visible.

    Raises BackendMissing if no GPU is visible.
    """
    number = ctypes.c_int()
    if (code := driver.cuInit(0)) or (code := driver.cuDeviceGetCount(ctypes.byref(number))) or not number.value:
        reason = f"error {code} of the NVIDIA driver" if code else "an NVIDIA driver and no device"
        raise BackendMissing(f"model.device is {device!r}, but there is {reason}", HINTS[DRIVER])
    return number.value


def _load(device: str, library: str, load: Callable[[str], Any]) -> Any:
    try:
        return load(library)
    except OSError as error:
        hint = next(hint for name, hint in HINTS.items() if name in str(error))
        raise BackendMissing(f"model.device is {device!r}, but a library cannot be loaded: {error}", hint) from error


def _describe(driver: Any, module: Path) -> Gpu:
    name = ctypes.create_string_buffer(100)
    version = ctypes.c_int()
    number = ctypes.c_int()
    driver.cuDeviceGetName(name, len(name), 0)
    driver.cuDriverGetVersion(ctypes.byref(version))
    parts = []
    for attribute in (CAPABILITY_MAJOR, CAPABILITY_MINOR):
        driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, 0)
        parts.append(str(number.value))
    driver_version = f"CUDA-{version.value // 1_000}.{version.value % 1_000 // 10}"
    with contextlib.suppress(OSError):
        driver_version = module.read_text().strip()
    return Gpu(name.value.decode(), driver_version, ".".join(parts))


def pin(buffer: NDArray[np.generic], runtime: Any) -> bool:
    """Pin (page-lock) host memory, so that copies from it to the device run at full speed.

    Call `unpin` before the memory is freed, unless the memory lives as long as the process. `runtime` is CUDA's runtime
    library.

    Returns:
        Whether CUDA pinned the memory. Memory that is not pinned can be used, but copies are slower.
    """
    return bool(runtime.cudaHostRegister(ctypes.c_void_p(buffer.ctypes.data), ctypes.c_size_t(buffer.nbytes), 0) == 0)


def unpin(buffer: NDArray[np.generic], runtime: Any) -> None:
    """Unpin host memory before it is freed."""
    runtime.cudaHostUnregister(ctypes.c_void_p(buffer.ctypes.data))


def runtime_library(version: str) -> Any:
    """Return the CUDA runtime library that ONNX Runtime has loaded. `version` is the CUDA version, such as 13.0."""
    return ctypes.CDLL(f"{RUNTIME}.{version.partition('.')[0]}")
