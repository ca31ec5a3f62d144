"""A GPU that is not there is named by what is missing, in the order in which it is looked for."""

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

    def told(into: Any, value: object) -> int:
        into.value = value
        return 0

    capability = {gpu.CAPABILITY_MAJOR: 9, gpu.CAPABILITY_MINOR: 0}
    return SimpleNamespace(
        cuInit=lambda _: error,
        cuDeviceGetCount=lambda into: told(into._obj, devices),
        cuDeviceGetName=lambda into, *_: told(into, b"A card"),
        cuDriverGetVersion=lambda into: told(into._obj, 13_010),
        cuDeviceGetAttribute=lambda into, attribute, _: told(into._obj, capability[attribute]),
    )


def loader(answers: Any, missing: str = "") -> Callable[[str], Any]:
    def load(name: str) -> Any:
        if missing and (missing == Path(name).name or (missing == "libnvinfer.so.10" and "tensorrt" in name)):
            raise OSError(f"{missing}: cannot open shared object file: No such file or directory")
        return answers if name == gpu.DRIVER else ctypes.CDLL(None)

    return load


def test_the_first_device_is_described(tmp_path: Path) -> None:
    version = tmp_path / "version"
    assert gpu.find_gpu("tensorrt", CAPI, loader(driver()), version) == gpu.Gpu("A card", "CUDA-13.1", "9.0")
    version.write_text("580.65.06\n")
    assert gpu.find_gpu("cuda", CAPI, loader(driver()), version).driver == "580.65.06"


@pytest.mark.parametrize(
    ("device", "answers", "missing", "said", "way_out"),
    [
        ("cuda", driver(), "libonnxruntime_providers_cuda.so", "libonnxruntime_providers_cuda.so", "[gpu]"),
        ("cuda", driver(), "libcuda.so.1", "libcuda.so.1", "NVIDIA driver"),
        ("tensorrt", driver(), "libnvinfer.so.10", "libnvinfer.so.10", "tensorrt-cu13"),
        ("cuda", driver(devices=0), "", "no device", "NVIDIA driver"),
        ("cuda", driver(error=100), "", "error 100", "NVIDIA driver"),
    ],
)
def test_what_is_missing_is_named_with_the_way_out(device: str, answers: Any, missing: str, said: str, way_out: str) -> None:
    with pytest.raises(BackendMissing, match=device) as found:
        gpu.find_gpu(device, CAPI, loader(answers, missing))
    assert said in str(found.value)
    assert way_out in found.value.hint
