"""TensorFlow Serving's messages, and tensors in them.

Field numbers are those of tensorflow/serving (apis, config, util) and tensorflow (core/framework, core/protobuf).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorer.backends import InferenceFailed
from scorer.backends.servers.messages import define

DTYPES = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "string": 7,
    "int64": 9,
    "bool": 10,
    "uint16": 17,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}
_NAMES = {number: name for name, number in DTYPES.items()}
_VALUES = {
    "float32": "float_val",
    "float64": "double_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
}  # the other numbers are in int_val

M = define(
    "tensorflow.serving",
    {
        "Dim": {"size": (1, "int64")},
        "TensorShapeProto": {"dim": (2, "*Dim"), "unknown_rank": (3, "bool")},
        "TensorProto": {
            "dtype": (1, "int32"),
            "tensor_shape": (2, "TensorShapeProto"),
            "tensor_content": (4, "bytes"),
            "float_val": (5, "*float"),
            "double_val": (6, "*double"),
            "int_val": (7, "*int32"),
            "string_val": (8, "*bytes"),
            "int64_val": (10, "*int64"),
            "bool_val": (11, "*bool"),
            "half_val": (13, "*int32"),
            "uint32_val": (16, "*uint32"),
            "uint64_val": (17, "*uint64"),
        },
        "Int64Value": {"value": (1, "int64")},
        "ModelSpec": {
            "name": (1, "string"),
            "version": (2, "?Int64Value"),
            "signature_name": (3, "string"),
            "version_label": (4, "?string"),
        },
        "PredictRequest": {"model_spec": (1, "ModelSpec"), "inputs": (2, "@TensorProto"), "output_filter": (3, "*string")},
        "PredictResponse": {"outputs": (1, "@TensorProto"), "model_spec": (2, "ModelSpec")},
        "StatusProto": {"error_code": (1, "int32"), "error_message": (2, "string")},
        "GetModelStatusRequest": {"model_spec": (1, "ModelSpec")},
        "ModelVersionStatus": {"version": (1, "int64"), "state": (2, "int32"), "status": (3, "StatusProto")},
        "GetModelStatusResponse": {"model_version_status": (1, "*ModelVersionStatus")},
        "Specific": {"versions": (1, "*int64")},
        "ServableVersionPolicy": {"specific": (102, "Specific")},
        "ModelConfig": {
            "name": (1, "string"),
            "base_path": (2, "string"),
            "model_platform": (4, "string"),
            "model_version_policy": (7, "ServableVersionPolicy"),
        },
        "ModelConfigList": {"config": (1, "*ModelConfig")},
        "ModelServerConfig": {"model_config_list": (1, "ModelConfigList")},
        "ReloadConfigRequest": {"config": (1, "ModelServerConfig")},
        "ReloadConfigResponse": {"status": (1, "StatusProto")},
        "Any": {"type_url": (1, "string"), "value": (2, "bytes")},
        "GetModelMetadataRequest": {"model_spec": (1, "ModelSpec"), "metadata_field": (2, "*string")},
        "GetModelMetadataResponse": {"model_spec": (1, "ModelSpec"), "metadata": (2, "@Any")},
        "TensorInfo": {"name": (1, "string"), "dtype": (2, "int32"), "tensor_shape": (3, "TensorShapeProto")},
        "SignatureDef": {"inputs": (1, "@TensorInfo"), "outputs": (2, "@TensorInfo"), "method_name": (3, "string")},
        "SignatureDefMap": {"signature_def": (1, "@SignatureDef")},
    },
)


def encode(tensor: NDArray[Any], into: Any) -> None:
    """An array, or an object array of str, into a TensorProto."""
    for size in tensor.shape:
        into.tensor_shape.dim.add(size=size)
    if tensor.dtype == object:
        into.dtype = DTYPES["string"]
        into.string_val.extend(str(value).encode() for value in tensor.ravel().tolist())
    else:
        into.dtype = DTYPES[tensor.dtype.name]
        into.tensor_content = tensor.tobytes()


def decode(proto: Any) -> NDArray[Any]:
    """The array of a TensorProto, whichever field holds its values. Strings are an object array of str.

    Raises InferenceFailed: a dtype without a counterpart in numpy, or a count that is not the shape's.
    """
    shape = [dim.size for dim in proto.tensor_shape.dim]
    name = _NAMES.get(proto.dtype)
    try:
        if name == "string":
            return np.array([value.decode() for value in proto.string_val], object).reshape(shape)
        if name is None:
            raise ValueError(f"its dtype is TensorFlow's number {proto.dtype}")
        if proto.tensor_content:
            return np.frombuffer(proto.tensor_content, name).reshape(shape)
        if name == "float16":
            values = np.array(proto.half_val, np.uint16).view(np.float16)
        else:
            values = np.array(getattr(proto, _VALUES.get(name, "int_val")), name)
        count = int(np.prod(shape, dtype=np.int64))
        if 0 < len(values) < count:  # equal values at the end are sent once
            values = np.concatenate([values, np.repeat(values[-1:], count - len(values))])
        return values.reshape(shape)
    except (ValueError, UnicodeDecodeError) as error:
        raise InferenceFailed(f"an output cannot be read: {error}") from error
