"""Compilation of Protobuf schemas to message descriptors.

A schema is `.proto` text, which protoc compiles, or a descriptor set, which is the output of protoc.
"""

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

NAME = "__event__.proto"  # a name that no other file has
IMPORT = re.compile(r'\bimport\s+(?:public\s+|weak\s+)?["\']([^"\']+)["\']')
REGISTRY_FILES = re.compile(r"(?:confluent|google/(?:api|rpc|type))/[a-z0-9_/]+\.proto")
"""Names of files that schemas may import without a reference in the registry. protoc itself provides google/protobuf."""
LOG_LINES = re.compile(r"^(?:WARNING: All log|[IWE]\d{4} ).*\n", re.MULTILINE)
"""Lines in protoc's output that are no errors."""
MISSING = ": File not found."
MODULE_PREFIXES = {"confluent": "confluent_kafka.schema_registry."}
"""First folder of a file in REGISTRY_FILES -> prefix of the Python module that contains the file's descriptor."""
COMPILE_SECONDS = 10  # protoc takes 0.1 s


def compiled(schema: Schema) -> FileDescriptor:
    """Return the file descriptor of a schema. Raises BadSchema; if protoc rejects the schema, the error has protoc's report."""
    file_or_error = _compiled_once(schema)
    if isinstance(file_or_error, str):
        raise BadSchema(file_or_error)
    return file_or_error


@lru_cache(maxsize=1_000)
def _compiled_once(schema: Schema) -> FileDescriptor | str:
    """Return the file descriptor of a schema, or the error as text if the schema is invalid. Both results are cached.

    Errors are cached too because protoc takes 100 ms, and many events may have the same invalid schema.
    """
    try:
        return _compile(schema)
    except BadSchema as error:
        return str(error)


def _compile(schema: Schema) -> FileDescriptor:
    if isinstance(schema.text, bytes):
        return described(schema.text)
    texts = {**dict(schema.references), NAME: schema.text}
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder, "sources").resolve()
        sources.mkdir()
        encoded = {name: file for name, text in texts.items() if (file := _decode_descriptor(name, text)) is not None}
        for name, text in texts.items():
            if name not in encoded:
                _write(sources, name, text)
        imports = {name for file in encoded.values() for name in file.dependency}.union(*map(IMPORT.findall, texts.values()))
        registry_files = _registry_files(filter(REGISTRY_FILES.fullmatch, imports)) | encoded
        Path(folder, "known").write_bytes(descriptor_pb2.FileDescriptorSet(file=registry_files.values()).SerializeToString())
        _run_protoc(sources)
        return described(Path(folder, "set").read_bytes())


def _write(folder: Path, name: str, text: str) -> None:
    """Write a schema to a file that other schemas can import by its name.

    Raises BadSchema if the name is not a valid relative path. The error contains no path of this machine.
    """
    try:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder):
            raise BadSchema(f"the schema refers to {name!r:.200}, which is not a relative path")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadSchema(f"the schema refers to {name!r:.200}, which cannot be a file: {reason}") from error


def _decode_descriptor(name: str, text: str) -> FileDescriptorProto | None:
    """Decode a file descriptor from base64 text. Apicurio's serialisers may register a schema in this form.

    Returns:
        The file descriptor; None if the text is `.proto` source.
    """
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
        file.name = name
    except (ValueError, DecodeError):
        return None
    return file


def _registry_files(names: Iterable[str]) -> dict[str, FileDescriptorProto]:
    """Return the descriptors of registry files (see REGISTRY_FILES) and of the files that they import, by file name."""
    files_by_name: dict[str, FileDescriptorProto] = {}

    def add(file: FileDescriptor) -> None:
        for dependency in file.dependencies:
            add(dependency)
        files_by_name[file.name] = FileDescriptorProto.FromString(file.serialized_pb)

    for name in sorted(names):
        module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
        with suppress(ImportError, TypeError):  # protoc reports the missing file
            add(importlib.import_module(MODULE_PREFIXES.get(name.partition("/")[0], "") + module).DESCRIPTOR)
    return files_by_name


def _run_protoc(sources: Path) -> None:
    """Compile the file NAME in `sources`, and its imports. The output is the file `set` in the parent folder of `sources`.

    The output is a descriptor set. The working directory of the process must not be `sources`, because Python would import
    modules from untrusted files.

    Raises:
        BadSchema: protoc rejects the schema. The error has protoc's report, without paths of this machine.
    """
    with as_file(files("grpc_tools") / "_proto") as standard_files:
        folders = [f"-I{sources}", f"-I{standard_files}", f"--descriptor_set_in={sources.parent}/known"]
        output = ["--include_imports", f"--descriptor_set_out={sources.parent}/set"]
        program = [sys.executable, "-m", "grpc_tools.protoc", *folders, *output, NAME]
        try:
            completed = subprocess.run(program, capture_output=True, timeout=COMPILE_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise BadSchema(f"invalid Protobuf schema: protoc needs more than {COMPILE_SECONDS} s") from None
        if completed.returncode:
            report = LOG_LINES.sub("", completed.stderr.decode(errors="replace")).strip()
            if MISSING in report:
                report += "; register the file, and refer to it in the schema"
            for folder in (sources, sources.parent, standard_files):
                report = report.replace(f"{folder}/", "")
            raise BadSchema(f"invalid Protobuf schema: {report}")


def described(data: bytes) -> FileDescriptor:
    """Return the descriptor of the last file in a serialised descriptor set. Raises BadSchema."""
    pool = descriptor_pool.DescriptorPool()
    try:
        descriptors = descriptor_pb2.FileDescriptorSet.FromString(data).file
        for file in descriptors:
            pool.AddSerializedFile(file.SerializeToString())
        return pool.FindFileByName(descriptors[-1].name)
    except (DecodeError, TypeError, IndexError, KeyError) as error:
        raise BadSchema(f"invalid Protobuf descriptor set: {error!r}") from error


def message_named(file: FileDescriptor, name: str | None) -> Descriptor:
    """Return the message type with this name, such as `Outer.Inner`. The name may start with the package.

    If the name is None, return the only message type of the file. Raises BadSchema if there is no such message type, or if the
    name is None and the file has several message types.
    """
    messages = dict(file.message_types_by_name)
    if name is None and len(messages) == 1:
        return next(iter(messages.values()))
    if name is None:
        raise BadSchema(f"the schema has the messages {', '.join(messages)}; select one with input.message")
    outer, *inner = name.removeprefix(f"{file.package}.").split(".")
    message = messages.get(outer)
    for inner_name in inner:
        message = message and message.nested_types_by_name.get(inner_name)
    if message is None:
        raise BadSchema(f"the schema has no message {name!r}, only {', '.join(messages)}")
    return message


def message_at(file: FileDescriptor, path: list[int]) -> Descriptor:
    """Return the message type at a path of indices.

    The first index selects a type of the file. Each further index selects a nested type of the previously selected type. Raises
    BadSchema if the path does not exist.
    """
    try:
        message = list(file.message_types_by_name.values())[path[0]]
        for index in path[1:]:
            message = message.nested_types[index]
    except IndexError:
        raise BadSchema(f"the schema has no message at the index path {path}") from None
    return message
