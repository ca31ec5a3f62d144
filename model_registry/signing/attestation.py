"""Attestations: signed statements about a version, such as its provenance and its evaluation.

Attestations are stored like signatures, in the layout of `cosign attest --key`. The *predicate* is the content of the
statement. predicates.py defines the types of predicates that have a short name. Any other type is named by its URI, and its
predicate is not checked.
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
from model_registry.untrusted_input import json_documents


@dataclass(frozen=True, slots=True)
class Attestation:
    """One attestation of a version.

    Attributes:
        type: The URI of the predicate's type.
        predicate: The content of the statement. Without a trusted signature the content is only a claim.
        referrer: The digest of the manifest that stores the attestation.
        key_id: The id of the trusted key that signed the attestation; None if no trusted key did.
        fault: The reason why the attestation is not verified; empty if it is verified.
    """

    type: str
    predicate: Mapping[str, Any]
    referrer: str
    key_id: str | None
    fault: str = ""

    @property
    def verified(self) -> bool:
        """Whether a trusted key signed the attestation for this version."""
        return self.key_id is not None


def read_predicate(path: Path) -> dict[str, Any]:
    """Read a predicate from a file. Raises BadFile if the file is missing or holds no JSON object."""
    data = read_named("predicate", path)
    try:
        return json_documents.decode(data, dict[str, Any])
    except json_documents.UnreadableDocument as error:
        raise BadFile(f"the predicate {path} is not a JSON object: {error}", HINT) from None


def attest(store: Store, digest: str, type_: str, predicate: Mapping[str, Any], key: PrivateKey, now: datetime) -> str:
    """Sign a statement about a manifest, store it, and return the digest of the new referrer.

    Raises:
        BadReference: `type_` is neither a short name nor a URI.
        BadFile: The predicate does not match its type.
        Refused: The statement is too large.
        RegistryError: Any error of the store.
    """
    uri = type_uri(type_)
    predicates.check(uri, predicate, digest)
    return signatures.attach(store, digest, uri, bundle.build_statement(digest, uri, dict(predicate)), key, now)


def list_attestations(store: Store, digest: str, keys: Sequence[TrustedKey], now: datetime) -> list[Attestation]:
    """Return the attestations of a manifest, whether or not a trusted key signed them.

    Plain signatures and unreadable attestations are left out.

    Raises:
        Unreachable: The store does not answer.
        Corrupt: The list of referrers is damaged.
    """
    return list(iter_attestations(store, digest, keys, now))


def iter_attestations(store: Store, digest: str, keys: Sequence[TrustedKey], now: datetime) -> Iterator[Attestation]:
    """Yield the attestations that `list_attestations` returns, one by one. Raises the same errors."""
    # Any writer to the store may have added hundreds of attestations of a megabyte each.
    parsed = (_read(stored, digest, keys, now) for stored in signatures.collect(store, digest))
    return (stored for stored in parsed if stored is not None and stored.type != bundle.SIGNED)


def type_uri(name: str) -> str:
    """Return the URI of a predicate type; `name` is its short name or its URI. Raises BadReference for any other text."""
    if name in TYPES:
        return TYPES[name]
    if not name.isprintable() or not name.startswith(("https://", "http://")) or name == bundle.SIGNED:
        raise BadReference(
            f"{name!r:.100} is not a type of attestation", f"write {', '.join(TYPES)}, or the type's https:// URI"
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
