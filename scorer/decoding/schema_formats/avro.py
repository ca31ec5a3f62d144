"""Avro records to rows of values: fastavro reads them by their writer's schema, whose fixed layout is found where it has one.

Logical types are read as the types under them, but for decimals: these are numbers. A field that the schema lacks is absent.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_reader
from fastavro._read_py import schemaless_reader as python_reader
from fastavro.read import LOGICAL_READERS
from fastavro.schema import SchemaParseException, UnknownType

from model_registry.untrusted_input import documents
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

DECIMAL = "scorestream-decimal"
"""A logical type of ours: numbers, where fastavro's would make decimals, rounded to the schema's precision."""
VARIABLE = "io.debezium.data.VariableScaleDecimal"
NAMED = {"record", "error", "enum", "fixed"}
TYPES = NAMED | {"array", "map", "null", "boolean", "int", "long", "float", "double", "string", "bytes"}
PARTS = ("type", "fields", "items", "values")
"""The keys of a schema with schemas below."""
READ = (*PARTS, "name", "namespace", "symbols", "size", "scale")
"""The keys of a schema that matter to a reader."""
VALUE = "value"
EVENT = {"type": "record", "name": "__Event__"}
"""A record around each event, which adds no byte to it: fastavro finds the types of references only below a record."""
READ_FAULTS = (ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError, StopIteration, RecursionError)
NUMBERS = {"float": "<f4", "double": "<f8", "boolean": "?"}


class AvroReader:
    """Reads records of one writer's schema. Raises BadSchema."""

    def __init__(self, schema: Schema, fields: RowSchema, id_field: str | None) -> None:
        try:
            document = _document(schema.text)
            references = _named(map(_document, dict.fromkeys(text for _, text in schema.references)))
            self._schema, named = _parsed(EVENT | {"fields": [{"name": VALUE, "type": document}]}, references)
            self._read = python_reader if _nests_in_itself(self._schema, named, frozenset(), set()) else schemaless_reader
            lengths = {field.name: None if field.varies else field.array for field in fields.signature.fields}
            items = [None] if fields.nested else list(_record(document, lengths))
            self.layout: FixedLayout | None = create_layout(items, fields, id_field)
        except UnknownType as error:
            raise BadSchema(f"no Avro schema: the type {error.name!r} is neither in it nor in its references") from error
        except (ValueError, TypeError, KeyError, SchemaParseException, RecursionError) as error:
            raise BadSchema(f"no Avro schema: {error!r}") from error
        self._fields = fields

    def row(self, value: bytes, start: int) -> Row:
        """The values of the record behind the header of `start` bytes. Raises Poison."""
        return self._fields.converted(self._record(value, start))

    def at(self, paths: Sequence[Path]) -> Callable[[bytes, int], list[Any]]:
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
            raise Poison(Reason.MALFORMED, f"{len(value)} bytes are no whole record of its Avro schema") from None
        except READ_FAULTS as error:
            raise Poison(Reason.MALFORMED, f"not of its Avro schema: {error!r}") from None
        if left := len(value) - stream.tell():
            raise Poison(Reason.MALFORMED, f"{left} bytes are left behind the Avro record")
        if not isinstance(event, dict):
            raise Poison(Reason.WRONG_TYPE, f"the event is an Avro {type(event).__name__}, not a record")
        return event


def _document(text: str | bytes) -> Any:
    """Return the schema that a text holds as fastavro takes it. Raises ValueError."""
    return defined_once(readable(documents.ANY.decode(text)), "", {})


def readable(schema: Any) -> Any:
    """Return the schema with what a reader needs: without logical types, but with ours where a decimal stands.

    A name as `{"type": "n.Part"}`, which Java's library takes too, becomes `"n.Part"`. Defaults are left out: no event needs
    them, and fastavro rejects a schema for one that registries take.
    """
    if isinstance(schema, list):
        return list(map(readable, schema))
    if not isinstance(schema, dict):
        return schema
    type_ = schema.get("type")
    if isinstance(type_, str) and type_ not in TYPES and "name" not in schema:
        return type_
    plain = {key: readable(value) if key in PARTS else value for key, value in schema.items() if key in READ}
    return plain | {"logicalType": DECIMAL} if _is_decimal(schema) else plain


def defined_once(schema: Any, namespace: str, defined: dict[str, Any]) -> Any:
    """Return the schema with a name in place of each type that is defined again in the same way, which fastavro rejects.

    `namespace` is that around the schema, `defined` are the types before it.
    """
    if isinstance(schema, list):
        return [defined_once(one, namespace, defined) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kind, name = schema.get("type"), schema.get("name")
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
    """Whether values of a type are decimals, with a scale in the schema or, as Debezium has it, beside each."""
    if schema.get("type") == "record":
        return VARIABLE in (schema.get("connect.name"), schema.get("name"), f"{schema.get('namespace')}.{schema.get('name')}")
    scale = schema.get("scale", 0)
    return (
        schema.get("type") in ("bytes", "fixed")
        and schema.get("logicalType") == "decimal"
        and type(scale) is int
        and 0 <= scale <= decimals.MOST_SCALE
    )


def _number(value: Any, schema: Any = None, _: Any = None) -> Any:
    """Return the number of a decimal that fastavro has read as bytes, or as a record of bytes and their scale."""
    if isinstance(value, bytes):
        return decimals.number(value, schema.get("scale", 0))
    return value if (number := decimals.variable(value)) is None else number


LOGICAL_READERS |= {f"{type_}-{DECIMAL}": _number for type_ in ("bytes", "fixed", "record")}


def _named(references: Iterable[Any]) -> dict[str, Any]:
    """Parse schemas that are referred to, in any order: one may need the types of another.

    A reference that cannot be parsed is left out: perhaps no event needs it, and otherwise the missing type is reported.
    """
    named: dict[str, Any] = {}
    waiting = list(references)
    while waiting:
        missing: list[Any] = []
        for reference in waiting:
            try:
                _, named = _parsed(reference, named)
            except UnknownType:
                missing.append(reference)
        if len(missing) == len(waiting):
            break
        waiting = missing
    return named


def _parsed(schema: Any, named: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Parse a schema that may use named types, and return it with all named types.

    As in Java's library a type without a namespace is found by its name from within another namespace.

    Raises:
        UnknownType: A type is missing.
        SchemaParseException: It is no schema.
    """
    while True:
        attempt = dict(named)
        try:
            return parse_schema(schema, attempt), attempt
        except UnknownType as error:
            alone = error.name.rpartition(".")[2]
            if alone == error.name or alone not in attempt:
                raise
            named = {**named, error.name: attempt[alone]}


def _nests_in_itself(schema: Any, named: Mapping[str, Any], within: frozenset[str], known: set[str]) -> bool:
    """Tell whether records of a parsed schema may be of any depth, because a type has a part of its own type.

    fastavro's compiled reader has no limit of depth: a record of 5,000 levels, 45 kB, overflows the stack and kills the process
    (1.13.1). Its reader in Python raises RecursionError. `within` are the named types around this part, `known` those that are
    already known to end.
    """
    if isinstance(schema, list):
        return any(_nests_in_itself(one, named, within, known) for one in schema)
    if isinstance(schema, str):
        if schema in within or schema in known or schema not in named:
            return schema in within
        schema = named[schema]
    name = schema.get("name", "")
    if name in known:
        return False
    kind = schema["type"]
    parts = [kind] if isinstance(kind, dict | list) else [field["type"] for field in schema.get("fields", ())]
    parts += [schema[part] for part in ("items", "values") if part in schema]
    found = _nests_in_itself(parts, named, within | ({name} - {""}), known)
    known |= {name} - {""}
    return found


def _record(schema: Any, wanted: Mapping[str, int | None]) -> Iterator[Item | None]:
    """The parts of most events, in their order; of a union with null, the other type. None: the layout differs by event.

    `wanted` are the signature's fields, with the length of those that are arrays.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        yield None
        return
    for one in schema["fields"]:
        yield from _items(one["type"], one["name"], wanted)


def _items(type_: Any, name: str, wanted: Mapping[str, int | None]) -> Iterator[Item | None]:
    if isinstance(type_, list):
        yield from _chosen(type_, name, wanted)
    elif isinstance(type_, dict):
        yield from _compound(type_, name, wanted)
    elif type_ in NUMBERS:
        yield FixedNumbers(name, NUMBERS[type_])
    elif type_ in ("string", "bytes"):
        yield PrefixedBytes(name, zigzag=True, raw=type_ == "bytes")
    elif type_ in ("int", "long"):
        yield VarintNumber(name, zigzag=True)
    elif type_ != "null":
        yield None


def _chosen(union: list[Any], name: str, wanted: Mapping[str, int | None]) -> Iterator[Item | None]:
    """The parts of a union: the type that is not null."""
    values = [(at, one) for at, one in enumerate(union) if one != "null"]
    if len(values) != 1:
        yield None
        return
    at, value = values[0]
    yield ConstantBytes(encode_varint(2 * at))
    yield from _items(value, name, wanted)


def _compound(type_: Mapping[str, Any], name: str, wanted: Mapping[str, int | None]) -> Iterator[Item | None]:
    """The parts of a type that the schema writes as an object."""
    kind, length = type_["type"], wanted.get(name)
    if kind == "fixed":
        yield FixedNumbers(None, "u1", type_["size"])
    elif kind == "record":
        for one in type_["fields"]:
            yield from _items(one["type"], "", {})
    elif kind == "array" and length and type_["items"] in ("float", "double"):
        yield ConstantBytes(encode_varint(2 * length))
        yield FixedNumbers(name, NUMBERS[type_["items"]], length)
        yield ConstantBytes(b"\0")
    elif kind in ("array", "enum", "map"):
        yield None
    else:
        yield from _items(kind, name, wanted)
