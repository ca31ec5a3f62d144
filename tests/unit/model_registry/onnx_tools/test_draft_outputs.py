"""The outputs that a draft takes from a model."""

from model_registry.onnx_tools.declared_tensors import ModelTensor
from model_registry.onnx_tools.draft_outputs import draft_answer_to_one
from model_registry.package.placeholders import BLANK

IMAGE = ModelTensor("x", "float32", (1, 4))
FILE = ModelTensor("file", "uint8", (None,))
TOKENS = ModelTensor("ids", "int64", ("t",))


def test_an_open_first_dimension_is_a_length_if_no_input_has_one() -> None:
    document = draft_answer_to_one([ModelTensor("y", "int64", ("k",))], [IMAGE], [])
    assert document == {"output": {"tensor": "y", "shape": [-1]}}
    document = draft_answer_to_one([ModelTensor("y", "float32", ("k", 6))], [IMAGE], [])
    assert document == {"output": {"tensor": "y", "shape": [-1, 6]}}


def test_an_answer_for_each_token_is_as_long_as_the_event() -> None:
    document = draft_answer_to_one([ModelTensor("y", "float32", ("t", 9))], [TOKENS], [])
    assert document == {"output": {"tensor": "y", "shape": [-1, 9]}}


def test_the_user_states_whether_an_open_first_dimension_is_a_batch_of_one() -> None:
    document = draft_answer_to_one([ModelTensor("y", "float32", ("n", 9))], [FILE], [])["output"]["shape"]
    assert document == f"{BLANK}: [-1, 9] where the answer has any length, [9] where its first dimension is a batch of one"


def test_converters_leave_the_batch_of_a_model_of_one_event_open() -> None:
    for size in (None, "unk__7", "N", "batch_size"):
        shape = draft_answer_to_one([ModelTensor("y", "float32", (size, 3))], [IMAGE], [])["output"]["shape"]
        assert shape == f"{BLANK}: [-1, 3] where the answer has any length, [3] where its first dimension is a batch of one"


def test_a_row_as_long_as_the_event_is_a_list() -> None:
    sound = ModelTensor("x", "float32", (1, "T", 5))
    assert draft_answer_to_one([ModelTensor("y", "int64", (1, "T"))], [sound], []) == {"output": {"tensor": "y", "shape": [-1]}}
    assert draft_answer_to_one([ModelTensor("y", "int64", (1, None))], [sound], []) == {"output": {"tensor": "y"}}


def test_a_fixed_shape_needs_no_statement() -> None:
    assert draft_answer_to_one([ModelTensor("y", "float32", (1, 3))], [IMAGE], []) == {"output": {"tensor": "y"}}
    assert draft_answer_to_one([ModelTensor("y", "float32", ())], [IMAGE], []) == {"output": {"tensor": "y"}}
