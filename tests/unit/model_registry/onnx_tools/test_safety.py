"""The checks of a model before it is loaded."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from model_registry.errors import Corrupt, Refused
from model_registry.onnx_tools import run_golden_examples, runtime_requirements, safety
from model_registry.onnx_tools.declared_tensors import UNKNOWN, ModelTensor, find_fault
from model_registry.onnx_tools.derive_signature import Underivable, derive
from model_registry.onnx_tools.onnx_reader import OnnxFile
from model_registry.onnx_tools.runtime_requirements import DEVICE, IR, OPSET, RUNTIME
from model_registry.package import placeholders
from model_registry.package.golden_examples import GoldenExample
from model_registry.package.placeholders import BLANK
from model_registry.package.signature import InputField, Output, Signature, TensorInput
from model_registry.package.signature_schema import parse_signature

X, Y = ModelTensor("x", "float32", ("N", 2)), ModelTensor("y", "float32", ("N", 1))


def write(path: Path, location: str = "", domain: str = "", opset: int = 17, offset: int = 0, length: int = 8) -> Path:
    """Write y = x @ w, with the weights in the file `location` if it is given."""
    weights = numpy_helper.from_array(np.ones((2, 1), np.float32), "w")
    if location:
        onnx.external_data_helper.set_external_data(weights, location, offset=offset, length=length)
        weights.ClearField("raw_data")
    io = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1]),
    ]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], domain=domain)], "g", io[:1], io[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a package, with weights inside and outside of it."""
    (tmp_path / "secret.bin").write_bytes(b"s" * 100)
    package = tmp_path / "package"
    (package / "data").mkdir(parents=True)
    (package / "*" / "_ORT_MEM_ADDR_").mkdir(parents=True)
    for path in ("weights.bin", "data/weights.bin", ".hidden", "*/_ORT_MEM_ADDR_/*"):
        (package / path).write_bytes(np.ones(2, np.float32).tobytes())
    (package / "link.bin").symlink_to("../secret.bin")
    (package / "up").symlink_to("..")
    return package


def test_weights_inside_the_package_are_accepted(folder: Path) -> None:
    for location in ("", "weights.bin", "data/weights.bin"):
        result = safety.check(write(folder / "model.onnx", location), None)
        assert [external.location for external in result.external] == [location][: bool(location)]
    signature = derive(result.inputs, result.outputs)
    answers = (GoldenExample({"x": [1.0, 2.0]}, 3.0, 1e-6), GoldenExample({"x": [0.5, 0.5]}, 1.0, 1e-6))
    assert run_golden_examples.run(folder / "model.onnx", signature, answers)


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "/etc/passwd",
        "link.bin",
        "up/secret.bin",
        "absent.bin",
        ".hidden",
        "./weights.bin",
        "data",
        "model.onnx",
        "*/_ORT_MEM_ADDR_/*",
        "data\\weights.bin",
        "https://x/y",
    ],
)
def test_weights_anywhere_else_are_refused(folder: Path, location: str) -> None:
    with pytest.raises(Refused, match="keeps weights in"):
        safety.check(write(folder / "model.onnx", location), None)


@pytest.mark.parametrize(("offset", "length"), [(1, 8), (0, 9), (-1, 8), (1 << 40, 0)])
def test_weights_beyond_the_file_are_refused(folder: Path, offset: int, length: int) -> None:
    with pytest.raises(Refused, match=r"bytes .*, but the file has 8 bytes"):
        safety.check(write(folder / "model.onnx", "weights.bin", offset=offset, length=length), None)


def test_an_unsupported_opset_and_another_signature_are_refused(tmp_path: Path) -> None:
    model = write(tmp_path / "model.onnx")
    safety.check(model, signed())
    with pytest.raises(Refused, match="the signature states float64"):
        safety.check(model, signed("float64"))
    with pytest.raises(Refused, match="has opset 6"):
        safety.check(write(model, opset=6), None)


def test_operators_of_other_domains_are_refused_unless_allowed(tmp_path: Path) -> None:
    contrib, custom = write(tmp_path / "a.onnx", domain="com.microsoft"), write(tmp_path / "b.onnx", domain="org.example")
    safety.check(contrib, None)
    with pytest.raises(Refused, match=r"'MatMul' of domain 'com\.microsoft'"):
        safety.check(contrib, None, ())
    with pytest.raises(Refused, match=r"'MatMul' of domain 'org\.example'") as caught:
        safety.check(custom, None)
    assert "model.op_domains" in caught.value.hint
    safety.check(custom, None, ("org.example",))
    local = OnnxFile(operators={("org.local", "F")}, functions={("org.local", "F")})
    assert safety.operator_fault(local, ()) is None


def signed(
    dtype: str = "float32", names: tuple[str, ...] = ("a", "b"), tensor: str = "x", index: int | None = None
) -> Signature:
    fields = tuple(InputField(name, dtype) for name in names)
    return Signature((TensorInput(tensor, dtype, fields),), (Output(None, "y", index),))


def shaped(*shape: int) -> Signature:
    field = InputField("v", "float32", array=2, shape=shape)
    return Signature((TensorInput("x", "float32", (field,), shape),), (Output(None, "y"),))


@pytest.mark.parametrize(
    ("signature", "inputs", "outputs", "message"),
    [
        (signed(tensor="z"), [X], [Y], "the signature feeds the inputs ['z'], but the model has the inputs ['x']"),
        (signed(), [X, ModelTensor("more", "bool", ("N", 1))], [Y], "the model has the inputs ['more', 'x']"),
        (signed(names=("a",)), [X], [Y], "the signature states (B, 1), but the model requires ['N', 2]"),
        (signed(), [ModelTensor("x", "float32", (1, 2))], [Y], "fixed batch size 1"),
        (signed(), [ModelTensor("x", "float32", ("N",))], [Y], "the model requires ['N']"),
        (signed(), [X], [ModelTensor("z", "float32", ())], "reads output 'y', but the model has the outputs ['z']"),
        (signed(), [X], [ModelTensor("y", "a sequence", ())], "export it without ZipMap"),
        (signed(index=1), [X], [Y], "reads column 1, but the model gives 1"),
        (signed(), [ModelTensor("x", "float32", (None, "n"))], [ModelTensor("y", UNKNOWN, ())], None),
        (signed(index=1), [X], [ModelTensor("y", "float32", ("N", "k"))], None),
        (signed(), [ModelTensor("x", "float32", (-1, 2))], [Y], None),
        (
            signed(),
            [ModelTensor("x", "float32", ("N", 3, "H"))],
            [Y],
            "the model requires ['N', 3, 'H']; write \"shape\": [3, ?]",
        ),
        (
            signed(),
            [ModelTensor("x", "float32", ())],
            [Y],
            "input 'x' has no batch dimension: its shape is [] or not stated",
        ),
        (shaped(2, 1), [ModelTensor("x", "float32", ("N", 2, "W"))], [Y], None),
        (
            shaped(2, 1),
            [ModelTensor("x", "float32", ("N", 1, 2))],
            [Y],
            "signature states (B, 2, 1), but the model requires ['N', 1, 2]",
        ),
        (shaped(2, 1), [X], [Y], "the signature states (B, 2, 1), but the model requires ['N', 2]; write \"shape\": [2]"),
    ],
)
def test_a_contradicting_signature_is_refused_with_the_reason(
    signature: Signature, inputs: list[ModelTensor], outputs: list[ModelTensor], message: str | None
) -> None:
    result = find_fault(signature, inputs, outputs)
    assert (result is None) if message is None else (result is not None and message in result)


def test_a_signature_is_derived_if_the_model_leaves_no_choice() -> None:
    pixels = derive([ModelTensor("pixels", "float32", ("N", 784))], [ModelTensor("scores", "float32", (None, 10))])
    assert pixels.inputs == (TensorInput("pixels", "float32", (InputField("pixels", "float32", array=784),)),)
    assert pixels.outputs == (Output(None, "scores", None),)
    columns = derive([ModelTensor("carrier", "string", (None, 1)), ModelTensor("numbers", "float32", (None, 6))], [Y])
    assert [(field.name, field.dtype, field.array) for field in columns.fields] == [
        ("carrier", "string", None),
        ("numbers", "float32", 6),
    ]
    image = derive([ModelTensor("image", "float32", ("N", 3, 8, 8)), ModelTensor("age", "int64", (None,))], [Y])
    assert [(tensor.full_shape, tensor.fields) for tensor in image.inputs] == [
        ((None, 3, 8, 8), (InputField("image", "float32", array=192, shape=(3, 8, 8)),)),
        ((None,), (InputField("age", "int64"),)),
    ]
    boxes = derive([X], [ModelTensor("boxes", "float32", ("N", "found", 4))])
    assert boxes.outputs == (Output(None, "boxes", shape=(-1, 4)),)
    shapes: list[tuple[int | str | None, ...]] = [("N", 0, 4), ("N", 2048, 2048), ("N", *([1] * 9))]
    for shape in shapes:
        assert derive([X], [ModelTensor("y", "float32", shape)]).outputs == (Output(None, "y"),)
    for signature in (pixels, columns, image, boxes):
        assert parse_signature(signature.to_json()) == signature


@pytest.mark.parametrize(
    ("inputs", "outputs", "todo"),
    [
        ([X], [ModelTensor("label", "int64", (None,)), ModelTensor("p", "float32", (None, 2))], "which output is the score"),
        ([X], [ModelTensor("p", "int64", (None,))], "which output is the score"),
        ([X], [], "which output is the score"),
        ([ModelTensor("x", "float32", (None, None))], [Y], "name its fields"),
        ([ModelTensor("x", "float32", (None, 0))], [Y], "name its fields"),
        ([ModelTensor("x", "float32", ("N", 3, "H", -1))], [Y], "['N', 3, 'H', -1]: write the open dimensions in \"shape\""),
        ([ModelTensor("x", "float32", ("N", 1 << 10, 1 << 11))], [Y], "at most 1048576 elements in 8 dimensions"),
        ([ModelTensor("rate", "int64", ())], [Y], '"value": ..., "batch": false'),
        ([ModelTensor("x", "float32", (8, 3))], [Y], "fixed batch size 8"),
        ([ModelTensor("x", "bfloat16", (None, 3))], [Y], "is bfloat16"),
        ([], [Y], "no inputs"),
    ],
)
def test_a_model_that_leaves_a_choice_has_a_skeleton(inputs: list[ModelTensor], outputs: list[ModelTensor], todo: str) -> None:
    with pytest.raises(Underivable) as caught:
        derive(inputs, outputs)
    assert any(todo in gap for gap in caught.value.gaps)
    assert '"inputs"' in caught.value.skeleton


def test_a_skeleton_of_shapes_and_constants() -> None:
    image, rate, state = ("N", 3, "H", 8), (), (2, "K")
    with pytest.raises(Underivable) as caught:
        derive([ModelTensor("x", "float32", image), ModelTensor("r", "int64", rate), ModelTensor("s", "float32", state)], [Y])
    signature = parse_signature(caught.value.skeleton.replace(f'"{BLANK}"', "5"))
    assert [(tensor.tensor, tensor.full_shape, tensor.value) for tensor in signature.inputs] == [
        ("x", (None, 3, -1, 8), None),
        ("r", (), 5),
        ("s", (2, 5), 5.0),
    ]


def test_a_skeleton_of_lengths_that_vary() -> None:
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [ModelTensor(name, "int64", ("batch", "sequence")) for name in names]
    with pytest.raises(Underivable) as caught:
        derive([*inputs, ModelTensor("frames", "float32", ("batch", "time", 80))], [Y])
    assert not any("attention_mask" in gap for gap in caught.value.gaps)
    assert all('{"name": ..., "array": true, "max_length": 512}' in gap for gap in caught.value.gaps)
    document = json.loads(caught.value.skeleton.replace(f'"{BLANK}"', "5"))
    assert [place for place, _ in placeholders.find_in_document(document)] == [
        "inputs[0].pad",
        "inputs[1].marks",
        "inputs[2].pad",
    ]
    document["inputs"][3]["axis"] = "time"
    document["inputs"][0]["pad"] = document["inputs"][2]["pad"] = 0
    document["inputs"][1]["marks"] = "values"
    result = parse_signature(json.dumps(document))
    assert [(tensor.full_shape, tensor.pad, tensor.mask_of) for tensor in result.inputs] == [
        ((None, -1), 0, None),
        ((None, -1), None, "input_ids"),
        ((None, -1), 0, None),
        ((None, -1, 80), None, None),
    ]


def test_a_skeleton_has_the_derived_parts() -> None:
    with pytest.raises(Underivable) as caught:
        derive(
            [X, ModelTensor("c", "string", (None, 1))],
            [ModelTensor("label", "int64", (None,)), ModelTensor("p", "float32", (None, 2))],
        )
    filled = caught.value.skeleton.replace(f'"{BLANK}"', "1")
    signature = parse_signature(filled)
    assert [tensor.tensor for tensor in signature.inputs] == ["x", "c"]
    assert signature.outputs == (Output(None, "p", 1),)


def test_requirements_are_read_back_from_a_manifest() -> None:
    result = runtime_requirements.derive_requirements(
        OnnxFile(ir_version=13, opsets={"": 25, "ai.onnx.ml": 5}), ("cuda", "cpu")
    )
    assert list(result.values()) == ["ai.onnx=25,ai.onnx.ml=5", "13", "1.24", "cpu,cuda"]
    assert runtime_requirements.missing_requirement(result, onnxruntime="1.24", device="cpu") is None
    assert RUNTIME not in runtime_requirements.derive_requirements(OnnxFile(ir_version=99, opsets={"": 99}))


@pytest.mark.parametrize(
    ("opset", "ir", "lowest"), [(7, 3, "1.23"), (23, 11, "1.23"), (24, 11, "1.24"), (23, 12, "1.24"), (26, 13, "1.25")]
)
def test_the_lowest_sufficient_runtime_is_required(opset: int, ir: int, lowest: str) -> None:
    assert runtime_requirements.derive_requirements(OnnxFile(ir_version=ir, opsets={"": opset}))[RUNTIME] == lowest


@pytest.mark.parametrize(
    ("stated", "version", "device", "message"),
    [
        ({}, "1.23.0", "cpu", None),
        ({RUNTIME: "1.24"}, "1.24.0", "cpu", None),
        ({RUNTIME: "1.24"}, "1.31.1+cu12", "cpu", None),
        (
            {OPSET: "ai.onnx=25", IR: "11", RUNTIME: "1.24"},
            "1.23.2",
            "cpu",
            "it needs ONNX Runtime 1.24 or newer (opset ai.onnx=25, IR 11), this scorer has 1.23.2",
        ),
        ({DEVICE: "cuda"}, "1.24", "cpu", "it needs device cuda, this scorer has cpu"),
        ({DEVICE: "cpu,cuda"}, "1.24", "cuda", None),
    ],
)
def test_a_missing_requirement_is_named(stated: dict[str, str], version: str, device: str, message: str | None) -> None:
    result = runtime_requirements.missing_requirement(stated, onnxruntime=version, device=device)
    assert (result is None) if message is None else (result is not None and message in result)


@pytest.mark.parametrize("key", [OPSET, IR, RUNTIME, DEVICE])
def test_an_invalid_annotation_is_corrupt(key: str) -> None:
    with pytest.raises(Corrupt, match=f"{key} is"):
        runtime_requirements.missing_requirement({key: "!"}, onnxruntime="1.23", device="cpu")


def test_golden_examples_are_scored_as_the_signature_reads_them(tmp_path: Path) -> None:
    model = write(tmp_path / "model.onnx")
    defaults = (InputField("a", "float32"), InputField("b", "float32", required=False, default=0.5))
    signature = Signature((TensorInput("x", "float32", defaults),), (Output("sum", "y", 0), Output("row", "y")))
    example = GoldenExample({"a": 1, "b": None}, {"sum": 1.5, "row": 1.5}, 0.0)
    assert run_golden_examples.run(model, signature, [example])
    with pytest.raises(Refused, match=r"golden example 2 must score .*, but scores"):
        run_golden_examples.run(model, signature, [example, GoldenExample({"a": 1}, {"sum": 1.5, "row": 1.6}, 0.01)])
    with pytest.raises(Refused, match="the signature reads column 1"):
        run_golden_examples.run(model, Signature(signature.inputs, (Output(None, "y", 1),)), [example])
    assert run_golden_examples.run(model, signature, [])
    with pytest.raises(Refused, match="cannot run the model"):
        run_golden_examples.run(write(model, domain="org.example"), signature, [])
    word: Any = InputField("c", "string", required=False, default="")
    words = Signature((TensorInput("c", "string", (word,)),), (Output(None, "y"),))
    assert run_golden_examples.fed(words, [{"c": "UA"}, {}])["c"].tolist() == [["UA"], [""]]
