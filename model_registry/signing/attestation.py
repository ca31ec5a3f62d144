"""Attestations: signed statements beside a version that say where it comes from and how well it does.

Stored as signatures are, and as `cosign attest --key` does it. predicates.py has the types with a short name; any other type is
named by its URI and its predicate is taken as it is.
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
    """One attestation beside a version. `key_id` is the trusted key that signed it.

    Where it is None, no trusted key signed it, for the reason in `fault`: then `predicate` is only a claim.
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
    """What a file says, to be attested. Raises BadFile where it is not there, or no JSON object."""
    data = read_named("predicate", path)
    try:
        return documents.decode(data, dict[str, Any])
    except documents.UnreadableDocument as error:
        raise BadFile(f"the predicate {path} is no JSON object: {error}", HINT) from None


def attest(store: Store, digest: str, type_: str, predicate: Mapping[str, Any], key: PrivateKey, now: datetime) -> str:
    """Sign a statement about a manifest and store it beside it; the digest of the new referrer.

    Raises BadReference for an unknown type, BadFile for a predicate that its type does not allow, Refused for one that
    is too large, and what the store raises.
    """
    uri = type_uri(type_)
    predicates.check(uri, predicate, digest)
    return signatures.attach(store, digest, uri, bundle.build_statement(digest, uri, dict(predicate)), key, now)


def list_attestations(store: Store, digest: str, keys: Sequence[TrustedKey], now: datetime) -> list[Attestation]:
    """What is attested about a manifest, verified or not; the signatures themselves are left out.

    What cannot be read at all is left out too: it says nothing. Raises Unreachable, and Corrupt for a damaged list.
    """
    return list(iter_attestations(store, digest, keys, now))


def iter_attestations(store: Store, digest: str, keys: Sequence[TrustedKey], now: datetime) -> Iterator[Attestation]:
    """The same, one after the other: everybody who writes to the store may have put hundreds there, of a megabyte each."""
    found = (_read(one, digest, keys, now) for one in signatures.collect(store, digest))
    return (one for one in found if one is not None and one.type != bundle.SIGNED)


def type_uri(name: str) -> str:
    """The URI of a predicate type, given by its short name or as it is. Raises BadReference."""
    if name in TYPES:
        return TYPES[name]
    if not name.isprintable() or not name.startswith(("https://", "http://")) or name == bundle.SIGNED:
        raise BadReference(
            f"{name!r:.100} is no type of an attestation", f"write {', '.join(TYPES)}, or the type's https:// URI"
        )
    return name


def _read(found: StoredBundle, digest: str, keys: Sequence[TrustedKey], now: datetime) -> Attestation | None:
    try:
        said, key_id, fault = bundle.parse_statement(bundle.parse(found.data).payload), None, ""
    except Corrupt:
        return None
    try:
        _, key_id = signatures.check(found.data, digest, keys, now)
    except (Corrupt, Refused) as error:
        fault = str(error)
    return Attestation(said.predicate_type, said.predicate, found.referrer, key_id, fault)
