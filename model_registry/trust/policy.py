"""What a scorer may load: a file that names the trusted keys, whether a signature is required, and the digests that are denied.

    signatures: required            # or optional: unsigned versions pass, badly signed ones do not
    names: required                 # or optional: a signature without a name passes, one under another name does not
    keys:
      - {id: release-2026, file: release-2026.pub}
      - {id: release-2025, file: release-2025.pub, not_after: 2027-01-31}
    denied:
      - sha256:...                  # never loaded, whoever signed it

Files of keys resolve from the policy's folder. A key vouches for nothing once its `not_after` has passed (a day counts to its
end, UTC): what only it signed has to be signed again by its successor before then.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, NoReturn

import yaml

from model_registry.errors import BadFile
from model_registry.oci.digest import is_digest
from model_registry.package.signature_file import nearest
from model_registry.trust import keys
from model_registry.trust.signing import TrustedKey

MAX_BYTES = 1 << 20
_REQUIRED, _OPTIONAL = "required", "optional"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy file as it was read from `path`."""

    path: Path
    required: bool
    keys: tuple[TrustedKey, ...]
    denied: frozenset[str]
    named: bool = False


def read(path: Path) -> Policy:
    """Read a policy file and the keys it names. Raises BadFile: the file, what is wrong, and what would be right."""
    top = _object(_document(path), path, "the policy", required=("signatures",), optional=("names", "keys", "denied"))
    for key in ("signatures", "names"):
        if top.get(key, _OPTIONAL) not in (_REQUIRED, _OPTIONAL):
            _fail(path, f"{key}: {top[key]!r:.100} is neither {_REQUIRED} nor {_OPTIONAL}")
    trusted = tuple(_key(raw, path, f"keys[{at}]") for at, raw in enumerate(_list(top, "keys", path)))
    for what, values in (("id", [key.id for key in trusted]), ("key", [key.key.fingerprint for key in trusted])):
        if twice := next((value for value in values if values.count(value) > 1), None):
            _fail(path, f"keys: the {what} {twice} stands there twice")
    if top["signatures"] == _REQUIRED and not trusted:
        _fail(path, "signatures are required, but there are no keys; list at least one under keys")
    denied = _list(top, "denied", path)
    for at, one in enumerate(denied):
        if not isinstance(one, str) or not is_digest(one):
            _fail(path, f"denied[{at}]: {one!r:.100} is no digest; write sha256: and 64 lower-case hexadecimal digits")
    return Policy(path, top["signatures"] == _REQUIRED, trusted, frozenset(denied), top.get("names") == _REQUIRED)


class _Loader(yaml.SafeLoader):
    """YAML in which no key stands twice: of two lists of denied digests the first would silently be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """See PyYAML."""
        seen: list[Any] = []
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands there twice", key_node.start_mark)
            seen.append(key)
        return super().construct_mapping(node, deep)


def _document(path: Path) -> Any:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadFile(f"the policy {path}: {error.strerror}", "check the path and its permissions") from None
    if len(data) > MAX_BYTES:
        _fail(path, f"more than {MAX_BYTES} bytes")
    try:
        return yaml.load(data, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        _fail(path, f"no YAML: {error}")


def _key(raw: Any, path: Path, where: str) -> TrustedKey:
    entry = _object(raw, path, where, required=("id", "file"), optional=("not_after",))
    for name in ("id", "file"):
        if not isinstance(entry[name], str) or not entry[name]:
            _fail(path, f"{where}.{name}: {entry[name]!r:.100} is no text")
    return TrustedKey(entry["id"], keys.read_public(path.parent / entry["file"]), _until(entry.get("not_after"), path, where))


def _until(raw: Any, path: Path, where: str) -> datetime | None:
    """The moment from which on the key is not trusted any more."""
    if raw is None:
        return None
    if isinstance(raw, datetime):
        return (raw if raw.tzinfo else raw.replace(tzinfo=UTC)).astimezone(UTC)
    if not isinstance(raw, date):
        _fail(path, f"{where}.not_after: {raw!r:.100} is no date; write for instance 2027-01-31 or 2027-01-31T12:00:00Z")
    return datetime.combine(raw, time(), UTC) + timedelta(days=1)


def _object(raw: Any, path: Path, where: str, *, required: Sequence[str], optional: Sequence[str]) -> dict[str, Any]:
    valid = [*required, *optional]
    if not isinstance(raw, dict):
        _fail(path, f"{where}: {raw!r:.100} is no mapping with the keys {', '.join(valid)}")
    for key in raw:
        if key not in valid:
            _fail(path, f"{where}: unknown key {key!r:.100}; {nearest(str(key), valid)}")
    for key in required:
        if raw.get(key) is None:
            _fail(path, f"{where}: the key {key!r} is missing")
    return raw


def _list(top: dict[str, Any], key: str, path: Path) -> list[Any]:
    found = top.get(key)
    if found is not None and not isinstance(found, list):
        _fail(path, f"{key}: {found!r:.100} is no list")
    return found or []


def _fail(path: Path, what: str) -> NoReturn:
    raise BadFile(f"the policy {path}: {what}", "model_registry/README.md describes the policy file")
