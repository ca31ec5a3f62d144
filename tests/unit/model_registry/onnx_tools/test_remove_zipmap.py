"""A final ZipMap is removed, and another sequence is refused with the matching remedy."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from model_registry.errors import Refused
from model_registry.onnx_tools import draft_outputs, onnx_reader, remove_zipmap
from model_registry.onnx_tools.declared_tensors import MAPS, ModelTensor
from tests.support import models

LABEL = ModelTensor("label", "int64", ("N",))


def zipped(path: Path, classes: dict[str, Any], rows: int | str = "N") -> None:
    """Write a model with a label and a sequence of maps of two classes, as exporters of classifiers do."""
    softmax = helper.make_node("Softmax", ["x"], ["p"], axis=1)
    nodes = [
        softmax,
        helper.make_node("ArgMax", ["p"], ["label"], axis=1, keepdims=0),
        helper.make_node("ZipMap", ["p"], ["probability"], domain="ai.onnx.ml", **classes),
    ]
    kind = TensorProto.INT64 if "classlabels_int64s" in classes else TensorProto.STRING
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    maps = helper.make_value_info("probability", helper.make_sequence_type_proto(helper.make_map_type_proto(kind, value)))
    outputs = [models.tensor("label", TensorProto.INT64, rows), maps]
    graph = helper.make_graph(nodes, "test", [models.tensor("x", TensorProto.FLOAT, rows, 2)], outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))


@pytest.mark.parametrize(
    "classes", [{"classlabels_int64s": [0, 1]}, {"classlabels_strings": ["no", "yes"]}], ids=["int", "text"]
)
def test_the_output_of_a_final_zipmap_becomes_a_tensor(tmp_path: Path, classes: dict[str, Any]) -> None:
    path = tmp_path / "model.onnx"
    zipped(path, classes)
    assert [output.dtype for output in onnx_reader.read(path).outputs] == ["int64", MAPS]
    assert remove_zipmap.is_in(onnx_reader.read(path))
    unzipped = remove_zipmap.without(path)
    assert unzipped is not None
    assert remove_zipmap.compare(path, unzipped) == ""
    parsed = onnx_reader.parse(unzipped.data)
    assert parsed.outputs[1] == ModelTensor("probability", "float32", (None, 2))
    assert not remove_zipmap.is_in(parsed)
    x = np.array([[0, 0], [0, 9]], np.float32)
    (rows,) = ort.InferenceSession(unzipped.data).run(["probability"], {"x": x})
    assert rows[0].tolist() == [0.5, 0.5]
    (names,) = classes.values()
    assert remove_zipmap.note(unzipped, "") == (
        f"the final ZipMap was removed (the numbers are the same): output 'probability' has a column for each class: "
        f"{names[0]}, {names[1]}"
    )


def test_the_note_of_a_zipmap_states_the_missing_classes() -> None:
    note = remove_zipmap.note(remove_zipmap.Unzipped(b"", {"p": []}), "it does not load")
    assert note == "the final ZipMap was removed (the numbers were not compared: it does not load): output 'p' names no classes"


def test_a_fixed_batch_of_one_remains_in_the_output(tmp_path: Path) -> None:
    zipped(tmp_path / "model.onnx", {"classlabels_int64s": [0, 1]}, 1)
    unzipped = remove_zipmap.without(tmp_path / "model.onnx")
    assert unzipped is not None
    assert remove_zipmap.compare(tmp_path / "model.onnx", unzipped) == ""
    assert onnx_reader.parse(unzipped.data).outputs[1] == ModelTensor("probability", "float32", (1, 2))


def test_other_numbers_are_rejected(tmp_path: Path) -> None:
    zipped(tmp_path / "model.onnx", {"classlabels_int64s": [0, 1]})
    unzipped = remove_zipmap.without(tmp_path / "model.onnx")
    assert unzipped is not None
    swapped = remove_zipmap.Unzipped(unzipped.data, {"probability": [1, 0]})
    with pytest.raises(Refused, match="output 'probability' has different numbers after its ZipMap was removed"):
        remove_zipmap.compare(tmp_path / "model.onnx", swapped)


def test_a_model_without_a_final_zipmap_is_unchanged(tmp_path: Path) -> None:
    models.linear(tmp_path / "model.onnx", 2.0)
    assert remove_zipmap.without(tmp_path / "model.onnx") is None


def test_labels_are_no_scores_beside_an_output_that_is_no_tensor() -> None:
    with pytest.raises(
        Refused, match=r"output 'p' is a sequence of maps, not a tensor, and the others have no score"
    ) as caught:
        draft_outputs.draft_answers([LABEL, ModelTensor("p", MAPS, ())], [])
    assert "options={id(model): {'zipmap': False}}" in caught.value.hint
    assert "`model-registry init` remove it, as for CatBoost" in caught.value.hint
    with pytest.raises(Refused, match="output 'p' is a sequence, not a tensor") as caught:
        draft_outputs.draft_answers([LABEL, ModelTensor("p", "a sequence", ())], [])
    assert "(MultiOutputClassifier) export each as a model" in caught.value.hint
