"""Whether an attestation proves that a version passed its comparison with the one that answered before it.

A comparison speaks of a digest, under any name: it counts where the same content lies in another repository.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from model_registry.errors import BadFile, Corrupt, Refused
from model_registry.signing import bundle, predicates, signatures
from model_registry.signing.signatures import StoredBundle, TrustedKey


def evaluate(found: StoredBundle, digest: str, keys: Sequence[TrustedKey], now: datetime) -> tuple[str, str]:
    """The id of the trusted key that says that this manifest passed a comparison, and why it does not; one of them is empty, of
    what is no comparison both."""
    if found.fault or not _claimed(found.data):
        return "", ""
    try:
        said, key_id = signatures.check(found.data, digest, keys, now)
        predicates.check(predicates.COMPARISON, said.predicate, digest)
    except (Corrupt, Refused, BadFile) as error:
        return "", str(error)
    if said.predicate["verdict"] != predicates.PASSED:
        because = f": {said.predicate['because']}" if isinstance(said.predicate.get("because"), str) else ""
        return "", f"{key_id!r} says {said.predicate['verdict']!r}{because[:300]}"
    return key_id, ""


def not_passed(repository: str, digest: str, policy: Path, faults: Sequence[str]) -> Refused:
    """What is missing where no comparison proves that a manifest passed."""
    reasons = "; ".join(dict.fromkeys(faults)) or "it has no comparison"
    way_out = f"model-registry attest {repository}@{digest} --type comparison --predicate FILE --key FILE"
    told = f"{digest} has passed no comparison that a trusted key signed, which the policy {policy} requires: {reasons}"
    return Refused(told, f"{way_out}, and promote it again; or promote another version")


def _claimed(data: bytes) -> bool:
    """Whether a bundle claims to be a comparison. Checks no signature."""
    try:
        return bundle.parse_statement(bundle.parse(data).payload).predicate_type == predicates.COMPARISON
    except Corrupt:
        return False
