"""Tensors that are encoded and decoded in both protocols, and the forms that only servers send."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from scorer.backends.base import InferenceFailed
from scorer.backends.remote import oip_codec, tf_codec

NUMBERS = sorted(set(tf_codec.DTYPES) - {"string"})
SHAPES = arrays.array_shapes(min_dims=1, max_dims=3, max_side=4)
TEXTS = arrays.arrays(object, SHAPES, elements=st.text(max_size=5))
ARRAYS = st.sampled_from(NUMBERS).flatmap(lambda name: arrays.arrays(name, SHAPES)) | TEXTS


def encode_and_decode(tensor: Any) -> list[Any]:
    proto = tf_codec.M["TensorProto"]()
    tf_codec.encode(tensor, proto)
    parsed = tf_codec.M["TensorProto"].FromString(proto.SerializeToString())
    output = oip_codec.M["OutputTensor"](name="y", datatype=oip_codec.describe(tensor), shape=tensor.shape)
    return [tf_codec.decode(parsed), oip_codec.unpack(output, oip_codec.pack(tensor))]


@given(ARRAYS)
def test_decoded_arrays_equal_the_encoded_ones(tensor: Any) -> None:
    for decoded in encode_and_decode(tensor):
        assert decoded.dtype == tensor.dtype
        assert decoded.shape == tensor.shape
        assert decoded.tolist() == tensor.tolist() or tensor.dtype.kind == "f"
        if tensor.dtype.kind == "f":
            np.testing.assert_array_equal(decoded, tensor)


def four(**fields: Any) -> Any:
    """Return the values of a TensorFlow message of shape (4,)."""
    shape = tf_codec.M["TensorShapeProto"]()
    shape.dim.add(size=4)
    return tf_codec.decode(tf_codec.M["TensorProto"](tensor_shape=shape, **fields))


def test_typed_values_replace_content_and_the_last_one_is_repeated() -> None:
    assert four(dtype=1, float_val=[1.0, 2.0]).tolist() == [1.0, 2.0, 2.0, 2.0]
    assert four(dtype=19, half_val=[0x3C00]).tolist() == [1.0] * 4


@pytest.mark.parametrize(("dtype", "content"), [(1, b"123"), (8, b"")], ids=["cut off", "complex64"])
def test_unreadable_content_fails(dtype: int, content: bytes) -> None:
    with pytest.raises(InferenceFailed):
        four(dtype=dtype, tensor_content=content)


def test_typed_contents_are_read_if_raw_contents_are_missing() -> None:
    output = oip_codec.M["OutputTensor"](name="y", datatype="FP32", shape=[2, 1])
    output.contents.fp32_contents.extend([1.5, 2.5])
    assert oip_codec.unpack(output, None).tolist() == [[1.5], [2.5]]


@pytest.mark.parametrize(
    ("datatype", "raw"), [("BF16", b"1234"), ("BYTES", b"\x01"), ("FP32", b"123"), ("FP16", None)], ids=str
)
def test_invalid_raw_contents_are_an_error(datatype: str, raw: bytes | None) -> None:
    output = oip_codec.M["OutputTensor"](name="y", datatype=datatype, shape=[1, 1])
    with pytest.raises(ValueError):  # noqa: PT011 - several
        oip_codec.unpack(output, raw)
