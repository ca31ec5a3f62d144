"""Each exported function of the C sources has declared argument and result types.

Without a declaration ctypes passes an address as a C int of 32 bits, and the process ends with SIGSEGV.
"""

import ctypes
import re
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

from scorer.native import librdkafka, load
from scorer.native.compiler import SOURCES

DEFINITION = re.compile(
    r"^(?!static\b|typedef\b)(?P<type>\w[\w ]*[ *])(?P<name>\w+)\((?P<parameters>[^)]*)\)\s*\{", re.MULTILINE
)
NOT_CALLED_FROM_PYTHON = {
    "conf_init",  # librdkafka calls it when it loads the plugin
    "text_hash",  # other C sources call it
}
POINTER = "pointer"
TYPES = {
    "void": None,
    "bool": ctypes.c_bool,
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
}
"""The declaration of each C type that is no pointer."""

Types = tuple[Any, list[Any]]
"""The type of a function's result, and the types of its parameters."""


class RecordedLibrary:
    """A library that records the types which are declared for its functions."""

    def __init__(self) -> None:
        self.functions: defaultdict[str, Any] = defaultdict(lambda: SimpleNamespace(restype="undeclared", argtypes=[]))

    def __getattr__(self, name: str) -> Any:
        return self.functions[name]


def type_of(c_type: str) -> Any:
    """Return the declaration of a C type, given with or without the name of a parameter."""
    return POINTER if "*" in c_type else TYPES[c_type.split()[0]]


def exported_functions() -> dict[str, Types]:
    """Return the types of each exported function that Python calls, from the C sources."""
    functions = {}
    for source in SOURCES:
        for definition in DEFINITION.finditer(source.read_text()):
            if definition["name"] not in NOT_CALLED_FROM_PYTHON:
                parameters = [parameter for parameter in definition["parameters"].split(",") if parameter.strip() != "void"]
                functions[definition["name"]] = type_of(definition["type"]), list(map(type_of, parameters))
    return functions


def declared_functions() -> dict[str, Types]:
    """Return the declared types of each function."""
    library: Any = RecordedLibrary()
    load.declare_functions(library)
    load.declare_unlocked_functions(library)
    librdkafka.declare_functions(library)

    def plain(declared: Any) -> Any:
        return POINTER if declared in (ctypes.c_void_p, ctypes.c_char_p) else declared

    return {
        name: (plain(function.restype), list(map(plain, function.argtypes))) for name, function in library.functions.items()
    }


def test_each_exported_function_is_declared_with_the_types_of_its_definition() -> None:
    exported = exported_functions()
    assert {
        "json_members",
        "json_float_members",
        "avro_integers",
        "scanner_new",
        "kafka_newest",
        "records_write",
    } <= exported.keys()
    assert declared_functions() == exported
