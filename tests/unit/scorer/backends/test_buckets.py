"""The selected batch sizes, how a batch is cut to them, and the outputs of a model that is bound to them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from model_registry import package
from model_registry.onnx_tools.declared_tensors import ModelTensor
from scorer.backends import select
from scorer.backends.base import InferenceFailed, ModelRefused
from scorer.backends.onnx.batch_buckets import CANDIDATES, pieces, select_sizes
from scorer.backends.onnx.io_binding import BindableSession, BucketBinding, BufferDevice, has_fixed_shapes
from scorer.backends.onnx.onnx_runtime import OnnxModel
from scorer.settings.model import ModelSettings
from tests.support import models
from tests.support.graphs import Graph

CASTS = {"z": TensorProto.DOUBLE, "h": TensorProto.FLOAT16, "i": TensorProto.INT8}
DTYPES = {"z": "float64", "h": "float16", "i": "int8"}
SIZES = st.lists(st.integers(1, 300), min_size=1, max_size=5, unique=True).map(sorted)


@given(st.integers(1, 5_000), SIZES)
def test_pieces_have_every_row_once_in_order_with_the_least_padding(rows: int, sizes: list[int]) -> None:
    cut = pieces(rows, sizes)
    assert [row for start, stop, _ in cut for row in range(start, stop)] == list(range(rows))
    for start, stop, bucket in cut:
        assert bucket in sizes
        assert not any(stop - start <= smaller < bucket for smaller in sizes)
    assert all(bucket == stop - start == sizes[-1] for start, stop, bucket in cut[:-1])


@pytest.mark.parametrize(
    ("curve", "sizes"),
    [
        (
            {size: 1e-4 + 1e-6 * size for size in CANDIDATES},
            (8, 32, 128, 512, 2_048),
        ),  # a batch of 1 costs about as much as one of 8
        (dict.fromkeys(CANDIDATES, 1e-3), (2_048,)),  # only the launch costs time
        ({size: 1e-3 * size for size in CANDIDATES}, (1,)),  # a batch saves no time
        ({1: 0.004}, (1,)),
    ],
)
def test_only_buckets_that_save_time_are_selected(curve: dict[int, float], sizes: tuple[int, ...]) -> None:
    assert select_sizes(curve) == sizes


@given(st.dictionaries(st.integers(1, 5_000), st.floats(1e-6, 10), min_size=1))
def test_at_least_one_bucket_is_selected(curve: dict[int, float]) -> None:
    sizes = select_sizes(curve)
    assert sizes
    assert sizes == tuple(sorted(set(sizes) & set(curve)))


def doubling(path: Path) -> None:
    """Write the model y = 2 (a + b), z = x as float64, h as float16, i as int8."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        *(helper.make_node("Cast", ["x"], [name], to=kind) for name, kind in CASTS.items()),
    ]
    weights = numpy_helper.from_array(np.full((2, 1), 2, np.float32), "w")
    casts = [models.tensor(name, kind, "N", 2) for name, kind in CASTS.items()]
    outputs = [models.tensor("y", TensorProto.FLOAT, "N", 1), *casts]
    models.save(nodes, [models.tensor("x", TensorProto.FLOAT, "N", 2)], outputs, path, [weights])


def directly(_: Any, run: Callable[[], None]) -> None:
    run()


@pytest.fixture(scope="module")
def bound(tmp_path_factory: pytest.TempPathFactory) -> BucketBinding:
    """Return the binding of a model to buckets of 1, 4 and 16 events on the CPU."""
    path = tmp_path_factory.mktemp("bound") / "model.onnx"
    doubling(path)
    casts = [ModelTensor(name, DTYPES[name], ("N", 2)) for name in CASTS]
    outputs = [ModelTensor("y", "float32", ("N", 1)), *casts]
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return BucketBinding(
        BindableSession(session, [ModelTensor("x", "float32", (None, 2))], outputs), BufferDevice(), (1, 4, 16)
    )


@settings(max_examples=30)
@given(st.integers(1, 60), st.integers(1, 60))
def test_outputs_do_not_depend_on_the_previous_content_of_the_buffers(bound: BucketBinding, first: int, second: int) -> None:
    inputs = [np.arange(2 * rows, dtype=np.float32).reshape(rows, 2) + rows for rows in (first, second)]
    outputs_of_runs = [bound.run({"x": x}, directly) for x in inputs]
    for x, outputs in zip(inputs, outputs_of_runs, strict=True):
        assert outputs["y"].tolist() == (2 * x.sum(axis=1, keepdims=True)).tolist()
        for name, dtype in DTYPES.items():
            assert outputs[name].dtype == dtype
            assert outputs[name].tolist() == x.astype(dtype).tolist()


def test_host_buffers_are_pinned_while_their_bucket_lives(tmp_path: Path) -> None:
    pinned: set[int] = set()
    models.linear(tmp_path / "m.onnx", 1.0)
    session = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    device = BufferDevice(pin=lambda b: pinned.add(b.ctypes.data), unpin=lambda b: pinned.discard(b.ctypes.data))
    model = BindableSession(session, [ModelTensor("x", "float32", (None, 2))], [ModelTensor("y", "float32", (None, 1))])
    bound = BucketBinding(model, device, (1, 8))
    assert len(pinned) == 2
    bound.keep((8,))
    assert (len(pinned), bound.sizes) == (1, (8,))
    bound.free()
    assert not pinned


def test_strings_and_free_shapes_are_not_bound() -> None:
    assert has_fixed_shapes([ModelTensor("x", "float32", ("N", 3)), ModelTensor("y", "int64", ("N",))])
    assert not has_fixed_shapes([ModelTensor("s", "string", ("N", 1))])
    assert not has_fixed_shapes([ModelTensor("x", "float32", ("N", "M"))])
    assert not has_fixed_shapes([ModelTensor("x", "float32", ())])


def open_model(folder: Path, write: Callable[[Path], None], sizes: list[int], **signature: Any) -> OnnxModel:
    """Open a package of this model with the product's backend and these buckets."""
    models.package(folder, write, {**models.LINEAR, **signature})
    model = select.backend_for(ModelSettings(source="oci:.", buckets=sizes)).open(package.read(folder, name="m", version="1"))
    assert isinstance(model, OnnxModel)
    return model


def test_named_buckets_are_the_models_buckets(tmp_path: Path) -> None:
    model = open_model(tmp_path / "m", lambda path: models.linear(path, 3.0), [32, 1])
    assert model.buckets == (1, 32)
    assert model.run({"x": np.ones((40, 2), np.float32)})["y"].tolist() == [[6.0]] * 40
    model.close()


def test_named_buckets_that_cannot_hold_the_model_are_refused(tmp_path: Path) -> None:
    def nested(path: Path) -> None:
        nodes = [helper.make_node("Identity", ["x"], ["y"])]
        output = models.tensor("y", TensorProto.FLOAT, "N", "width")
        models.save(nodes, [models.tensor("x", TensorProto.FLOAT, "N", "width")], [output], path)

    def with_other_row_count(path: Path) -> None:
        nodes = [helper.make_node("NonZero", ["x"], ["n"]), helper.make_node("Transpose", ["n"], ["y"])]
        output = models.tensor("y", TensorProto.INT64, "A", "B")
        models.save(nodes, [models.tensor("x", TensorProto.FLOAT, "N", 2)], [output], path)

    for name, write in (("nested", nested), ("others", with_other_row_count)):
        with pytest.raises(ModelRefused, match="bucket"):
            open_model(tmp_path / name, write, [8], decision=None)


def limited_to(max_rows: int) -> Callable[[Path], None]:
    """Return a writer of the model y = 2 (a + b) that fails for more than `max_rows` events, as if memory were short."""

    def write(path: Path) -> None:
        g = Graph()
        count = g("Gather", g("Shape", "x"), g.constant([0], np.int64), axis=0)
        nothing = g("Gather", g.constant(np.zeros(max_rows + 1)), count, axis=0)
        g("Add", g("MatMul", "x", g.constant([[2.0], [2.0]])), nothing, output="y")
        g.save(path, [models.X], [models.Y])

    return write


def test_sizes_that_exceed_the_memory_of_the_device_get_no_bucket(tmp_path: Path) -> None:
    model = open_model(tmp_path / "m", limited_to(32), [])
    model.bind(BufferDevice(), CANDIDATES, 60.0, choose=True)
    assert model.buckets
    assert model.buckets[-1] <= 32
    assert model.run({"x": np.ones((300, 2), np.float32)})["y"].tolist() == [[4.0]] * 300
    with pytest.raises(InferenceFailed):
        open_model(tmp_path / "none", limited_to(0), []).bind(BufferDevice(), CANDIDATES, 60.0, choose=True)
    with pytest.raises(ModelRefused, match="buckets of 1, 128"):
        open_model(tmp_path / "named", limited_to(32), [1, 128])
