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
class Needs:
    """Opsets by domain, the ONNX IR version, the first ONNX Runtime that runs both, and the devices: "" and empty are open."""

    opsets: str = ""
    ir_version: str = ""
    onnxruntime: str = ""
    devices: str = ""

    def annotations(self) -> dict[str, str]:
        """As they stand in a manifest."""
        stated = {"opset": self.opsets, "ir": self.ir_version, "onnxruntime": self.onnxruntime, "device": self.devices}
        return {NOTE + key: value for key, value in stated.items() if value}


def of(model: OnnxFile, devices: tuple[str, ...] = ()) -> Needs:
    """The needs of a model. The minimum version is left open where the table does not reach."""
    opset = model.opsets.get("", 0)
    enough = [version for highest, ir, version in RUNTIMES if opset <= highest and model.ir_version <= ir]
    opsets = ",".join(f"{domain or 'ai.onnx'}={version}" for domain, version in sorted(model.opsets.items()))
    return Needs(opsets, str(model.ir_version), enough[0] if enough else "", ",".join(sorted(set(devices))))


def read(annotations: Mapping[str, str]) -> Needs:
    """The needs that a manifest states. Raises Corrupt, naming the annotation."""
    found = {key: annotations.get(NOTE + key, "") for key in _SYNTAX}
    for key, value in found.items():
        if value and not _SYNTAX[key].fullmatch(value):
            raise Corrupt(f"the annotation {NOTE}{key} is {value!r:.100}, which says nothing", "push the version again")
    return Needs(found["opset"], found["ir"], found["onnxruntime"], found["device"])


def missing(needs: Needs, *, onnxruntime: str, device: str) -> str | None:
    """What this version of ONNX Runtime on this device lacks, or None if it has all."""
    has = {device, "cuda"} if device == "tensorrt" else {device}  # what TensorRT cannot do runs on CUDA
    if needs.devices and not has & set(needs.devices.split(",")):
        return f"it needs device {needs.devices.replace(',', ' or ')}, this scorer has {device}"
    if needs.onnxruntime and _parts(onnxruntime) < _parts(needs.onnxruntime):
        stated = f"opset {needs.opsets}, IR {needs.ir_version}" if needs.opsets else "so it was pushed"
        return f"it needs ONNX Runtime {needs.onnxruntime} or newer ({stated}), this scorer has {onnxruntime}"
    return None


def _parts(version: str) -> tuple[int, ...]:
    """The numbers a version begins with."""
    begin = _VERSION.match(version)
    return tuple(int(part) for part in begin.group().split(".")) if begin else ()
