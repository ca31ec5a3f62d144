"""Reads the inputs, outputs, operators, opsets and external weight references of an ONNX file, but not its weights."""

# The library `onnx` is not used, because it needs up to twice the size of the model in memory, cannot parse files of 2 GiB and
# more, and takes 31 MB on disk. Field numbers: onnx/onnx.proto.

import mmap
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from model_registry import atomic_files
from model_registry.errors import Corrupt
from model_registry.onnx_tools import export_hints, protobuf_reader
from model_registry.onnx_tools.declared_tensors import MAPS, UNKNOWN, ModelTensor, Shape
from model_registry.onnx_tools.protobuf_reader import Buffer, Span
from model_registry.untrusted_input.files import open_regular

MAX_DEPTH = 32  # most nested graphs
MAX_RANK = 64
DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
}
# Matches runs of an attribute's unpacked fields (floats, ints, strings): a tree ensemble has millions of them to skip.
_STRINGS = b"|".join(b"%s.{%d}" % (re.escape(bytes([n])), n) for n in range(24))
_NUMBERS = re.compile(rb"(?:\x3d.{4}|\x40[\x80-\xff]{0,9}[\x00-\x7f]|\x4a(?:" + _STRINGS + rb"))++", re.DOTALL)


@dataclass(frozen=True, slots=True)
class External:
    """A reference to weights in another file.

    Attributes:
        location: The path of that file as the model states it.
        offset: The position of the first byte of the weights.
        length: The number of bytes; None for all bytes to the end of the file.
    """

    location: str
    offset: int
    length: int | None


@dataclass(slots=True)
class OnnxFile:
    """The content of an ONNX file without its weights, as `read` returns it.

    Attributes:
        ir_version: The version of the ONNX file format.
        opsets: The version of the operator set of each domain; ONNX's own domain is ''.
        inputs: The inputs of the model.
        outputs: The outputs of the model.
        operators: The operators that the model uses, as (domain, name).
        functions: The operators that the file defines itself as functions, as (domain, name).
        external: The references to weights in other files.
    """

    ir_version: int = 0
    opsets: dict[str, int] = field(default_factory=dict)
    inputs: list[ModelTensor] = field(default_factory=list)
    outputs: list[ModelTensor] = field(default_factory=list)
    operators: set[tuple[str, str]] = field(default_factory=set)
    functions: set[tuple[str, str]] = field(default_factory=set)
    external: list[External] = field(default_factory=list)


def read(path: Path) -> OnnxFile:
    """Read the inputs, outputs, operators, opsets and references to external weights of an ONNX file.

    Raises:
        Corrupt: The file is not an ONNX file; the message names the file.
        Unreachable: The file cannot be read.
    """
    with atomic_files.report_os_errors(f"the model {path}"), open_regular(path) as stream:
        if not stream.seek(0, 2):
            raise Corrupt(f"{path} is empty", "export the model again")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            try:
                return parse(mapped)
            except Corrupt as error:
                raise Corrupt(f"{path} is not a valid ONNX file: {error}", export_hints.hint(path)) from None


def parse(data: mmap.mmap | bytes) -> OnnxFile:
    """Parse the bytes of an ONNX file as `read` does. Raises Corrupt."""
    onnx_file = _Reader(Buffer(data)).model()
    if not onnx_file.opsets or not onnx_file.outputs:
        raise Corrupt(
            f"the model has {len(onnx_file.opsets)} opsets and {len(onnx_file.outputs)} outputs; it must have at least "
            "one of each"
        )
    return onnx_file


class _Reader:
    """Reads a file once and collects the attributes of OnnxFile. Each method reads one type of ONNX's Protobuf messages."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._file = OnnxFile()
        self._constants: set[str] = set()

    def model(self) -> OnnxFile:
        onnx_file = self._file
        for number, value in protobuf_reader.fields(self._buffer, (0, len(self._buffer.data))):
            if number == 1 and isinstance(value, int):
                onnx_file.ir_version = value
            elif isinstance(value, tuple):
                if number == 7:
                    self._graph(value, 0)
                elif number == 8:
                    self._opset(value)
                elif number == 25:
                    self._function(value)
        onnx_file.inputs = [tensor for tensor in onnx_file.inputs if tensor.name not in self._constants]
        return onnx_file

    def _opset(self, span: Span) -> None:
        domain = ""
        version = 0
        for number, value in protobuf_reader.fields(self._buffer, span):
            if number == 1 and isinstance(value, tuple):
                domain = self._buffer.text(value)
            elif number == 2 and isinstance(value, int):
                version = value
        self._file.opsets[_domain(domain)] = max(version, self._file.opsets.get(_domain(domain), 0))

    def _function(self, span: Span) -> None:
        names: dict[int, str] = {}
        for number, value in protobuf_reader.messages(self._buffer, span):
            if number in (1, 10):
                names[number] = self._buffer.text(value)
            elif number == 7:
                self._node(value, 0)
            elif number == 9:
                self._opset(value)
        self._file.functions.add((_domain(names.get(10, "")), names.get(1, "")))

    def _graph(self, span: Span, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise Corrupt(f"the graphs of the model are nested more than {MAX_DEPTH} levels deep")
        for number, value in protobuf_reader.messages(self._buffer, span):
            if number == 1:
                self._node(value, depth)
            elif number == 5:
                self._constants.add(self._tensor(value))
            elif number == 15:
                self._sparse(value)
            elif number in (11, 12) and depth == 0:
                (self._file.inputs if number == 11 else self._file.outputs).append(self._value_info(value))

    def _node(self, span: Span, depth: int) -> None:
        domain = name = ""
        for number, value in protobuf_reader.messages(self._buffer, span):
            if number == 4:
                name = self._buffer.text(value)
            elif number == 7:
                domain = self._buffer.text(value)
            elif number == 5:
                self._attribute(value, depth)
        self._file.operators.add((_domain(domain), name))

    def _attribute(self, span: Span, depth: int) -> None:
        kinds: dict[int, Callable[[Span], object]] = {
            5: self._tensor,
            10: self._tensor,
            22: self._sparse,
            23: self._sparse,
            6: lambda graph: self._graph(graph, depth + 1),
            11: lambda graph: self._graph(graph, depth + 1),
        }
        for number, value in protobuf_reader.messages(self._buffer, span, _NUMBERS):
            if number in kinds:
                kinds[number](value)

    def _sparse(self, span: Span) -> None:
        for number, value in protobuf_reader.messages(self._buffer, span):
            if number in (1, 2):
                self._constants.add(self._tensor(value))

    def _tensor(self, span: Span) -> str:
        """Read a TensorProto, record its references to external weights, and return its name."""
        name = ""
        places = []
        for number, value in protobuf_reader.messages(self._buffer, span):
            if number == 8:
                name = self._buffer.text(value)
            elif number == 13:
                places.append(self._entry(value))
        if places:
            self._external(places)
        return name

    def _external(self, places: list[tuple[str, str]]) -> None:
        """Record every location of external weights in `places`, the (key, value) entries that a tensor states."""
        # Runtimes differ in which of several locations they use, so each must be checked.
        stated = dict(places)
        try:
            offset = int(stated.get("offset", "0"))
            length = int(stated["length"]) if "length" in stated else None
        except ValueError:
            raise Corrupt(f"the external data {stated!r:.200} has an offset or a length that is not a number") from None
        for location in {value for key, value in places if key == "location"} or {""}:
            self._file.external.append(External(location, offset, length))

    def _entry(self, span: Span) -> tuple[str, str]:
        pair = {
            number: self._buffer.text(value)
            for number, value in protobuf_reader.messages(self._buffer, span)
            if number in (1, 2)
        }
        return pair.get(1, ""), pair.get(2, "")

    def _value_info(self, span: Span) -> ModelTensor:
        name = ""
        dtype = UNKNOWN
        shape: Shape = ()
        for number, value in protobuf_reader.messages(self._buffer, span):
            if number == 1:
                name = self._buffer.text(value)
            elif number == 2:
                dtype, shape = self._type(value)
        return ModelTensor(name, dtype, shape)

    def _type(self, span: Span) -> tuple[str, Shape]:
        kinds = {4: "a sequence", 5: "a map", 8: "a sparse tensor", 9: "an optional"}
        dtype = UNKNOWN
        shape: Shape = ()
        for number, value in protobuf_reader.messages(self._buffer, span):
            if number in kinds:
                dtype = kinds[number]
                if number == 4 and self._holds_maps(value):
                    dtype = MAPS
            elif number == 1:
                dtype, shape = self._tensor_type(value)
        return dtype, shape

    def _holds_maps(self, sequence: Span) -> bool:
        """Return whether a sequence type has maps as its elements."""
        return any(
            kind == 5
            for number, element in protobuf_reader.messages(self._buffer, sequence)
            if number == 1
            for kind, _ in protobuf_reader.messages(self._buffer, element)
        )

    def _tensor_type(self, span: Span) -> tuple[str, Shape]:
        dtype = "undefined"
        shape: list[int | str | None] = []
        for number, value in protobuf_reader.fields(self._buffer, span):
            if number == 1 and isinstance(value, int):
                dtype = DTYPES.get(value, f"type {value}")
            elif number == 2 and isinstance(value, tuple):
                shape += [
                    self._dimension(dimension) for at, dimension in protobuf_reader.messages(self._buffer, value) if at == 1
                ]
        if len(shape) > MAX_RANK:
            raise Corrupt(f"a tensor has rank {len(shape)}; at most {MAX_RANK} is supported")
        return dtype, tuple(shape)

    def _dimension(self, span: Span) -> int | str | None:
        size: int | str | None = None
        for number, value in protobuf_reader.fields(self._buffer, span):
            if number == 1 and isinstance(value, int):
                size = value - (1 << 64) if value >> 63 else value
            elif number == 2 and isinstance(value, tuple):
                size = self._buffer.text(value) or None
        return size


def _domain(name: str) -> str:
    """Return the name of a domain; '' for 'ai.onnx', because both are names of ONNX's own domain."""
    return "" if name == "ai.onnx" else name
