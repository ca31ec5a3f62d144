"""Reads the policy file, which decides which versions a scorer may load.

The policy lists the trusted keys and the denied digests, and states which signatures are required;
model_registry/docs/signing.md describes the file. Paths of key files are relative to the policy's folder.
"""

# A version with a denied digest is never loaded, even if it is signed. A key may sign both versions and moves, unless the entry
# `use` of the key names only one of them. A key is not trusted after its `not_after` (a date includes that whole day, UTC).
# Before that time, everything that only this key has signed must be signed with another trusted key.

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BeforeValidator, ValidationError

from model_registry.atomic_files import read_named
from model_registry.errors import BadFile
from model_registry.oci.digests import is_digest
from model_registry.package import document_validation
from model_registry.package.document_validation import DocumentPart, Text
from model_registry.signing import keys
from model_registry.signing.signatures import TrustedKey
from model_registry.untrusted_input import yaml_documents
from model_registry.untrusted_input.json_documents import UnreadableDocument

MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Policy:
    """A parsed policy file.

    Attributes:
        path: The path of the file, for messages.
        required: Whether a version must have a signature by a trusted key.
        keys: The keys whose signatures of versions are trusted.
        denied: The manifest digests that must not be loaded.
        named: Whether a signature must name the version.
        compared: Whether a trusted key must attest that a version passed a comparison with the champion.
        signed_moves: Whether each move of a channel to another version must be signed.
        move_keys: The keys whose signatures of channel moves are trusted.
    """

    path: Path
    required: bool
    keys: tuple[TrustedKey, ...]
    denied: frozenset[str]
    named: bool = False
    compared: bool = False
    signed_moves: bool = False
    move_keys: tuple[TrustedKey, ...] = ()


def _until(raw: Any) -> datetime | None:
    """Parse `not_after`: return the first time (UTC) at which the key is no longer trusted. Raises ValueError."""
    if raw is None:
        return None
    if isinstance(raw, datetime):
        return (raw if raw.tzinfo else raw.replace(tzinfo=UTC)).astimezone(UTC)
    if not isinstance(raw, date):
        raise ValueError(f"{raw!r:.100} is not a valid date; write for instance 2027-01-31 or 2027-01-31T12:00:00Z")  # noqa: TRY004
    return datetime.combine(raw, time(), UTC) + timedelta(days=1)


def _digest(raw: Any) -> str:
    if not isinstance(raw, str) or not is_digest(raw):
        raise ValueError(f"{raw!r:.100} is not a valid digest; write sha256: and 64 lower-case hexadecimal digits")
    return raw


class _KeyEntry(DocumentPart):
    kind = "a mapping"
    id: Text
    file: Text
    use: Literal["versions", "moves"] | None = None
    not_after: Annotated[datetime | None, BeforeValidator(_until)] = None


class _PolicyDocument(DocumentPart):
    kind = "a mapping"
    signatures: Literal["required", "optional"]
    names: Literal["required", "optional"] = "optional"
    comparisons: Literal["required", "optional"] = "optional"
    moves: Literal["signed", "optional"] = "optional"
    keys: list[_KeyEntry] | None = None
    denied: list[Annotated[str, BeforeValidator(_digest)]] | None = None


def read(path: Path) -> Policy:
    """Read a policy file and the keys that it names. Raises BadFile with the file, the fault and the remedy."""
    try:
        document = _PolicyDocument.model_validate(_load(path))
    except ValidationError as error:
        _fail(path, document_validation.format_error(error, "the policy"))
    trusted = [
        (entry.use, TrustedKey(entry.id, keys.read_public(path.parent / entry.file), entry.not_after))
        for entry in document.keys or []
    ]
    try:
        document_validation.check_unique((key.id for _, key in trusted), "keys: the id")
        document_validation.check_unique((key.key.fingerprint for _, key in trusted), "keys: the key")
    except ValueError as error:
        _fail(path, str(error))
    version_keys = tuple(key for use, key in trusted if use != "moves")
    move_keys = tuple(key for use, key in trusted if use != "versions")
    for name, value in (("signatures", document.signatures), ("comparisons", document.comparisons)):
        if value == "required" and not version_keys:
            _fail(path, f"{name} are required, but there are no keys for versions; list at least one under keys")
    if document.moves == "signed" and not move_keys:
        _fail(path, "moves must be signed, but there are no keys for moves; list at least one under keys")
    denied = frozenset(document.denied or ())
    return Policy(
        path=path,
        required=document.signatures == "required",
        keys=version_keys,
        denied=denied,
        named=document.names == "required",
        compared=document.comparisons == "required",
        signed_moves=document.moves == "signed",
        move_keys=move_keys,
    )


def _load(path: Path) -> Any:
    data = read_named("policy", path, MAX_BYTES)
    try:
        return yaml_documents.load(data)
    except UnreadableDocument as error:
        _fail(path, f"the file is not YAML: {error}")


def _fail(path: Path, problem: str) -> NoReturn:
    raise BadFile(f"the policy {path}: {problem}", "model_registry/docs/signing.md describes the policy file")
