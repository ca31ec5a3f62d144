"""Reading of Avro records with their writer's schema.

fastavro reads single records. If the schema has a fixed layout (`fixed_width_decode.py`), whole batches are read at once.
Logical types are read as their underlying types, except decimals, which become numbers. A field that is not in the schema
counts as absent.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_reader
from fastavro._read_py import schemaless_reader as python_reader
from fastavro.read import LOGICAL_READERS
from fastavro.schema import SchemaParseException, UnknownType

from model_registry.package import json_path
from model_registry.untrusted_input import json_documents
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
from scorer.decoding.schema_formats.schema import BadSchema, Schema
from scorer.decoding.tensors import Row
from scorer.decoding.unicode_text import NOT_UTF8, explain_not_utf8

DECIMAL = "scorestream-decimal"
"""The logical type that makes fastavro read decimals as numbers. Avro's type `decimal` would return rounded Decimal objects."""
VARIABLE = "io.debezium.data.VariableScaleDecimal"
NAMED = {"record", "error", "enum", "fixed"}
TYPES = NAMED | {"array", "map", "null", "boolean", "int", "long", "float", "double", "string", "bytes"}
PARTS = ("type", "fields", "items", "values")
"""The keys of a schema whose values are schemas."""
READ = (*PARTS, "name", "namespace", "symbols", "size", "scale")
"""The keys of a schema that are needed to read a record."""
VALUE = "value"
EVENT = {"type": "record", "name": "__Event__"}
"""A record type whose only field is the event. fastavro resolves referenced types only inside a record."""
READ_FAULTS = (ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError, StopIteration, RecursionError)
ESCAPE_BYTES = "surrogateescape"
"""Python's error handler that represents each byte of invalid UTF-8 as half of a surrogate pair."""
NUMBERS = {"float": "<f4", "double": "<f8", "boolean": "?"}


class AvroReader:
    """Reader of the Avro records of one writer's schema. Raises BadSchema if the schema is invalid."""

    def __init__(self, schema: Schema, fields: RowSchema, id_field: str | None) -> None:
        try:
            document = _parse_document(schema.text)
            references = _parse_references(map(_parse_document, dict.fromkeys(text for _, text in schema.references)))
            self._schema, named = _parse_schema(EVENT | {"fields": [{"name": VALUE, "type": document}]}, references)
            self._read = python_reader if _is_recursive(self._schema, named, frozenset(), set()) else schemaless_reader
            lengths = {field.name: None if field.varies else field.array for field in fields.signature.fields}
            items = [None] if fields.nested else list(_record(document, lengths))
            self.layout: FixedLayout | None = create_layout(items, fields, id_field)
        except UnknownType as error:
            raise BadSchema(
                f"invalid Avro schema: neither the schema nor its references define the type {error.name!r}"
            ) from error
        except (ValueError, TypeError, KeyError, SchemaParseException, RecursionError) as error:
            raise BadSchema(f"invalid Avro schema: {error!r}") from error
        self._fields = fields

    def row(self, value: bytes, start: int) -> Row:
        """Return the row of the record that begins after a prefix of `start` bytes in the value. Raises Poison."""
        return self._fields.converted(self._record(value, start))

    def path_reader(self, paths: Sequence[Path]) -> Callable[[bytes, int], list[Any]]:
        def values(value: bytes, start: int) -> list[Any]:
            event = self._record(value, start)
            return [follow_path(event, path) for path in paths]

        return values

    def _record(self, value: bytes, start: int) -> dict[str, Any]:
        stream = BytesIO(value)
        stream.seek(start)
        try:
            event = self._read(stream, self._schema, None)[VALUE]  # type: ignore[call-overload, index]
        except EOFError:
            raise Poison(Reason.MALFORMED, f"the {len(value)} bytes are not a complete record of the Avro schema") from None
        except UnicodeDecodeError:
            raise self._find_invalid_text(value, start) from None
        except READ_FAULTS as error:
            raise Poison(Reason.MALFORMED, f"the value does not match its Avro schema: {error!r}") from None
        if unread := len(value) - stream.tell():
            raise Poison(Reason.MALFORMED, f"{unread} bytes follow the Avro record")
        if not isinstance(event, dict):
            raise Poison(Reason.WRONG_TYPE, f"the event is an Avro {type(event).__name__}, not a record")
        return event

    def _find_invalid_text(self, value: bytes, start: int) -> Poison:
        """Return the error (Poison) for a record with a text that is not UTF-8. The error names the first invalid text."""
        stream = BytesIO(value)
        stream.seek(start)
        event = None
        with contextlib.suppress(EOFError, *READ_FAULTS):  # the text is the key of a map, or the record is not complete either
            event = self._read(stream, self._schema, None, handle_unicode_errors=ESCAPE_BYTES)[VALUE]  # type: ignore[call-overload, index]
        for path, text in _texts(event):
            try:
                text.encode("utf-8", ESCAPE_BYTES).decode()
            except UnicodeDecodeError as error:
                return Poison(Reason.NOT_UTF8, f"field {json_path.format_path(path)!r} {explain_not_utf8(error)}")
        return Poison(Reason.NOT_UTF8, f"a text or the key of a map in the Avro record is {NOT_UTF8}")


def _texts(part: Any, path: tuple[json_path.Step, ...] = ()) -> Iterator[tuple[tuple[json_path.Step, ...], str]]:
    """Yield the path and the text of each string in a decoded record."""
    if isinstance(part, str):
        yield path, part
    elif isinstance(part, dict | list):
        for step, element in part.items() if isinstance(part, dict) else enumerate(part):
            yield from _texts(element, (*path, step))


def _parse_document(text: str | bytes) -> Any:
    """Parse the JSON text of a schema, and convert it to a form that fastavro accepts. Raises ValueError."""
    return defined_once(readable(json_documents.ANY.decode(text)), "", {})


def readable(schema: Any) -> Any:
    """Reduce a schema to the keys in READ, which a reader needs, and mark its decimals with the logical type DECIMAL.

    A type name in the form `{"type": "n.Part"}`, which Java's library accepts, becomes `"n.Part"`. Defaults are left out,
    because no event needs them, and fastavro rejects some defaults that registries accept.
    """
    if isinstance(schema, list):
        return list(map(readable, schema))
    if not isinstance(schema, dict):
        return schema
    type_ = schema.get("type")
    if isinstance(type_, str) and type_ not in TYPES and "name" not in schema:
        return type_
    parts = {key: readable(value) if key in PARTS else value for key, value in schema.items() if key in READ}
    return parts | {"logicalType": DECIMAL} if _is_decimal(schema) else parts


def defined_once(schema: Any, namespace: str, defined: dict[str, Any]) -> Any:
    """Replace each repeated, identical definition of a named type by its name, because fastavro rejects repetitions.

    Args:
        schema: the schema, or a part of it.
        namespace: the enclosing namespace.
        defined: the previous definitions by full name. The call adds the definitions in `schema`.
    """
    if isinstance(schema, list):
        return [defined_once(part, namespace, defined) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    name = schema.get("name")
    if isinstance(kind, str) and kind in NAMED and isinstance(name, str):
        around = schema.get("namespace", namespace)
        name = name if "." in name or not around else f"{around}.{name}"
        definition = {key: value for key, value in schema.items() if key not in ("name", "namespace")}
        if name in defined and defined[name] == definition:
            return name
        defined.setdefault(name, definition)
        namespace = name.rpartition(".")[0]
    return {key: defined_once(value, namespace, defined) if key in PARTS else value for key, value in schema.items()}


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema describes decimals: Avro's type with a fixed scale, or Debezium's record with a scale field."""
    if schema.get("type") == "record":
        return VARIABLE in (schema.get("connect.name"), schema.get("name"), f"{schema.get('namespace')}.{schema.get('name')}")
    scale = schema.get("scale", 0)
    return (
        schema.get("type") in ("bytes", "fixed")
        and schema.get("logicalType") == "decimal"
        and type(scale) is int
        and 0 <= scale <= decimals.MAX_SCALE
    )


def _number(value: Any, schema: Any = None, _: Any = None) -> Any:
    """Convert a decimal that fastavro has read, as bytes or as a record of bytes and scale, to a number."""
    if isinstance(value, bytes):
        return decimals.number(value, schema.get("scale", 0))
    return value if (number := decimals.variable(value)) is None else number


LOGICAL_READERS |= {f"{type_}-{DECIMAL}": _number for type_ in ("bytes", "fixed", "record")}


def _parse_references(references: Iterable[Any]) -> dict[str, Any]:
    """Parse the schemas that a schema refers to, which may be in any order. Return all named types that they define.

    A referenced schema with a type that no schema defines is omitted. If the referring schema needs a type of an omitted
    schema, parsing the referring schema raises the error later.
    """
    named: dict[str, Any] = {}
    waiting = list(references)
    while waiting:
        missing: list[Any] = []
        for reference in waiting:
            try:
                _, named = _parse_schema(reference, named)
            except UnknownType:
                missing.append(reference)
        if len(missing) == len(waiting):
            break
        waiting = missing
    return named


def _parse_schema(schema: Any, named: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Parse a schema that may use the types `named`. Return the parsed schema, and all named types including its own.

    As in Java's library, a schema that has a namespace may refer to a type without a namespace by the type's simple name.

    Raises:
        UnknownType: A type is missing.
        SchemaParseException: The schema is invalid.
    """
    while True:
        attempt = dict(named)
        try:
            return parse_schema(schema, attempt), attempt
        except UnknownType as error:
            simple_name = error.name.rpartition(".")[2]
            if simple_name == error.name or simple_name not in attempt:
                raise
            named = {**named, error.name: attempt[simple_name]}


def _is_recursive(schema: Any, named: Mapping[str, Any], within: frozenset[str], finite: set[str]) -> bool:
    """Return whether a type of a parsed schema contains itself, so that its records may be nested to any depth.

    The compiled reader of fastavro 1.13.1 does not limit the depth. A record of 45 kB with 5,000 levels overflows the stack and
    crashes the process. fastavro's reader in Python raises RecursionError instead.

    Args:
        schema: the parsed schema, or a part of it.
        named: the named types.
        within: the names of the types that enclose this part.
        finite: the names of types that are known not to contain themselves. The call adds further names.
    """
    if isinstance(schema, list):
        return any(_is_recursive(part_schema, named, within, finite) for part_schema in schema)
    if isinstance(schema, str):
        if schema in within or schema in finite or schema not in named:
            return schema in within
        schema = named[schema]
    name = schema.get("name", "")
    if name in finite:
        return False
    kind = schema["type"]
    parts = [kind] if isinstance(kind, dict | list) else [field["type"] for field in schema.get("fields", ())]
    parts += [schema[part] for part in ("items", "values") if part in schema]
    recursive = _is_recursive(parts, named, within | ({name} - {""}), finite)
    finite |= {name} - {""}
    return recursive


def _record(schema: Any, lengths: Mapping[str, int | None]) -> Iterator[Item | None]:
    """Yield the layout items of an encoded record (see `fixed_width_decode.py`), field by field in order.

    Yield None for a field that layout items cannot describe, such as a map. A union of null and another type is described as
    the other type.

    Args:
        schema: the schema of the record.
        lengths: by field name, the number of elements of an array; None if the number varies or the field is no array.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        yield None
        return
    for field in schema["fields"]:
        yield from _type_items(field["type"], field["name"], lengths)


def _type_items(type_: Any, name: str, lengths: Mapping[str, int | None]) -> Iterator[Item | None]:
    if isinstance(type_, list):
        yield from _union_items(type_, name, lengths)
    elif isinstance(type_, dict):
        yield from _compound_items(type_, name, lengths)
    elif type_ in NUMBERS:
        yield FixedNumbers(name, NUMBERS[type_])
    elif type_ in ("string", "bytes"):
        yield PrefixedBytes(name, zigzag=True, raw=type_ == "bytes")
    elif type_ in ("int", "long"):
        yield VarintNumber(name, zigzag=True)
    elif type_ != "null":
        yield None


def _union_items(union: list[Any], name: str, lengths: Mapping[str, int | None]) -> Iterator[Item | None]:
    """Yield the layout items of a union of null and one other type; None for any other union."""
    values = [(branch, branch_type) for branch, branch_type in enumerate(union) if branch_type != "null"]
    if len(values) != 1:
        yield None
        return
    branch, value = values[0]
    yield ConstantBytes(encode_varint(2 * branch))
    yield from _type_items(value, name, lengths)


def _compound_items(type_: Mapping[str, Any], name: str, lengths: Mapping[str, int | None]) -> Iterator[Item | None]:
    """Yield the layout items of a type that the schema writes as a JSON object; None if layout items cannot describe it."""
    kind = type_["type"]
    length = lengths.get(name)
    if kind == "fixed":
        yield FixedNumbers(None, "u1", type_["size"])
    elif kind == "record":
        for field in type_["fields"]:
            yield from _type_items(field["type"], "", {})
    elif kind == "array" and length and type_["items"] in ("float", "double"):
        yield ConstantBytes(encode_varint(2 * length))
        yield FixedNumbers(name, NUMBERS[type_["items"]], length)
        yield ConstantBytes(b"\0")
    elif kind in ("array", "enum", "map"):
        yield None
    else:
        yield from _type_items(kind, name, lengths)
