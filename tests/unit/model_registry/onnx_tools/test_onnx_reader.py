"""The reader of ONNX files, compared with the library that writes them; other bytes are refused."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from model_registry.errors import Corrupt, Unreachable
from model_registry.onnx_tools import onnx_reader, protobuf_reader
from model_registry.onnx_tools.declared_tensors import ModelTensor
from model_registry.onnx_tools.onnx_reader import External
from tests.unit.model_registry.conftest import onnx_bytes

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("org.example", 1)]


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: list[Any] | None = None, **more: Any) -> bytes:
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants or [])
    data: bytes = helper.make_model(graph, opset_imports=OPSETS, ir_version=8, **more).SerializeToString()
    return data


def info(name: str, *shape: int | str | None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))


def branch(name: str, node: Any) -> Any:
    return helper.make_graph([node], name, [], [info("y", "N", 1)])


def test_inputs_outputs_opsets_and_operators() -> None:
    weights = numpy_helper.from_array(np.ones((2, 1), np.float32), "w")
    onnx_file = onnx_reader.parse(
        model(
            [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Own", ["c"], ["z"], domain="org.example")],
            [info("x", "N", 2), info("c", None, 1, kind=TensorProto.STRING), info("w", 2, 1)],
            [info("y", "N", 1), info("z", "N", kind=TensorProto.INT64)],
            [weights],
        )
    )
    assert (onnx_file.ir_version, onnx_file.opsets) == (8, {"": 17, "ai.onnx.ml": 3, "org.example": 1})
    assert onnx_file.inputs == [ModelTensor("x", "float32", ("N", 2)), ModelTensor("c", "string", (None, 1))]  # w is a constant
    assert onnx_file.outputs == [ModelTensor("y", "float32", ("N", 1)), ModelTensor("z", "int64", ("N",))]
    assert onnx_file.operators == {("", "MatMul"), ("org.example", "Own")}
    assert onnx_file.external == []


def test_operators_and_weights_inside_of_branches_and_functions_count() -> None:
    outside = numpy_helper.from_array(np.ones(4, np.float32), "far")
    onnx.external_data_helper.set_external_data(outside, "weights.bin", offset=8, length=16)
    outside.ClearField("raw_data")
    hidden = helper.make_node("Constant", [], ["k"], value=outside)
    then = helper.make_graph(
        [hidden, helper.make_node("Deep", ["k"], ["y"], domain="org.example")], "then", [], [info("y", "N", 1)]
    )
    choice = helper.make_node(
        "If", ["x"], ["y"], then_branch=then, else_branch=branch("else", helper.make_node("Relu", ["x"], ["y"]))
    )
    body = helper.make_function(
        "org.local", "Twice", ["a"], ["b"], [helper.make_node("Inner", ["a"], ["b"], domain="org.example")], OPSETS
    )
    onnx_file = onnx_reader.parse(model([choice], [info("x", "N", 1)], [info("y", "N", 1)], functions=[body]))
    assert onnx_file.operators >= {("", "If"), ("org.example", "Deep"), ("", "Relu"), ("org.example", "Inner")}
    assert onnx_file.functions == {("org.local", "Twice")}
    assert onnx_file.external == [External("weights.bin", 8, 16)]


def test_a_forest_costs_no_more_fields_than_it_has_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_reader, "MAX_FIELDS", 200)
    numbers = list(range(-5_000, 5_000))
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        nodes_truenodeids=numbers,
        nodes_values=[float(n) for n in numbers],
        nodes_modes=["BRANCH_LEQ", "LEAF"] * 5_000,
        n_targets=1,
    )
    buffer = protobuf_reader.Buffer(model([node], [info("x", "N", 1)], [info("y", "N", 1)]), 200)
    assert onnx_reader.parse(buffer.data).operators == {("ai.onnx.ml", "TreeEnsembleRegressor")}
    assert onnx_reader._Reader(buffer).model().operators == {("ai.onnx.ml", "TreeEnsembleRegressor")}


def test_a_sequence_is_no_tensor_and_a_type_may_be_missing() -> None:
    maps = helper.make_tensor_sequence_value_info("m", TensorProto.FLOAT, None)
    untyped = onnx.ValueInfoProto(name="u")
    onnx_file = onnx_reader.parse(model([helper.make_node("Any", ["x"], ["m", "u"])], [info("x", "N", 1)], [maps, untyped]))
    assert [tensor.dtype for tensor in onnx_file.outputs] == ["a sequence", "unknown"]


def test_a_file_is_read_and_named(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_bytes())
    assert onnx_reader.read(path).inputs == [ModelTensor("x", "float32", ("N", 2))]
    for content in (b"", b"weights", b"\x08\x08"):
        path.write_bytes(content)
        with pytest.raises(Corrupt, match=r"model\.onnx is"):
            onnx_reader.read(path)
    with pytest.raises(Unreachable, match="the model"):
        onnx_reader.read(tmp_path / "absent.onnx")


def message(number: int, content: bytes) -> bytes:
    """Encode a field with a length."""
    size, length = len(content), bytearray()
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2]) + bytes([*length, size]) + content


def nested(depth: int) -> bytes:
    """Encode a model whose graphs are nested in attributes of nodes, deeper than the library would write."""
    graph = b""
    for _ in range(depth):
        graph = message(1, message(5, message(6, graph)))
    return message(7, graph + message(12, message(1, b"y"))) + message(8, b"\x10\x11")


def test_depth_and_the_number_of_fields_are_bounded() -> None:
    assert onnx_reader.parse(nested(onnx_reader.MAX_DEPTH))
    with pytest.raises(Corrupt, match="nested more than"):
        onnx_reader.parse(nested(onnx_reader.MAX_DEPTH + 1))
    with pytest.raises(Corrupt, match="more than"):
        list(protobuf_reader.fields(protobuf_reader.Buffer(b"\x08\x01" * 100, 99), (0, 200)))


@pytest.mark.parametrize("data", [b"\x0a\x05ab", b"\x0a", b"\xff" * 12, b"\x0b", b"\x00\x00", b"\x0d\x00", b"\x3a\x80"])
def test_wrong_lengths_are_refused(data: bytes) -> None:
    with pytest.raises(Corrupt):
        onnx_reader.parse(data)


@settings(max_examples=200)
@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(0, 250), st.integers(0, 255)), min_size=1, max_size=8))
def test_any_bytes_are_corrupt_and_a_damaged_model_is_read_or_corrupt(any_: bytes, damage: list[tuple[int, int]]) -> None:
    with pytest.raises(Corrupt):
        onnx_reader.parse(any_)
    data = bytearray(onnx_bytes())
    for at, value in damage:
        data[at % len(data)] = value
    with contextlib.suppress(Corrupt):
        onnx_reader.parse(bytes(data))
