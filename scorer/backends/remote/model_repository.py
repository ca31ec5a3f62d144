"""The location of a version on model servers: its name on the servers, and its files in the folder that servers load from.

The optional `remote.json` of a package names a model that is already on the servers, or overrides the default names. The files
of a package for servers (`saved_model/` or `repository/`) are copied to the folder that servers load from.
"""

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

import msgspec

from model_registry.package import Package
from model_registry.untrusted_input import json_documents
from model_registry.untrusted_input.files import open_regular
from scorer.backends.base import ModelRefused

REMOTE = "remote.json"

MAX_BYTES = 1 << 16  # of remote.json


class RemoteModelName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The names of a version on the servers: the content of `remote.json`.

    Attributes:
        model: the name of the model on the server; if empty, the name of the package is used.
        version: the version on the server, an integer for TensorFlow Serving.
        label: the label of a version on the server, in place of `version`.
        signature: the name of the signature to call in a SavedModel.
    """

    model: str = ""
    version: str = ""
    label: str = ""
    signature: str = "serving_default"


def read_remote(package: Package) -> RemoteModelName:
    """Read the package's `remote.json`; return the default names if there is no such file. Raises ModelRefused."""
    path = package.folder / REMOTE
    if not path.is_file():
        return RemoteModelName()
    try:
        with open_regular(path) as stream:
            remote = json_documents.decode(stream.read(MAX_BYTES + 1), RemoteModelName, max_bytes=MAX_BYTES)
    except json_documents.UnreadableDocument as error:
        raise ModelRefused(f"{REMOTE}: {error}; the file may contain model, version, label and signature") from error
    if remote.version and remote.label:
        raise ModelRefused(
            f"{REMOTE}: version {remote.version!r} and label {remote.label!r} cannot both be set; set one of them"
        )
    return remote


def fingerprint(package: Package) -> str:
    """Return 64 hex digits that identify the content of the version. Raises ModelRefused if a file cannot be read."""
    if package.digest:
        return hashlib.sha256(package.digest.encode()).hexdigest()
    content = hashlib.sha256()
    try:
        for path in sorted(path for path in package.folder.rglob("*") if path.is_file()):
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            content.update(f"{path.relative_to(package.folder)}\0{digest}\0".encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise ModelRefused(f"cannot read the package in {package.folder}: {error}") from error
    return content.hexdigest()


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder atomically. Do nothing if `target` exists. Raises ModelRefused if `target` cannot be written."""
    if target.is_dir():
        return
    part = target.parent / f".{target.name}.{os.getpid()}.part"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, part, dirs_exist_ok=True)
        with contextlib.suppress(FileExistsError):
            part.rename(target)
    except OSError as error:
        hint = "model.server_folder is the folder that the servers load from"
        raise ModelRefused(f"cannot write the model to {target}: {error.strerror}; {hint}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
