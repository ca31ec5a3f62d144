"""Protobuf schemas that import others: at any depth, files that registries know, and errors without paths of this machine."""

import base64
import tempfile
from pathlib import Path

import pytest

from scorer.decoding.schema_formats import proto_files
from scorer.decoding.schema_formats.schema import BadSchema, Schema

INNER = 'syntax = "proto3"; package n.deep; message Inner { double b = 1; }'
PART = 'syntax = "proto3"; package n; import "n/deep/inner.proto"; message Part { deep.Inner inner = 1; }'
PUBLIC = 'syntax = "proto3"; package n; import public "n/deep/inner.proto";'


def compile_text(text: str, *references: tuple[str, str]) -> str:
    """Return the types of the first message's fields."""
    file = proto_files.compiled(Schema("protobuf", text, references))
    fields = next(iter(file.message_types_by_name.values())).fields
    return " ".join(field.message_type.full_name if field.message_type else str(field.type) for field in fields)


@pytest.mark.parametrize("flip", [False, True])
def test_imports_over_two_levels_come_in_any_order(flip: bool) -> None:
    references = [("n/part.proto", PART), ("n/deep/inner.proto", INNER)]
    text = 'syntax = "proto3"; import "n/part.proto"; message E { n.Part part = 1; }'
    assert compile_text(text, *(reversed(references) if flip else references)) == "n.Part"


def test_a_public_import_re_exports_its_messages() -> None:
    text = 'syntax = "proto3"; import "all.proto"; message E { n.deep.Inner inner = 1; }'
    assert compile_text(text, ("all.proto", PUBLIC), ("n/deep/inner.proto", INNER)) == "n.deep.Inner"


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("google/protobuf/wrappers.proto", "google.protobuf.DoubleValue"),
        ("google/type/money.proto", "google.type.Money"),
        ("google/type/datetime.proto", "google.type.DateTime"),
        ("confluent/type/decimal.proto", "confluent.type.Decimal"),
        ("confluent/meta.proto", "confluent.Meta"),
    ],
)
def test_well_known_files_of_registries_need_no_reference(name: str, type_: str) -> None:
    assert compile_text(f'syntax = "proto3"; import "{name}"; message E {{ {type_} one = 1; }}') == type_
    part = f'syntax = "proto3"; import public "{name}";'
    text = f'syntax = "proto3"; import "part.proto"; message E {{ {type_} one = 1; }}'
    assert compile_text(text, ("part.proto", part)) == type_


def test_a_schema_may_be_a_descriptor_in_base64() -> None:
    references = [("n/part.proto", PART), ("n/deep/inner.proto", INNER)]
    text = 'syntax = "proto3"; import "n/part.proto"; import "confluent/meta.proto"; message E { n.Part part = 1; }'
    file = proto_files.compiled(Schema("protobuf", text, tuple(references)))
    encoded = base64.b64encode(file.serialized_pb).decode()
    assert compile_text(encoded, *references) == "n.Part"
    [part] = [dependency for dependency in file.dependencies if dependency.name == "n/part.proto"]
    references[0] = ("n/part.proto", base64.b64encode(part.serialized_pb).decode())
    assert compile_text(text, *references) == "n.Part"


def test_a_reference_comes_before_a_known_file() -> None:
    registered_file = 'syntax = "proto3"; package confluent; message Custom { int32 n = 1; }'
    text = 'syntax = "proto3"; import "confluent/meta.proto"; message E { confluent.Custom one = 1; }'
    assert compile_text(text, ("confluent/meta.proto", registered_file)) == "confluent.Custom"


@pytest.mark.parametrize(
    ("references", "error"),
    [
        ([], "n/part.proto: File not found"),
        ([], "; register the file, and refer to it in the schema"),
        ([("n/part.proto", "message {")], "n/part.proto:1:"),
        ([("n/part.proto", PART)], "n/deep/inner.proto: File not found"),
        ([("n/part.proto", PART), ("n/deep/inner.proto", 'import "n/part.proto";')], "recursively imports"),
        ([("n", PART), ("n/part.proto", PART)], "'n/part.proto', which cannot be a file: "),
        ([("x" * 999, PART)], "which cannot be a file: File name too long"),
        ([("a\0b", PART)], "which cannot be a file: embedded null"),
        ([("/etc/x.proto", PART)], "'/etc/x.proto', which is not a relative path"),
        ([("../x.proto", PART)], "'../x.proto', which is not a relative path"),
        ([("\ud800.proto", PART)], "which cannot be a file: "),
    ],
)
def test_errors_are_named_without_paths_of_this_machine(references: list[tuple[str, str]], error: str) -> None:
    text = 'syntax = "proto3"; import "n/part.proto"; message E { n.Part part = 1; }'
    with pytest.raises(BadSchema) as raised:
        compile_text(text, *references)
    assert error in str(raised.value)
    for path in (tempfile.gettempdir(), str(Path(proto_files.__file__).parents[3]), "site-packages"):
        assert path not in str(raised.value)


def test_no_reference_is_run(tmp_path: Path) -> None:
    """Modules of these names would be imported by the compiler if it ran in the folder of the schema's files."""
    program = f"open({str(tmp_path / 'ran')!r}, 'w')"
    references = [(name, program) for name in ("grpc_tools/__init__.py", "grpc_tools/protoc.py", "os.py", "sitecustomize.py")]
    assert compile_text('syntax = "proto3"; message E { float a = 1; }', *references) == "2"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["Outer.Inner", "n.deep.Outer.Inner"])
def test_a_message_inside_another_is_found_by_its_name(name: str) -> None:
    text = 'syntax = "proto3"; package n.deep; message Outer { message Inner { float a = 1; } }'
    file = proto_files.compiled(Schema("protobuf", text))
    assert proto_files.message_named(file, name).full_name == "n.deep.Outer.Inner"
    for invalid_name in ("Inner", "Outer.Other", "Outer.Inner.a", ""):
        with pytest.raises(BadSchema, match="the schema has no message"):
            proto_files.message_named(file, invalid_name)
