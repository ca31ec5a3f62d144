"""An unavailable GPU is reported with the first missing part: the provider library, the driver or the device."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scorer.backends.base import BackendMissing
from scorer.backends.onnx import gpu

CAPI = Path("/opt/capi")


def driver(devices: int = 1, error: int = 0) -> Any:
    """Return a scripted driver."""

    def set_value(target: Any, value: object) -> int:
        target.value = value
        return 0

    capability = {gpu.CAPABILITY_MAJOR: 9, gpu.CAPABILITY_MINOR: 0}
    return SimpleNamespace(
        cuInit=lambda _: error,
        cuDeviceGetCount=lambda target: set_value(target._obj, devices),
        cuDeviceGetName=lambda target, *_: set_value(target, b"A card"),
        cuDriverGetVersion=lambda target: set_value(target._obj, 13_010),
        cuDeviceGetAttribute=lambda target, attribute, _: set_value(target._obj, capability[attribute]),
    )


def loader(scripted_driver: Any, missing: str = "") -> Callable[[str], Any]:
    def load(name: str) -> Any:
        if missing and (missing == Path(name).name or (missing == "libnvinfer.so.10" and "tensorrt" in name)):
            raise OSError(f"{missing}: cannot open shared object file: No such file or directory")
        return scripted_driver if name == gpu.DRIVER else ctypes.CDLL(None)

    return load


def test_the_first_device_is_described(tmp_path: Path) -> None:
    version = tmp_path / "version"
    assert gpu.find_gpu("tensorrt", CAPI, loader(driver()), version) == gpu.Gpu("A card", "CUDA-13.1", "9.0")
    version.write_text("580.65.06\n")
    assert gpu.find_gpu("cuda", CAPI, loader(driver()), version).driver == "580.65.06"


@pytest.mark.parametrize(
    ("device", "scripted_driver", "missing", "message", "hint"),
    [
        ("cuda", driver(), "libonnxruntime_providers_cuda.so", "libonnxruntime_providers_cuda.so", "[gpu]"),
        ("cuda", driver(), "libcuda.so.1", "libcuda.so.1", "NVIDIA driver"),
        ("tensorrt", driver(), "libnvinfer.so.10", "libnvinfer.so.10", "tensorrt-cu13"),
        ("cuda", driver(devices=0), "", "no device", "NVIDIA driver"),
        ("cuda", driver(error=100), "", "error 100", "NVIDIA driver"),
    ],
)
def test_missing_parts_are_named_with_the_remedy(
    device: str, scripted_driver: Any, missing: str, message: str, hint: str
) -> None:
    with pytest.raises(BackendMissing, match=device) as raised:
        gpu.find_gpu(device, CAPI, loader(scripted_driver, missing))
    assert message in str(raised.value)
    assert hint in raised.value.hint
