"""The same packages on a real MLServer and a real Triton, both with ONNX Runtime, and the reason of refused packages."""

import json
import shutil
from pathlib import Path
from typing import Any

import onnx

from tests.benchmarks.models.stage import Ground, served
from tests.integration.backends.models import SERVED
from tests.integration.backends.servers import KINDS, ModelServer
from tests.integration.scorer.rig import Rig

DATATYPES = {1: "FP32", 2: "UINT8", 7: "INT64", 8: "BYTES"}  # of onnx.TensorProto
REFUSED = 'the signature has "batch": false (one event at a time), which open-inference does not support'


def start(kind: str, folder: Path) -> ModelServer:
    return KINDS[kind].server(folder).start()


def package(prepared: Ground, kind: str) -> Path:
    """Write the case's package for a server: the model and its settings in `repository/`."""
    folder = prepared.package.parent / f"on-{kind}"
    repository = folder / "repository"
    repository.mkdir(parents=True)
    for name in ("signature.json", "golden.jsonl", "README.md"):
        shutil.copy(prepared.package / name, folder)
    SETTINGS[kind](prepared.package / "model.onnx", repository)
    return folder


def _mlserver(model: Path, repository: Path) -> None:
    shutil.copy(model, repository)
    graph = onnx.load(str(model)).graph
    settings = {
        "implementation": "mlserver_onnx.Onnx",
        "inputs": [_tensor_entry(value) for value in graph.input],
        "outputs": [_tensor_entry(value) for value in graph.output],
        "parameters": {"uri": "./model.onnx"},
    }
    (repository / "model-settings.json").write_text(json.dumps(settings))


def _triton(model: Path, repository: Path) -> None:
    (repository / "1").mkdir()
    shutil.copy(model, repository / "1")
    shutil.copy(SERVED / "triton_onnx.py", repository / "1" / "model.py")
    graph = onnx.load(str(model)).graph
    lines = ['backend: "python"']
    for section, values in (("input", graph.input), ("output", graph.output)):
        for tensor in map(_tensor_entry, values):
            kind = tensor["datatype"].replace("BYTES", "STRING")
            lines.append(f'{section} {{ name: "{tensor["name"]}" data_type: TYPE_{kind} dims: {tensor["shape"]} }}')
    (repository / "config.pbtxt").write_text("\n".join(lines) + "\n")


SETTINGS = {"mlserver": _mlserver, "triton": _triton}


def _tensor_entry(value: Any) -> dict[str, Any]:
    kind = value.type.tensor_type
    shape = [dimension.dim_value or -1 for dimension in kind.shape.dim]
    return {"name": value.name, "datatype": DATATYPES[kind.elem_type], "shape": shape}


def on_server(prepared: Ground, bootstrap_servers: str, kind: str, server: ModelServer) -> dict[str, Any]:
    """Return the figures of a scorer with its model on the server, or as `refused` the error of `scorer check`."""
    case, server_package = prepared.case, package(prepared, kind)
    folder = server_package.parent / f"scorer-on-{kind}"
    folder.mkdir()
    model = {"backend": "open-inference", "endpoints": [server.address], "server_folder": str(server.folder)}
    settings = {**case.settings, "model": {**case.settings.get("model", {}), **model}}
    rig = Rig(bootstrap_servers, folder, f"{case.name}-{kind}", **settings)
    try:
        return (
            served(prepared, server_package, rig)
            if not case.alone
            else {"refused": refused(rig, server_package), "differences": []}
        )
    finally:
        rig.close()


def refused(rig: Rig, server_package: Path) -> str:
    """Return the reason why a version cannot be served. Raises AssertionError if it can, or for another reason."""
    rig.push(server_package, "1.0.0")
    rig.promote("1.0.0")
    rig.create(code=1)
    output = rig.run("scorer", "check", "scorer.yaml", code=1).stderr
    assert REFUSED in output, output
    return REFUSED
