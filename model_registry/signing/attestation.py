"""Attestations: signed statements about a version, such as its provenance and its evaluation.

They are stored like signatures, and as `cosign attest --key` stores them. predicates.py defines the types with a short
name; any other type is named by its URI, and its predicate is not checked.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from model_registry.atomic_files import read_named
from model_registry.errors import BadFile, BadReference, Corrupt, Refused
from model_registry.signing import bundle, predicates, signatures
from model_registry.signing.keys import PrivateKey
from model_registry.signing.predicates import HINT, TYPES
from model_registry.signing.signatures import StoredBundle, TrustedKey
from model_registry.stores.base import Store
from model_registry.untrusted_input import documents


@dataclass(frozen=True, slots=True)
class Attestation:
    """One attestation of a version.

    Attributes:
        key_id: The trusted key that signed it; None if no trusted key did, so that `predicate` is only a claim.
        fault: Why no trusted key signed it.
    """

    type: str
    predicate: Mapping[str, Any]
    referrer: str
    key_id: str | None
    fault: str = ""

    @property
    def verified(self) -> bool:
        """Whether a trusted key signed it for this version."""
        return self.key_id is not None


def read_predicate(path: Path) -> dict[str, Any]:
    """Read a predicate from a file. Raises BadFile if it is missing or no JSON object."""
    data = read_named("predicate", path)
    try:
        return documents.decode(data, dict[str, Any])
    except documents.UnreadableDocument as error:
        raise BadFile(f"the predicate {path} is no JSON object: {error}", HINT) from None


def attest(store: Store, digest: str, type_: str, predicate: Mapping[str, Any], key: PrivateKey, now: datetime) -> str:
    """Sign a statement about a manifest, store it, and return the digest of the new referrer.

    Raises:
        BadReference: The type is unknown.
        BadFile: The predicate does not match its type.
        Refused: The statement is too large.
        RegistryError: As the store raises it.
    """
    uri = type_uri(type_)
    predicates.check(uri, predicate, digest)
    return signatures.attach(store, digest, uri, bundle.build_statement(digest, uri, dict(predicate)), key, now)


def list_attestations(store: Store, digest: str, keys: Sequence[TrustedKey], now: datetime) -> list[Attestation]:
    """Return the attestations of a manifest, verified or not, without its signatures.

    Unreadable ones are left out.

    Raises:
        Unreachable: The store does not answer.
        Corrupt: The list of referrers is damaged.
    """
    return list(iter_attestations(store, digest, keys, now))


def iter_attestations(store: Store, digest: str, keys: Sequence[TrustedKey], now: datetime) -> Iterator[Attestation]:
    """Yield the attestations of a manifest one by one: any writer to the store may have added hundreds, of a megabyte each.

    Raises as `list_attestations` does.
    """
    parsed = (_read(stored, digest, keys, now) for stored in signatures.collect(store, digest))
    return (stored for stored in parsed if stored is not None and stored.type != bundle.SIGNED)


def type_uri(name: str) -> str:
    """Return the URI of a predicate type that is given by its short name or its URI. Raises BadReference."""
    if name in TYPES:
        return TYPES[name]
    if not name.isprintable() or not name.startswith(("https://", "http://")) or name == bundle.SIGNED:
        raise BadReference(
            f"{name!r:.100} is no type of an attestation", f"write {', '.join(TYPES)}, or the type's https:// URI"
        )
    return name


def _read(stored: StoredBundle, digest: str, keys: Sequence[TrustedKey], now: datetime) -> Attestation | None:
    try:
        statement = bundle.parse_statement(bundle.parse(stored.data).payload)
    except Corrupt:
        return None
    key_id = None
    fault = ""
    try:
        _, key_id = signatures.check(stored.data, digest, keys, now)
    except (Corrupt, Refused) as error:
        fault = str(error)
    return Attestation(statement.predicate_type, statement.predicate, stored.referrer, key_id, fault)
