"""What a version needs of the scorer that is to run it: noted in its manifest by push, compared before anything is loaded.

The table of minimum versions was measured: each release of ONNX Runtime was given models of rising opset and IR version.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from model_registry.errors import Corrupt
from model_registry.onnx.file import OnnxFile

NOTE = "io.scorestream.needs."
DEVICES = ("cpu", "cuda", "tensorrt")
RUNTIMES = ((23, 11, "1.23"), (25, 13, "1.24"), (26, 13, "1.25"))  # highest opset of ONNX, IR version, first ONNX Runtime
_VERSION = re.compile(r"\d{1,6}(\.\d{1,6}){0,3}")
_SYNTAX = {
    "opset": re.compile(r"[A-Za-z0-9._-]+=\d{1,6}(,[A-Za-z0-9._-]+=\d{1,6})*"),
    "ir": re.compile(r"\d{1,6}"),
    "onnxruntime": _VERSION,
    "device": re.compile(r"[a-z]+(,[a-z]+)*"),
}


@dataclass(frozen=True, slots=True)
class Requirements:
    """Opsets by domain, the ONNX IR version, the first ONNX Runtime that runs both, and the devices: "" and empty are open."""

    opsets: str = ""
    ir_version: str = ""
    onnxruntime: str = ""
    devices: str = ""

    def annotations(self) -> dict[str, str]:
        """As they stand in a manifest."""
        stated = {"opset": self.opsets, "ir": self.ir_version, "onnxruntime": self.onnxruntime, "device": self.devices}
        return {NOTE + key: value for key, value in stated.items() if value}


def of(model: OnnxFile, devices: tuple[str, ...] = ()) -> Requirements:
    """The needs of a model. The minimum version is left open where the table does not reach."""
    opset = model.opsets.get("", 0)
    enough = [version for highest, ir, version in RUNTIMES if opset <= highest and model.ir_version <= ir]
    opsets = ",".join(f"{domain or 'ai.onnx'}={version}" for domain, version in sorted(model.opsets.items()))
    return Requirements(opsets, str(model.ir_version), enough[0] if enough else "", ",".join(sorted(set(devices))))


def read(annotations: Mapping[str, str]) -> Requirements:
    """The needs that a manifest states. Raises Corrupt, naming the annotation."""
    found = {key: annotations.get(NOTE + key, "") for key in _SYNTAX}
    for key, value in found.items():
        if value and not _SYNTAX[key].fullmatch(value):
            raise Corrupt(f"the annotation {NOTE}{key} is {value!r:.100}, which says nothing", "push the version again")
    return Requirements(found["opset"], found["ir"], found["onnxruntime"], found["device"])


def missing(required: Requirements, *, onnxruntime: str, device: str) -> str | None:
    """What this version of ONNX Runtime on this device lacks, or None if it has all."""
    has = {device, "cuda"} if device == "tensorrt" else {device}  # what TensorRT cannot do runs on CUDA
    if required.devices and not has & set(required.devices.split(",")):
        return f"it needs device {required.devices.replace(',', ' or ')}, this scorer has {device}"
    if required.onnxruntime and _parts(onnxruntime) < _parts(required.onnxruntime):
        stated = f"opset {required.opsets}, IR {required.ir_version}" if required.opsets else "so it was pushed"
        return f"it needs ONNX Runtime {required.onnxruntime} or newer ({stated}), this scorer has {onnxruntime}"
    return None


def _parts(version: str) -> tuple[int, ...]:
    """The numbers a version begins with."""
    begin = _VERSION.match(version)
    return tuple(int(part) for part in begin.group().split(".")) if begin else ()
