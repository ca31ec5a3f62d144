"""What a scorer may load: a file that names the trusted keys, whether a signature (and in it the version's name) and a passed
comparison are required, whether the moves of the channel must be signed, and the digests that are never loaded, even if signed.
model_registry/docs/signing.md describes it. A key is for both versions and moves, unless its `use` names one of them.

Files of keys resolve from the policy's folder. A key vouches for nothing once its `not_after` has passed (a day counts to its
end, UTC): what only it signed has to be signed again by its successor before then.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BeforeValidator, ValidationError

from model_registry.atomic_files import read_named
from model_registry.errors import BadFile
from model_registry.oci.digests import is_digest
from model_registry.package import validation
from model_registry.package.validation import Part, Text
from model_registry.signing import keys
from model_registry.signing.signatures import TrustedKey
from model_registry.untrusted_input import yaml_documents
from model_registry.untrusted_input.documents import UnreadableDocument

MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy file as it was read from `path`. `keys` vouch for versions, `move_keys` for moves of channels."""

    path: Path
    required: bool
    keys: tuple[TrustedKey, ...]
    denied: frozenset[str]
    named: bool = False
    compared: bool = False
    signed_moves: bool = False
    move_keys: tuple[TrustedKey, ...] = ()


def _until(raw: Any) -> datetime | None:
    """The moment from which on the key is not trusted any more. Raises ValueError."""
    if raw is None:
        return None
    if isinstance(raw, datetime):
        return (raw if raw.tzinfo else raw.replace(tzinfo=UTC)).astimezone(UTC)
    if not isinstance(raw, date):
        raise ValueError(f"{raw!r:.100} is no date; write for instance 2027-01-31 or 2027-01-31T12:00:00Z")  # noqa: TRY004
    return datetime.combine(raw, time(), UTC) + timedelta(days=1)


def _digest(raw: Any) -> str:
    if not isinstance(raw, str) or not is_digest(raw):
        raise ValueError(f"{raw!r:.100} is no digest; write sha256: and 64 lower-case hexadecimal digits")
    return raw


class _KeyEntry(Part):
    kind = "mapping"
    id: Text
    file: Text
    use: Literal["versions", "moves"] | None = None
    not_after: Annotated[datetime | None, BeforeValidator(_until)] = None


class _PolicyDocument(Part):
    kind = "mapping"
    signatures: Literal["required", "optional"]
    names: Literal["required", "optional"] = "optional"
    comparisons: Literal["required", "optional"] = "optional"
    moves: Literal["signed", "optional"] = "optional"
    keys: list[_KeyEntry] | None = None
    denied: list[Annotated[str, BeforeValidator(_digest)]] | None = None


def read(path: Path) -> Policy:
    """Read a policy file and the keys it names. Raises BadFile: the file, what is wrong, and what would be right."""
    try:
        found = _PolicyDocument.model_validate(_load(path))
    except ValidationError as error:
        _fail(path, validation.fault(error, "the policy"))
    trusted = [
        (one.use, TrustedKey(one.id, keys.read_public(path.parent / one.file), one.not_after)) for one in found.keys or []
    ]
    try:
        validation.each_once((key.id for _, key in trusted), "keys: the id")
        validation.each_once((key.key.fingerprint for _, key in trusted), "keys: the key")
    except ValueError as error:
        _fail(path, str(error))
    version_keys = tuple(key for use, key in trusted if use != "moves")
    move_keys = tuple(key for use, key in trusted if use != "versions")
    for what, asked in (("signatures", found.signatures), ("comparisons", found.comparisons)):
        if asked == "required" and not version_keys:
            _fail(path, f"{what} are required, but there are no keys for versions; list at least one under keys")
    if found.moves == "signed" and not move_keys:
        _fail(path, "moves must be signed, but there are no keys for moves; list at least one under keys")
    denied = frozenset(found.denied or ())
    required, named, compared = (asked == "required" for asked in (found.signatures, found.names, found.comparisons))
    return Policy(path, required, version_keys, denied, named, compared, found.moves == "signed", move_keys)


def _load(path: Path) -> Any:
    data = read_named("policy", path, MAX_BYTES)
    try:
        return yaml_documents.load(data)
    except UnreadableDocument as error:
        _fail(path, f"no YAML: {error}")


def _fail(path: Path, what: str) -> NoReturn:
    raise BadFile(f"the policy {path}: {what}", "model_registry/docs/signing.md describes the policy file")
