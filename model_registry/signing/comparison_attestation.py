"""Evaluates comparison attestations, which state whether a version passed a comparison with the champion.

A comparison attestation is about a manifest's digest, so it is valid for this content in any repository and under any name.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from model_registry.errors import BadFile, Corrupt, Refused
from model_registry.signing import bundle, predicates, signatures
from model_registry.signing.signatures import StoredBundle, TrustedKey


def evaluate(stored: StoredBundle, digest: str, keys: Sequence[TrustedKey], now: datetime) -> tuple[str, str]:
    """Check whether a trusted key attests in a stored bundle that this manifest passed a comparison.

    The result is (key id, "") if a trusted key does, and ("", reason) if not. It is ("", "") if the bundle is no comparison
    attestation.
    """
    if stored.fault or not _claims_comparison(stored.data):
        return "", ""
    try:
        statement, key_id = signatures.check(stored.data, digest, keys, now)
        predicates.check(predicates.COMPARISON, statement.predicate, digest)
    except (Corrupt, Refused, BadFile) as error:
        return "", str(error)
    if statement.predicate["verdict"] != predicates.PASSED:
        reason = f": {statement.predicate['because']}" if isinstance(statement.predicate.get("because"), str) else ""
        return "", f"the key {key_id!r} signed the verdict {statement.predicate['verdict']!r}{reason[:300]}"
    return key_id, ""


def not_passed(repository: str, digest: str, policy: Path, faults: Sequence[str]) -> Refused:
    """Return the error for a manifest without a passed comparison; `faults` are the reasons from `evaluate`."""
    reasons = "; ".join(dict.fromkeys(faults)) or "it has no comparison"
    command = f"model-registry attest {repository}@{digest} --type comparison --predicate FILE --key FILE"
    message = f"{digest} has passed no comparison that a trusted key signed, which the policy {policy} requires: {reasons}"
    return Refused(message, f"{command}, and promote it again; or promote another version")


def _claims_comparison(data: bytes) -> bool:
    """Return whether the statement in a bundle has the type of a comparison attestation. Does not verify the signature."""
    try:
        return bundle.parse_statement(bundle.parse(data).payload).predicate_type == predicates.COMPARISON
    except Corrupt:
        return False
