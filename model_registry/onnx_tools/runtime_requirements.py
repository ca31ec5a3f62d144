"""The requirements of a version, which `push` records in the manifest. A scorer loads no version with an unmet requirement.

The table of minimum versions was measured: models of rising opset and IR version were run with each release of ONNX Runtime.
"""

import re
from collections.abc import Mapping

from model_registry.errors import Corrupt
from model_registry.onnx_tools.onnx_reader import OnnxFile

RUNTIMES = ((23, 11, "1.23"), (25, 13, "1.24"), (26, 13, "1.25"))  # highest opset of ONNX, IR version, first ONNX Runtime
OPSET, IR, RUNTIME, DEVICE = (f"io.scorestream.needs.{key}" for key in ("opset", "ir", "onnxruntime", "device"))
"""The annotations for the opsets by domain, the ONNX IR version, the oldest ONNX Runtime that runs both, and the devices.

A missing annotation means that there is no such requirement.
"""
_VERSION = re.compile(r"\d{1,6}(\.\d{1,6}){0,3}")
_SYNTAX = {
    OPSET: re.compile(r"[A-Za-z0-9._-]+=\d{1,6}(,[A-Za-z0-9._-]+=\d{1,6})*"),
    IR: re.compile(r"\d{1,6}"),
    RUNTIME: _VERSION,
    DEVICE: re.compile(r"[a-z]+(,[a-z]+)*"),
}


def derive_requirements(model: OnnxFile, devices: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the requirements of a model as annotations.

    The minimum version of ONNX Runtime is omitted if it is not known for the model's opset and IR version.
    """
    opset = model.opsets.get("", 0)
    enough = [version for highest, ir, version in RUNTIMES if opset <= highest and model.ir_version <= ir]
    opsets = ",".join(f"{domain or 'ai.onnx'}={version}" for domain, version in sorted(model.opsets.items()))
    needs = {OPSET: opsets, IR: str(model.ir_version), RUNTIME: next(iter(enough), ""), DEVICE: ",".join(sorted(set(devices)))}
    return {key: value for key, value in needs.items() if value}


def missing_requirement(annotations: Mapping[str, str], *, onnxruntime: str, device: str) -> str | None:
    """Return the first requirement in a manifest that this ONNX Runtime or device does not meet; None if all are met.

    Raises:
        Corrupt: An annotation has a wrong syntax; the message names the annotation.
    """
    needs = {key: annotations.get(key, "") for key in _SYNTAX}
    for key, value in needs.items():
        if value and not _SYNTAX[key].fullmatch(value):
            raise Corrupt(f"the annotation {key} is {value!r:.100}, which is not a valid requirement", "push the version again")
    available = {device, "cuda"} if device == "tensorrt" else {device}  # what TensorRT cannot do runs on CUDA
    if needs[DEVICE] and not available & set(needs[DEVICE].split(",")):
        return f"it needs device {needs[DEVICE].replace(',', ' or ')}, this scorer has {device}"
    if needs[RUNTIME] and _parts(onnxruntime) < _parts(needs[RUNTIME]):
        stated = f"opset {needs[OPSET]}, IR {needs[IR]}" if needs[OPSET] else "so it was pushed"
        return f"it needs ONNX Runtime {needs[RUNTIME]} or newer ({stated}), this scorer has {onnxruntime}"
    return None


def _parts(version: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version, such as (1, 23) for "1.23.dev"; empty if there are no numbers."""
    begin = _VERSION.match(version)
    return tuple(int(part) for part in begin.group().split(".")) if begin else ()
