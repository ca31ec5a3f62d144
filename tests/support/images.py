"""PNG files, and models with uint8 inputs such as a whole image file."""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from tests.support import models

DOMAIN = "com.microsoft.extensions"
FILE = {"name": "image", "bytes": True, "max_length": 2_000_000}
COLOUR: dict[str, Any] = {
    "inputs": [{"tensor": "image", "dtype": "uint8", "shape": [-1], "batch": False, "fields": [FILE]}],
    "output": {"tensor": "y"},
}
"""The signature of the model `colour`."""


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return the PNG file of an image; `pixels` (H, W, 3) are red, green and blue."""
    height, width, _ = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def plain(red: int, green: int, blue: int, height: int = 5, width: int = 7) -> bytes:
    """Return the PNG file of an image of one colour."""
    return png(np.full((height, width, 3), (red, green, blue), np.uint8))


def colour(path: Path, name: str = "size") -> None:
    """Write a model: y (3,) = the mean blue, green and red of an image file (n,).

    An operator of the library onnxruntime-extensions decodes the file. `name` is the name of the input's dimension n.
    """
    nodes = [
        helper.make_node("DecodeImage", ["image"], ["pixels"], domain=DOMAIN),
        helper.make_node("Cast", ["pixels"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["numbers"], ["y"], axes=[0, 1], keepdims=0),
    ]
    image, y = models.tensor("image", TensorProto.UINT8, name), models.tensor("y", TensorProto.FLOAT, 3)
    graph = helper.make_graph(nodes, "test", [image], [y])
    domains = [*models.OPSET, helper.make_opsetid(DOMAIN, 1)]
    onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=8), str(path))


def total(path: Path, kind: int = TensorProto.UINT8) -> None:
    """Write a model: y (B,) = 100 * (sum of each row of x (B, N)) + n (B,)."""
    nodes = [
        helper.make_node("Cast", ["x"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["numbers", "one"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["sum", "hundred"], ["much"]),
        helper.make_node("Add", ["much", "n"], ["y"]),
    ]
    inputs = [models.tensor("x", kind, "B", "N"), models.tensor("n", TensorProto.FLOAT, "B")]
    constants = [models.constant("one", [1], np.int64), models.constant("hundred", 100)]
    models.save(nodes, inputs, [models.tensor("y", TensorProto.FLOAT, "B")], path, constants)
