"""Protobuf schemas to message types: `.proto` text through protoc, or a descriptor set that protoc has written."""

import subprocess
import sys
import tempfile
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError

from scorer.events.schemas.registry import BadSchema, Schema

NAME = "__event__.proto"  # as no other file is named
COMPILE_SECONDS = 10  # far more than it takes


def compiled(schema: Schema) -> FileDescriptor:
    """The file that a schema's text, or its descriptor set, describes. Raises BadSchema with what protoc says."""
    file_or_error = _compiled_once(schema)
    if isinstance(file_or_error, str):
        raise BadSchema(file_or_error)
    return file_or_error


@lru_cache(maxsize=1_000)
def _compiled_once(schema: Schema) -> FileDescriptor | str:
    """The file, or what is wrong: protoc takes 100 ms, and events may name every message of a schema, or a bad schema often."""
    try:
        return _compiled(schema)
    except BadSchema as error:
        return str(error)


def _compiled(schema: Schema) -> FileDescriptor:
    if isinstance(schema.text, bytes):
        return described(schema.text)
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name, text in (*schema.references, (NAME, schema.text)):
                _write(Path(folder).resolve(), name, text)
            done = _protoc(folder)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise BadSchema(f"no Protobuf schema: {error}") from error
        if done.returncode:
            raise BadSchema(f"no Protobuf schema: {done.stderr.decode(errors='replace').strip()}")
        return described(Path(folder, "set").read_bytes())


def _write(folder: Path, name: str, text: str) -> None:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder):
        raise BadSchema(f"the schema refers to {name!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _protoc(folder: str) -> subprocess.CompletedProcess[bytes]:
    """Compile what is in a folder, the files that it imports included, into the file `set` there."""
    with as_file(files("grpc_tools") / "_proto") as known:
        paths = [f"-I{folder}", f"-I{known}", "--include_imports", f"--descriptor_set_out={folder}/set"]
        program = [sys.executable, "-m", "grpc_tools.protoc", *paths, NAME]
        return subprocess.run(program, capture_output=True, timeout=COMPILE_SECONDS, check=False)


def described(data: bytes) -> FileDescriptor:
    """The last file of a descriptor set. Raises BadSchema."""
    pool = descriptor_pool.DescriptorPool()
    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(data).file
        for file in found:
            pool.AddSerializedFile(file.SerializeToString())
        return pool.FindFileByName(found[-1].name)
    except (DecodeError, TypeError, IndexError, KeyError) as error:
        raise BadSchema(f"no Protobuf descriptor set: {error!r}") from error


def message_named(file: FileDescriptor, name: str | None) -> Descriptor:
    """The message of that name (with its package or without), or the only one. Raises BadSchema."""
    messages = dict(file.message_types_by_name)
    if name is None and len(messages) == 1:
        return next(iter(messages.values()))
    if name is None:
        raise BadSchema(f"it has the messages {', '.join(messages)}; say which with input.message")
    found = messages.get(name.removeprefix(f"{file.package}."))
    if found is None:
        raise BadSchema(f"it has no message {name!r}, but {', '.join(messages)}")
    return found


def message_at(file: FileDescriptor, path: list[int]) -> Descriptor:
    """The message at a path of indices: of the file, then of the message so far. Raises BadSchema."""
    try:
        found = list(file.message_types_by_name.values())[path[0]]
        for at in path[1:]:
            found = found.nested_types[at]
    except IndexError:
        raise BadSchema(f"it has no message at {path}") from None
    return found
