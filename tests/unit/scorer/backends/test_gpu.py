"""A GPU that is not there is named by what is missing, in the order in which it is looked for."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scorer.backends import BackendMissing
from scorer.backends.onnx import gpu

CAPI = Path("/opt/capi")


class Driver:
    """A driver that answers as told."""

    def __init__(self, devices: int = 1, error: int = 0) -> None:
        self.devices, self.error = devices, error

    def cuInit(self, _: int) -> int:  # noqa: N802 - the driver's names
        return self.error

    def cuDeviceGetCount(self, into: Any) -> int:  # noqa: N802
        into._obj.value = self.devices
        return 0

    def cuDeviceGetName(self, into: Any, _length: int, _device: int) -> int:  # noqa: N802
        into.value = b"A card"
        return 0

    def cuDriverGetVersion(self, into: Any) -> int:  # noqa: N802
        into._obj.value = 13_010
        return 0

    def cuDeviceGetAttribute(self, into: Any, attribute: int, _: int) -> int:  # noqa: N802
        into._obj.value = {gpu.CAPABILITY_MAJOR: 9, gpu.CAPABILITY_MINOR: 0}[attribute]
        return 0


def loader(driver: Driver, missing: str = "") -> Callable[[str], Any]:
    """Loads everything but what needs `missing`."""

    def load(name: str) -> Any:
        if missing and (missing == Path(name).name or (missing == "libnvinfer.so.10" and "tensorrt" in name)):
            raise OSError(f"{missing}: cannot open shared object file: No such file or directory")
        return driver if name == gpu.DRIVER else ctypes.CDLL(None)

    return load


def test_the_first_device_is_described(tmp_path: Path) -> None:
    version = tmp_path / "version"
    assert gpu.find("tensorrt", CAPI, loader(Driver()), version) == gpu.Gpu("A card", "CUDA-13.1", "9.0")
    version.write_text("580.65.06\n")
    assert gpu.find("cuda", CAPI, loader(Driver()), version).driver == "580.65.06"


@pytest.mark.parametrize(
    ("device", "driver", "missing", "said", "way_out"),
    [
        ("cuda", Driver(), "libonnxruntime_providers_cuda.so", "libonnxruntime_providers_cuda.so", "scorestream[gpu]"),
        ("cuda", Driver(), "libcuda.so.1", "libcuda.so.1", "NVIDIA driver"),
        ("tensorrt", Driver(), "libnvinfer.so.10", "libnvinfer.so.10", "tensorrt-cu13"),
        ("cuda", Driver(devices=0), "", "no device", "NVIDIA driver"),
        ("cuda", Driver(error=100), "", "error 100", "NVIDIA driver"),
    ],
)
def test_what_is_missing_is_named_with_the_way_out(device: str, driver: Driver, missing: str, said: str, way_out: str) -> None:
    with pytest.raises(BackendMissing, match=device) as found:
        gpu.find(device, CAPI, loader(driver, missing))
    assert said in str(found.value)
    assert way_out in found.value.hint
