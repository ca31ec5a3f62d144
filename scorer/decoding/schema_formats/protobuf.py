"""Reading of Protobuf messages with their writer's schema.

The protobuf library reads single messages. If the schema has a fixed layout (`fixed_width_decode.py`), whole batches are read
at once.

The value of a field that is missing in a message depends on the schema:
- If the schema declares a default, and the field is not in a oneof, the value is this default.
- If the field has no presence (as in proto3 by default), the value is zero.
- Otherwise the field counts as absent. An empty repeated field also counts as absent.

If the model's field is a text, an enum becomes its symbol, as in Avro. A wrapper (such as DoubleValue) becomes its value, or is
absent. A decimal (confluent.type.Decimal, or Debezium's type with a scale) becomes a number.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from model_registry.package import json_path
from model_registry.package.event_tree import Tree, is_array, length
from model_registry.untrusted_input.varint import encode_varint
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding import decimals
from scorer.decoding.passthrough_fields import Path, follow_path
from scorer.decoding.row_schema import RowSchema
from scorer.decoding.schema_formats.fixed_width_decode import (
    ConstantBytes,
    FixedLayout,
    FixedNumbers,
    Item,
    PrefixedBytes,
    VarintNumber,
    create_layout,
)
from scorer.decoding.tensors import Row
from scorer.decoding.unicode_text import NOT_UTF8, explain_not_utf8

Read = Callable[[Any], Any]
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
DECIMAL = frozenset({"value", "scale", "precision"})
"""The fields of a decimal; `precision` is optional."""
MAX_DEPTH = 100  # levels of nested messages, as in the protobuf library
MAX_SEARCHED = 1 << 16  # bytes of a message that is searched for invalid text: each of its fields becomes a Python object
WIRE_VARINT = 0
WIRE_64 = 1
WIRE_BYTES = 2
WIRE_32 = 5
FIXED = {
    FieldDescriptor.TYPE_FLOAT: (WIRE_32, "<f4"),
    FieldDescriptor.TYPE_DOUBLE: (WIRE_64, "<f8"),
    FieldDescriptor.TYPE_BOOL: (WIRE_VARINT, "?"),
}
VARINTS = {
    FieldDescriptor.TYPE_INT32: (False, 1 << 31),
    FieldDescriptor.TYPE_UINT32: (False, 1 << 32),
    FieldDescriptor.TYPE_SINT32: (True, 1 << 32),
    FieldDescriptor.TYPE_INT64: (False, 1 << 63),
    FieldDescriptor.TYPE_UINT64: (False, 1 << 63),
    FieldDescriptor.TYPE_SINT64: (True, 1 << 63),
}
"""For each varint type: whether the lowest bit is the sign, and the limit below which the varint is valid.

The protobuf library truncates greater varints.
"""


class ProtobufReader:
    """Reader of Protobuf messages of one type. Each message is parsed with one call of the protobuf library."""

    def __init__(self, message: Descriptor, fields: RowSchema, id_field: str | None) -> None:
        self._type = message
        self._new: Callable[[], Any] = message_factory.GetMessageClass(message)
        self._fields = fields
        texts = {field.name for field in fields.signature.fields if field.dtype == "string" and not field.raw}
        self._event = _object_reader(message, fields.tree, texts)
        lengths = {field.name: None if field.varies else field.array for field in fields.signature.fields}
        items = [None] if fields.nested else list(_message_items(message, lengths))
        self.layout: FixedLayout | None = create_layout(items, fields, id_field)

    def row(self, value: bytes, start: int) -> Row:
        """Return the row of the message that begins after a prefix of `start` bytes in the value. Raises Poison."""
        event = self._event(self._message(value, start))
        try:
            return self._fields.converted(event)
        except Poison as poison:  # proto2 permits invalid text, which the library returns as bytes
            if poison.reason is Reason.WRONG_TYPE and (error := _find_invalid_text(self._type, value[start:])):
                raise Poison(Reason.NOT_UTF8, error) from None
            raise

    def path_reader(self, paths: Sequence[Path]) -> Callable[[bytes, int], list[Any]]:
        reads = [(_object_reader(self._type, _path_tree(path), ()), path) for path in paths]

        def values(value: bytes, start: int) -> list[Any]:
            message = self._message(value, start)
            return [follow_path(read(message), path) for read, path in reads]

        return values

    def _message(self, value: bytes, start: int) -> Any:
        message = self._new()
        try:
            message.ParseFromString(value[start:] if start else value)
        except (DecodeError, ValueError) as error:
            if "UTF-8" in str(error):
                text_error = _find_invalid_text(self._type, value[start:])
                raise Poison(Reason.NOT_UTF8, text_error or f"a text in the message is {NOT_UTF8}") from None
            raise Poison(Reason.MALFORMED, f"the value does not match its Protobuf schema: {error}") from None
        return message


def _find_invalid_text(message: Descriptor, data: bytes, path: Path = ()) -> str | None:
    """Return the error of the first text in a message that is not UTF-8.

    The protobuf library does not parse a proto3 message with invalid text. Therefore this function reads the encoded message
    itself.

    Args:
        message: the type of the message.
        data: the encoded message.
        path: the path of the message in the event.

    Returns:
        The error text, which names the field; None if no text is invalid, or if the message is too large or cannot be read.
    """
    without_schema = Empty()
    try:
        without_schema.ParseFromString(data if len(data) <= MAX_SEARCHED else b"")
    except DecodeError:
        return None
    unknown_fields: Any = UnknownFieldSet(without_schema)
    for unknown in unknown_fields:
        field = message.fields_by_number.get(unknown.field_number)
        if field is None or unknown.wire_type != WIRE_BYTES:
            continue
        field_path = (*path, field.name)
        if field.type == FieldDescriptor.TYPE_STRING:
            try:
                unknown.data.decode()
            except UnicodeDecodeError as error:
                return f"field {json_path.format_path(field_path)!r} {explain_not_utf8(error)}"
            continue
        below = field.message_type if len(field_path) < MAX_DEPTH else None
        if below is not None and (text_error := _find_invalid_text(below, unknown.data, field_path)) is not None:
            return text_error
    return None


def _path_tree(path: Path) -> Tree:
    """Return the tree with only the field at this path."""
    below: Tree | str = ""
    for step in reversed(path):
        below = {step: below}
    assert not isinstance(below, str)
    return below


def _object_reader(message: Descriptor, part: Tree, texts: Container[str]) -> Read:
    """Create a function that reads the fields in `part` from a message, and returns their values by field name.

    Fields that the message type does not have are left out. `texts` has the names of the signature's text fields.
    """
    fields = message.fields_by_name
    reads = {
        name: _field_reader(fields[name], below, texts)
        for name, below in part.items()
        if isinstance(name, str) and name in fields
    }
    return lambda message_value: {name: read(message_value) for name, read in reads.items()}


def _field_reader(field: FieldDescriptor, below: Tree | str, texts: Container[str]) -> Read:
    """Create a function that reads one field of a message. The function returns None for an absent field.

    `below` is the name of the signature's field, or the tree of the fields to read inside this field.
    """
    name = field.name
    if field.is_repeated:
        read_elements = _repeated_reader(field, below, texts)
        return lambda message: read_elements(getattr(message, name))
    read_value = _value_reader(field, below, texts)
    stated = field.has_default_value and field.containing_oneof is None  # a default in the schema, of proto2 or of an edition
    if field.has_presence and not stated:
        return lambda message: read_value(getattr(message, name)) if message.HasField(name) else None
    return lambda message: read_value(getattr(message, name))


def _repeated_reader(field: FieldDescriptor, below: Tree | str, texts: Container[str]) -> Read:
    """Create a function that converts a repeated field to a list, or to None if it is empty. A map becomes a dict.

    `below` has the same meaning as for `_field_reader`.
    """
    message = field.message_type
    if message is not None and message.GetOptions().map_entry and not isinstance(below, str):
        value = message.fields_by_name["value"]
        reads = {str(key): _value_reader(value, part, texts) for key, part in below.items() if isinstance(key, str)}
        return lambda field_values: {str(key): reads[str(key)](field_values[key]) for key in field_values if str(key) in reads}
    if isinstance(below, str):
        read_value = _value_reader(field, below, texts)
        if read_value is _identity:
            return lambda field_values: list(field_values) or None
        return lambda field_values: list(map(read_value, field_values)) or None
    if not is_array(below):
        return lambda field_values: list(field_values) or None
    count = length(below)
    readers = {index: _value_reader(field, part, texts) for index, part in below.items()}
    if message is None:
        return lambda values: [readers.get(index, _identity)(value) for index, value in enumerate(values[:count])] or None
    return lambda values: (
        [readers[index](value) if index in readers else None for index, value in enumerate(values[:count])] or None
    )


def _value_reader(field: FieldDescriptor, below: Tree | str, texts: Container[str]) -> Read:
    """Create a function that converts one value. A scalar is unchanged; a message becomes a dict of its fields in `below`.

    If the model's field is a text, an enum becomes its symbol. A wrapper becomes its value. A decimal becomes a number.
    """
    message = field.message_type
    if not isinstance(below, str):
        return _identity if message is None else _object_reader(message, below, texts)
    if field.enum_type is not None and below in texts:
        symbols = {value.number: value.name for value in reversed(field.enum_type.values)}  # the first name of a number counts
        return lambda field_value: symbols.get(field_value, field_value)
    if message is None:
        return _identity
    if message.full_name in WRAPPERS:
        return lambda field_value: field_value.value
    fields = message.fields_by_name
    if {"value", "scale"} <= set(fields) <= DECIMAL and fields["value"].type == FieldDescriptor.TYPE_BYTES:
        return lambda field_value: decimals.number(field_value.value, field_value.scale)
    return _identity


def _identity(value: Any) -> Any:
    return value


def _message_items(message: Descriptor, lengths: Mapping[str, int | None]) -> Iterator[Item | None]:
    """Yield the layout items of an encoded message (see `fixed_width_decode.py`), in the order of the field numbers.

    Yield None for a field that layout items cannot describe, such as a nested message.

    Args:
        message: the type of the message.
        lengths: by field name, the number of elements of an array; None if the number varies or the field is no array.
    """
    for field in sorted(message.fields, key=lambda candidate: int(candidate.number)):
        if field.containing_oneof is not None and len(field.containing_oneof.fields) > 1:
            yield None
        elif field.is_repeated:
            yield from _packed_items(field, lengths.get(field.name) or 0)
        elif field.type in FIXED:
            wire, dtype = FIXED[field.type]
            yield ConstantBytes(_tag(field, wire))
            yield FixedNumbers(field.name, dtype)
        elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            yield ConstantBytes(_tag(field, WIRE_BYTES))
            yield PrefixedBytes(field.name, zigzag=False, raw=field.type == FieldDescriptor.TYPE_BYTES)
        elif field.type in VARINTS:
            zigzag, limit = VARINTS[field.type]
            yield ConstantBytes(_tag(field, WIRE_VARINT))
            yield VarintNumber(field.name, zigzag, limit)
        else:
            yield None


def _packed_items(field: FieldDescriptor, length: int) -> Iterator[Item | None]:
    """Yield the layout items of a repeated field; a single None if layout items cannot describe it.

    They can describe only a packed field of floats or doubles that always has the same number of elements, `length` > 0.
    """
    if not (length and field.is_packed and field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)):
        yield None
        return
    dtype, size = ("<f4", 4) if field.type == FieldDescriptor.TYPE_FLOAT else ("<f8", 8)
    yield ConstantBytes(_tag(field, WIRE_BYTES) + encode_varint(length * size))
    yield FixedNumbers(field.name, dtype, length)


def _tag(field: FieldDescriptor, wire: int) -> bytes:
    return encode_varint(field.number << 3 | wire)
