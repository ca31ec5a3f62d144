"""Protobuf messages of model servers, described in Python: no generated code, so neither TensorFlow nor a compiler is needed.

The messages live in a pool of their own: a process that also imports TensorFlow meets no second definition of a name. Only the
fields that are used are described; what else a server sends is skipped, as Protobuf does with unknown fields.
"""

from collections.abc import Mapping
from typing import Any

from scorer.backends import BackendMissing

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError as error:
    raise BackendMissing("gRPC is not installed", "pip install 'scorestream[grpc]'") from error

Fields = Mapping[str, tuple[int, str]]
"""Field name to its number and type: a scalar type of Protobuf or a message; `*` before it means repeated, `@` a map from
string to it, `?` one of the message's oneof."""

_TYPES = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _TYPES.TYPE_BOOL,
    "bytes": _TYPES.TYPE_BYTES,
    "double": _TYPES.TYPE_DOUBLE,
    "float": _TYPES.TYPE_FLOAT,
    "int32": _TYPES.TYPE_INT32,  # enums too: the same on the wire
    "int64": _TYPES.TYPE_INT64,
    "string": _TYPES.TYPE_STRING,
    "uint32": _TYPES.TYPE_UINT32,
    "uint64": _TYPES.TYPE_UINT64,
}


def define(package: str, messages: Mapping[str, Fields]) -> dict[str, Any]:
    """The message classes of a package, by name."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        _describe(file.message_type.add(name=name), package, fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _describe(message: Any, package: str, fields: Fields) -> None:
    for name, (number, kind) in fields.items():
        mark, bare = (kind[0], kind[1:]) if kind[0] in "*@?" else ("", kind)
        field = message.field.add(name=name, number=number)
        field.label = _TYPES.LABEL_REPEATED if mark in ("*", "@") else _TYPES.LABEL_OPTIONAL
        if mark == "@":
            entry = message.nested_type.add(name="".join(part.capitalize() for part in name.split("_")) + "Entry")
            entry.options.map_entry = True
            _describe(entry, package, {"key": (1, "string"), "value": (2, bare)})
            field.type, field.type_name = _TYPES.TYPE_MESSAGE, f".{package}.{message.name}.{entry.name}"
        elif bare in _SCALARS:
            field.type = _SCALARS[bare]
        else:
            field.type, field.type_name = _TYPES.TYPE_MESSAGE, f".{package}.{bare}"
        if mark == "?":
            if not message.oneof_decl:
                message.oneof_decl.add(name="choice")
            field.oneof_index = 0
