"""Protobuf messages to rows of values: its own library reads them, and the message's fixed layout is found where it has one.

A field without presence that is not on the wire has its zero value, as Protobuf has it, and one with a default in the
schema its default. Another one with presence is absent then, and so is an empty repeated field. As in Avro, an enum is its
symbol for a field of text, a wrapper (DoubleValue and so on) is its value or absent, and a decimal (confluent.type.Decimal,
or Debezium's with its scale) is a number.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

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

Read = Callable[[Any], Any]
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
DECIMAL = frozenset({"value", "scale", "precision"})
"""The fields of a decimal, the last one not in all."""
WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 0, 1, 2, 5
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
"""Whether the sign is in the last bit, and the limit below which a varint is the number: the library cuts longer ones off."""


class ProtobufReader:
    def __init__(self, message: Descriptor, fields: RowSchema, id_field: str | None) -> None:
        self._type = message
        self._new: Callable[[], Any] = message_factory.GetMessageClass(message)
        self._fields = fields
        texts = {field.name for field in fields.signature.fields if field.dtype == "string" and not field.raw}
        self._event = _object(message, fields.tree, texts)
        lengths = {field.name: None if field.varies else field.array for field in fields.signature.fields}
        items = [None] if fields.nested else list(_items(message, lengths))
        self.layout: FixedLayout | None = create_layout(items, fields, id_field)

    def row(self, value: bytes, start: int) -> Row:
        """The values of the message behind the header of `start` bytes. Raises Poison."""
        return self._fields.converted(self._event(self._message(value, start)))

    def at(self, paths: Sequence[Path]) -> Callable[[bytes, int], list[Any]]:
        reads = [(_object(self._type, _alone(path), ()), path) for path in paths]

        def values(value: bytes, start: int) -> list[Any]:
            message = self._message(value, start)
            return [follow_path(read(message), path) for read, path in reads]

        return values

    def _message(self, value: bytes, start: int) -> Any:
        message = self._new()
        try:
            message.ParseFromString(value[start:] if start else value)
        except (DecodeError, ValueError) as error:
            raise Poison(Reason.MALFORMED, f"no message of its Protobuf schema: {error}") from None
        return message


def _alone(path: Path) -> Tree:
    """The tree of one field."""
    below: Tree | str = ""
    for step in reversed(path):
        below = {step: below}
    assert not isinstance(below, str)
    return below


def _object(message: Descriptor, part: Tree, texts: Container[str]) -> Read:
    """Return a function that reads the parts that the message type has; `texts` are the signature's fields of text."""
    known = message.fields_by_name
    reads = {name: _read(known[name], below, texts) for name, below in part.items() if isinstance(name, str) and name in known}
    return lambda found: {name: read(found) for name, read in reads.items()}


def _read(field: FieldDescriptor, below: Tree | str, texts: Container[str]) -> Read:
    """Return a function that reads a field of a message: its value, or an object or an array with the parts below."""
    name = field.name
    if field.is_repeated:
        each = _repeated(field, below, texts)
        return lambda message: each(getattr(message, name))
    one = _single(field, below, texts)
    stated = field.has_default_value and field.containing_oneof is None  # a default in the schema, of proto2 or of an edition
    if field.has_presence and not stated:
        return lambda message: one(getattr(message, name)) if message.HasField(name) else None
    return lambda message: one(getattr(message, name))


def _repeated(field: FieldDescriptor, below: Tree | str, texts: Container[str]) -> Read:
    """Return a function that makes an object of a map, and a list of another repeated field; None of an empty list."""
    message = field.message_type
    if message is not None and message.GetOptions().map_entry and not isinstance(below, str):
        value = message.fields_by_name["value"]
        reads = {str(key): _single(value, part, texts) for key, part in below.items() if isinstance(key, str)}
        return lambda found: {str(key): reads[str(key)](found[key]) for key in found if str(key) in reads}
    if isinstance(below, str):
        one = _single(field, below, texts)
        return (lambda found: list(found) or None) if one is _same else (lambda found: list(map(one, found)) or None)
    if not is_array(below):
        return lambda found: list(found) or None
    count, each = length(below), {place: _single(field, part, texts) for place, part in below.items()}
    if message is None:
        return lambda found: [each.get(at, _same)(one) for at, one in enumerate(found[:count])] or None
    return lambda found: [each[at](one) if at in each else None for at, one in enumerate(found[:count])] or None


def _single(field: FieldDescriptor, below: Tree | str, texts: Container[str]) -> Read:
    """Return a function that reads one value of a field: as it is, or the parts below, or what a well-known type stands for."""
    message = field.message_type
    if not isinstance(below, str):
        return _same if message is None else _object(message, below, texts)
    if field.enum_type is not None and below in texts:
        symbols = {value.number: value.name for value in reversed(field.enum_type.values)}  # the first of several names
        return lambda found: symbols.get(found, found)
    if message is None:
        return _same
    if message.full_name in WRAPPERS:
        return lambda found: found.value
    known = message.fields_by_name
    if {"value", "scale"} <= set(known) <= DECIMAL and known["value"].type == FieldDescriptor.TYPE_BYTES:
        return lambda found: decimals.number(found.value, found.scale)
    return _same


def _same(found: Any) -> Any:
    return found


def _items(message: Descriptor, wanted: Mapping[str, int | None]) -> Iterator[Item | None]:
    """The parts of most events: every field, in the order of the numbers. None: the layout differs from event to event.

    `wanted` are the signature's fields, with the length of those that are arrays.
    """
    for field in sorted(message.fields, key=lambda one: int(one.number)):
        if field.containing_oneof is not None and len(field.containing_oneof.fields) > 1:
            yield None
        elif field.is_repeated:
            yield from _packed(field, wanted.get(field.name) or 0)
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


def _packed(field: FieldDescriptor, length: int) -> Iterator[Item | None]:
    """The parts of a packed field of `length` floats; of any other repeated field None."""
    if not (length and field.is_packed and field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)):
        yield None
        return
    dtype, size = ("<f4", 4) if field.type == FieldDescriptor.TYPE_FLOAT else ("<f8", 8)
    yield ConstantBytes(_tag(field, WIRE_BYTES) + encode_varint(length * size))
    yield FixedNumbers(field.name, dtype, length)


def _tag(field: FieldDescriptor, wire: int) -> bytes:
    return encode_varint(field.number << 3 | wire)
