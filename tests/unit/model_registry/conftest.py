"""Model packages and stores for the registry's tests."""

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner, Result

from model_registry import package
from model_registry.channels import channel
from model_registry.channels.history import ChannelMove
from model_registry.channels.move_request import MoveRequest
from model_registry.cli import app
from model_registry.stores.base import Store
from model_registry.stores.oci_layout import LayoutStore
from tests.support import warm
from tests.support.processes import command

SIGNATURE = """{"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a", {"name": "b", "default": "nan"}]}],
 "output": {"tensor": "p", "index": 1}}"""
GOLDEN = '{"event": {"a": 1.5}, "score": 0.25, "tolerance": 1e-4}\n'

REPO = "oci:registry/flight-delay"
RUN_MODELS = ("init", "push")
"""The commands that run models, in child processes (`sandbox.run_apart`)."""
NOW = datetime(2013, 9, 1, 6, 0, 0, 250_000, tzinfo=timezone(timedelta(hours=-4)))
MakePackage = Callable[..., Path]


def onnx_bytes(label: bytes = b"") -> bytes:
    """Return a model that fits SIGNATURE and GOLDEN, p = (a / 6, a / 6); each label gives other bytes."""
    first = numpy_helper.from_array(np.array([0, 0], np.int64), "first")
    sixth = numpy_helper.from_array(np.array([1 / 6], np.float32), "sixth")
    nodes = [helper.make_node("Gather", ["x", "first"], ["a"], axis=1), helper.make_node("Mul", ["a", "sixth"], ["p"])]
    io = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in ("x", "p")]
    graph = helper.make_graph(nodes, "test", io[:1], io[1:], [first, sixth], doc_string=label.decode())
    opset = helper.make_opsetid("", 17)
    data: bytes = helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()
    return data


def write_package(
    parent: Path, name: str = "v1", *, model: bytes = b"weights", signature: str = SIGNATURE, golden: str = GOLDEN
) -> Path:
    """Write a package into a new folder of that name, and return the folder."""
    folder = parent / name
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model)
    (folder / "signature.json").write_text(signature)
    if golden:
        (folder / "golden.jsonl").write_text(golden)
    (folder / "README.md").write_text("# a model\n")
    return folder


@pytest.fixture
def make_package(tmp_path: Path) -> MakePackage:
    """make_package("v1", model=b"...") writes a package into a new folder of that name."""
    return partial(write_package, tmp_path)


def push_versions(store: Store, make_package: MakePackage, *versions: str) -> dict[str, str]:
    return {v: package.push(store, make_package(v, model=v.encode() * 1000), "m", v).digest for v in versions}


def promote(
    store: Store,
    version: str,
    name: str = "prod",
    reason: str = "",
    *,
    canary: int | None = None,
    shadow: str | None = None,
    pairs: int = 0,
    **request: Any,
) -> ChannelMove:
    """Promote a version; `request` has further fields of the move request."""
    move_request = MoveRequest("op@host", reason, NOW, **request)
    return channel.promote(store, name, version, move_request, canary=canary, shadow=shadow, pairs=pairs)


@pytest.fixture
def store(tmp_path: Path) -> LayoutStore:
    """Return a repository that does not exist yet."""
    return LayoutStore(tmp_path / "registry" / "flight-delay")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_package: MakePackage) -> Path:
    """Return the working directory for commands, with two packages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.setenv("LOGNAME", "zoe")
    make_package("v1", model=onnx_bytes(b"one"))
    make_package("v2", model=onnx_bytes(b"two"))
    return tmp_path


def run(*arguments: str, code: int = 0, **environment: str) -> Result:
    """Run a command of model-registry, which must exit with this code.

    Commands that run models are forked from a process without threads, which can fork for each model. This process has threads
    and would start a new Python process for each model.
    """
    if arguments[0] not in RUN_MODELS or environment:
        return run_here(*arguments, code=code, **environment)
    completed = warm.run([command("model-registry"), *arguments])
    result = Result(
        CliRunner(), completed.stdout, completed.stderr, completed.stdout + completed.stderr, None, completed.returncode, None
    )
    assert result.exit_code == code, result.output
    return result


def run_here(*arguments: str, code: int = 0, **environment: str) -> Result:
    """Run a command of model-registry in this process; it must exit with this code."""
    result = CliRunner(env=environment).invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result


def answer(*arguments: str) -> Any:
    """Run a command with --json and return its document."""
    result = run(*arguments, "--json")
    assert result.stderr == ""
    return json.loads(result.stdout)


def fields_of(output: str) -> dict[str, list[str]]:
    """Return the table of fields in the output of `inspect`: type, source and the value if absent, by the name of the field."""
    rows = [re.split(r" {2,}", line.strip()) for line in output.partition("if absent")[2].partition("\n\n")[0].splitlines()[1:]]
    return {name: columns for name, *columns in rows}
