"""Attest the results of a run for its version, and sign the version if it passed the gate. Both are idempotent."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from model_registry.errors import Conflict, Refused
from model_registry.signing import predicates, signatures
from model_registry.signing.attestation import Attestation, attest, list_attestations, type_uri
from model_registry.signing.keys import PrivateKey
from model_registry.signing.predicates import COMPARISON, PASSED
from model_registry.signing.signatures import TrustedKey
from model_registry.stores.base import Store
from training.publish.push_version import model_name

ATTEMPTS = 5  # without a referrers API, a registry may list only one of two concurrent attestations


def attest_once(store: Store, digest: str, type_: str, predicate: Mapping[str, Any], key: PrivateKey, at: datetime) -> str:
    """Attest a predicate about a version, unless this key has attested an equivalent one; return the attestation's digest.

    Two predicates of the same type are equivalent if these parts are equal:

    - comparison: the run and the champion
    - provenance: the run
    - evaluation: the dataset
    - other types: the whole predicate

    Raises:
        BadFile: The predicate is not valid for its type.
        Conflict: The attestation is stored but not listed, because other processes overwrote the list of attestations at each
            attempt.
        RegistryError: Errors of the store.
    """
    predicates.check(type_uri(type_), predicate, digest)
    for attempt in range(ATTEMPTS):
        existing_attestations = (
            candidate
            for candidate in ours(store, digest, type_, key, at)
            if _same(candidate.type, candidate.predicate, predicate)
        )
        if (existing := next(existing_attestations, None)) is not None:
            return existing.referrer
        if attempt < ATTEMPTS - 1:
            attest(store, digest, type_, predicate, key, at)
    raise Conflict(
        f"the attestations of {digest} are continually overwritten by other processes", "attest from one process at a time"
    )


def ours(store: Store, digest: str, type_: str, key: PrivateKey, at: datetime) -> list[Attestation]:
    """Return a version's attestations of one type that this key signed and that are valid at the time `at`.

    Raises Unreachable, Corrupt.
    """
    attestations = list_attestations(store, digest, [TrustedKey("this run's", key.public())], at)
    return [candidate for candidate in attestations if candidate.verified and candidate.type == type_uri(type_)]


def sign_once(store: Store, digest: str, version: str, run: str, key: PrivateKey, at: datetime) -> None:
    """Sign a version under the name MODEL:VERSION, unless this key has signed the version.

    Raises:
        Refused: This key has attested no comparison of this run with the verdict `passed`.
        RegistryError: Errors of the store.
    """
    compared = [
        attested.predicate for attested in ours(store, digest, COMPARISON, key, at) if attested.predicate.get("run") == run
    ]
    if not any(comparison.get("verdict") == PASSED for comparison in compared):
        verdicts = ", ".join(repr(comparison.get("verdict")) for comparison in compared) or "none"
        hint = "a run attests its comparison first, and signs a version that passed"
        raise Refused(
            f"version {version} is not signed: the comparisons that run {run} attested have the verdicts {verdicts}", hint
        )
    signatures.sign(store, digest, key, at, [f"{model_name(store)}:{version}"])


def _same(type_: str, predicate: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two predicates of the type `type_` about one version are equivalent; see `attest_once`."""
    match type_:
        case predicates.COMPARISON:
            same = (predicate.get("run"), _champion(predicate)) == (other.get("run"), _champion(other))
        case predicates.PROVENANCE:
            same = _invocation(predicate) == _invocation(other) is not None
        case predicates.EVALUATION:
            same = predicate.get("dataset") == other.get("dataset")
        case _:
            same = dict(predicate) == dict(other)
    return bool(same)


def _champion(comparison: Mapping[str, Any]) -> Any:
    champion = comparison.get("champion")
    return (champion.get("digest"), champion.get("revision")) if isinstance(champion, Mapping) else None


def _invocation(provenance: Mapping[str, Any]) -> Any:
    details = provenance.get("runDetails")
    metadata = details.get("metadata") if isinstance(details, Mapping) else None
    return metadata.get("invocationId") if isinstance(metadata, Mapping) else None
