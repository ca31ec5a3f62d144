"""Protobuf schemas to message types: `.proto` text through protoc, or a descriptor set that protoc has written."""

import base64
import importlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from scorer.decoding.schema_formats.schema import BadSchema, Schema

NAME = "__event__.proto"  # as no other file is named
IMPORT = re.compile(r'\bimport\s+(?:public\s+|weak\s+)?["\']([^"\']+)["\']')
KNOWN = re.compile(r"(?:confluent|google/(?:api|rpc|type))/[a-z0-9_/]+\.proto")
"""Files that registries know, so that no schema refers to them; those of google/protobuf come with protoc."""
LOG_LINES = re.compile(r"^(?:WARNING: All log|[IWE]\d{4} ).*\n", re.MULTILINE)
"""Lines of protoc that are no errors."""
MISSING = ": File not found."
KNOWN_IN = {"confluent": "confluent_kafka.schema_registry."}
"""The packages with their modules, by the first part of their names."""
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
    texts = {**dict(schema.references), NAME: schema.text}
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder, "sources").resolve()
        sources.mkdir()
        encoded = {name: file for name, text in texts.items() if (file := _encoded(name, text)) is not None}
        for name, text in texts.items():
            if name not in encoded:
                _write(sources, name, text)
        imports = {name for file in encoded.values() for name in file.dependency}.union(*map(IMPORT.findall, texts.values()))
        known = _known_files(filter(KNOWN.fullmatch, imports)) | encoded
        Path(folder, "known").write_bytes(descriptor_pb2.FileDescriptorSet(file=known.values()).SerializeToString())
        _protoc(sources)
        return described(Path(folder, "set").read_bytes())


def _write(folder: Path, name: str, text: str) -> None:
    """Write a file that may be imported. Raises BadSchema, whose text has no path of this machine."""
    try:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder):
            raise BadSchema(f"the schema refers to {name!r:.200}, which is no relative path")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadSchema(f"the schema refers to {name!r:.200}, which cannot be a file: {reason}") from error


def _encoded(name: str, text: str) -> FileDescriptorProto | None:
    """Return the file of a text that is no source but a descriptor in base64, as Apicurio's serialisers may register it."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
        file.name = name
    except (ValueError, DecodeError):
        return None
    return file


def _known_files(names: Iterable[str]) -> dict[str, FileDescriptorProto]:
    """Return the known files of these names, with what they import in turn, by their names."""
    found: dict[str, FileDescriptorProto] = {}

    def add(file: FileDescriptor) -> None:
        for one in file.dependencies:
            add(one)
        found[file.name] = FileDescriptorProto.FromString(file.serialized_pb)

    for name in sorted(names):
        module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
        with suppress(ImportError, TypeError):  # protoc reports the missing file
            add(importlib.import_module(KNOWN_IN.get(name.partition("/")[0], "") + module).DESCRIPTOR)
    return found


def _protoc(sources: Path) -> None:
    """Compile NAME with the files that it imports into the file `set` beside their folder.

    Python must not run in that folder: it would import modules from untrusted files.

    Raises:
        BadSchema: What protoc reports, without paths of this machine.
    """
    with as_file(files("grpc_tools") / "_proto") as known:
        folders = [f"-I{sources}", f"-I{known}", f"--descriptor_set_in={sources.parent}/known"]
        output = ["--include_imports", f"--descriptor_set_out={sources.parent}/set"]
        program = [sys.executable, "-m", "grpc_tools.protoc", *folders, *output, NAME]
        try:
            done = subprocess.run(program, capture_output=True, timeout=COMPILE_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise BadSchema(f"no Protobuf schema: protoc needs more than {COMPILE_SECONDS} s") from None
        if done.returncode:
            report = LOG_LINES.sub("", done.stderr.decode(errors="replace")).strip()
            if MISSING in report:
                report += "; register the file, and refer to it in the schema"
            for folder in (sources, sources.parent, known):
                report = report.replace(f"{folder}/", "")
            raise BadSchema(f"no Protobuf schema: {report}")


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
    """Return the message of that name (with its package or without; `Outer.Inner`), or the only one. Raises BadSchema."""
    messages = dict(file.message_types_by_name)
    if name is None and len(messages) == 1:
        return next(iter(messages.values()))
    if name is None:
        raise BadSchema(f"it has the messages {', '.join(messages)}; say which with input.message")
    outer, *inner = name.removeprefix(f"{file.package}.").split(".")
    found = messages.get(outer)
    for one in inner:
        found = found and found.nested_types_by_name.get(one)
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
