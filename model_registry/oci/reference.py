"""References to a repository and a version in it: `oci:FOLDER[:TAG|@DIGEST]` or `HOST/PATH[:TAG|@DIGEST]`.

FOLDER is the path of an OCI image layout, which holds one repository. The tag follows the last `:` after the last `/`.
"""

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from model_registry.errors import BadReference
from model_registry.oci.digests import is_digest

FOLDER = "oci:"
EXAMPLE = "write oci:FOLDER:TAG, for instance oci:./registry/flight-delay:1.0.0"
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")  # OCI distribution-spec, "Pulling manifests"
_REMOTE = re.compile(  # host[:port]/path as in the distribution project's reference grammar
    r"(?P<host>localhost|[a-zA-Z0-9-]+(?:\.[a-zA-Z0-9-]+)+|[a-zA-Z0-9.-]+(?=:\d))(?P<port>:\d{1,5})?"
    r"/(?P<path>[a-z0-9]+(?:(?:\.|_{1,2}|-+|/)[a-z0-9]+)*)"
)


@dataclass(frozen=True, slots=True)
class ModelReference:
    """A reference to a repository, or to a tag or digest in it. `str()` returns text that `parse` accepts.

    Attributes:
        kind: "oci" for an OCI image layout in a folder, "remote" for a registry.
        repository: The absolute path of the folder (kind "oci"), or `host[:port]/path` (kind "remote").
        tag: The tag; None if there is none. At most one of `tag` and `digest` is set.
        digest: The digest; None if there is none.
    """

    kind: Literal["oci", "remote"]
    repository: str
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        version = f":{self.tag}" if self.tag else f"@{self.digest}" if self.digest else ""
        return f"{FOLDER if self.kind == 'oci' else ''}{self.repository}{version}"

    @property
    def name(self) -> str:
        """The model's name: the last part of the repository's path."""
        return self.repository.rpartition("/")[2]

    def bare(self) -> "ModelReference":
        """Return the reference without tag and digest."""
        return replace(self, tag=None, digest=None)


def parse(text: str, *, base_dir: Path | None = None) -> ModelReference:
    """Parse a reference. Relative folders are resolved from `base_dir`, by default the working directory.

    Raises:
        BadReference: The text is no reference; the hint shows the right form.
    """
    if not text.isprintable() or text != text.strip():
        raise BadReference(f"reference {text!r} starts or ends with a space, or has control characters", EXAMPLE)
    if text.startswith(f"{FOLDER}//"):
        registry = text.removeprefix(f"{FOLDER}//")
        raise BadReference(
            f"reference {text!r} names a registry after oci:, which is for folders",
            f"write {registry} for a registry, or {FOLDER}/FOLDER",
        )
    if text.startswith(FOLDER):
        path, tag, digest = _split(text.removeprefix(FOLDER), text)
        return ModelReference("oci", _folder(path, text, base_dir), tag, digest)
    repository, tag, digest = _split(text, text)
    if (match := _REMOTE.fullmatch(repository)) is None:
        raise BadReference(f"reference {text!r} is neither oci:FOLDER nor HOST/PATH", EXAMPLE)
    if match["port"] and int(match["port"][1:]) > 65_535:
        raise BadReference(f"reference {text!r} has the invalid port {match['port'][1:]}", "ports are 1 to 65535")
    return ModelReference("remote", repository, tag, digest)


def is_tag(text: str) -> bool:
    """Return whether a text is a valid tag."""
    return _TAG.fullmatch(text) is not None


def _split(rest: str, text: str) -> tuple[str, str | None, str | None]:
    """Split a reference without its prefix into repository, tag and digest; a missing tag or digest is None."""
    folder, slash, last = rest.rpartition("/")
    repository, at, digest = last.partition("@")
    if at:
        if ":" in repository:
            raise BadReference(f"reference {text!r} has both a tag and a digest", "remove one of them")
        if not is_digest(digest):
            raise BadReference(
                f"reference {text!r}: {digest!r} is not a valid digest", "a digest is sha256: and 64 hexadecimal digits"
            )
        return f"{folder}{slash}{repository}", None, digest
    repository, colon, tag = last.rpartition(":") if ":" in last else (last, "", "")
    if ":" in repository:
        raise BadReference(f"reference {text!r} has two colons after the last /", EXAMPLE)
    if colon and not is_tag(tag):
        raise BadReference(
            f"reference {text!r}: {tag!r} is not a valid tag",
            "a tag is 1 to 128 letters, digits, '.', '_' and '-', and begins with none of '.' and '-'",
        )
    return f"{folder}{slash}{repository}", tag or None, None


def _folder(path: str, text: str, base_dir: Path | None) -> str:
    if not path:
        raise BadReference(f"reference {text!r} names no folder", EXAMPLE)
    absolute = os.path.abspath((base_dir or Path.cwd()) / os.path.expanduser(path))  # noqa: PTH100, PTH111 - no symlink is followed
    if not (name := absolute.rpartition("/")[2]) or {":", "@"} & set(name):
        raise BadReference(f"reference {text!r}: the folder {absolute} has no usable name", EXAMPLE)
    return absolute
