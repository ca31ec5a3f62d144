"""Signatures of versions: a signed statement about the version's manifest digest and its names, stored as its referrer.

A name is MODEL:VERSION, the subject's name in the statement: a signature without one vouches for the content wherever it lies,
one with it only where it is called so. cosign writes no names, and looks at none.

Laid out as `cosign sign --key` of version 3 does it, so that each verifies what the other signed. Nothing is looked up on the
network: no transparency log, no certificates; the keys are the ones that the caller trusts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from model_registry.errors import Corrupt, NotFound, Refused
from model_registry.oci import manifest
from model_registry.signing import bundle, referrers
from model_registry.signing.bundle import InTotoStatement
from model_registry.signing.keys import PrivateKey, PublicKey
from model_registry.stores.base import Store

CONTENT = "dev.sigstore.bundle.content"
PREDICATE_TYPE = "dev.sigstore.bundle.predicateType"


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A key that may vouch, under the name that messages use; from `not_after` on (UTC) it vouches for nothing."""

    id: str
    key: PublicKey
    not_after: datetime | None = None


@dataclass(frozen=True, slots=True)
class StoredBundle:
    """One bundle found beside a version: its bytes, or why there are none."""

    referrer: str
    data: bytes
    fault: str = ""


def sign(store: Store, digest: str, key: PrivateKey, now: datetime, names: Sequence[str] = ()) -> str | None:
    """Sign a manifest under these names; the digest of the new referrer, or None where this key has done so already.

    Raises NotFound, Corrupt, Conflict and Unreachable as the store does.
    """
    ours = [TrustedKey("this", key.public())]
    for found in collect(store, digest):
        if all(evaluate(found, digest, ours, now, name, named=True)[0] for name in names or [""]):
            return None
    return attach(store, digest, bundle.SIGNED, bundle.build_statement(digest, bundle.SIGNED, {}, names), key, now)


def attach(store: Store, digest: str, predicate_type: str, payload: bytes, key: PrivateKey, now: datetime) -> str:
    """Sign a statement and store it beside the manifest; the digest of the referrer. Raises Refused where it is too large."""
    data = bundle.build(payload, key)
    if len(data) > bundle.MAX_BYTES:
        raise Refused(f"the signed statement has {len(data)} bytes; at most {bundle.MAX_BYTES} are read", "say less in it")
    created = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    notes = {CONTENT: "dsse-envelope", PREDICATE_TYPE: predicate_type, manifest.CREATED: created}
    return referrers.attach(store, digest, bundle.MEDIA_TYPE, data, notes).digest


def collect(store: Store, digest: str) -> Iterator[StoredBundle]:
    """The bundles beside a manifest, read one after the other and unchecked. Raises Unreachable, Corrupt (the list itself)."""
    for found, parsed in referrers.read(store, digest, bundle.MEDIA_TYPE):
        if not isinstance(parsed, manifest.Manifest):
            yield StoredBundle(found.digest, b"", str(parsed))
            continue
        layer = parsed.layers[0] if len(parsed.layers) == 1 else None
        if layer is None or layer.media_type not in bundle.MEDIA_TYPES or layer.size > bundle.MAX_BYTES:
            yield StoredBundle(found.digest, b"", f"{found.digest} holds no bundle of at most {bundle.MAX_BYTES} bytes")
            continue
        try:
            yield StoredBundle(found.digest, b"".join(store.blob(layer)))
        except (Corrupt, NotFound) as error:
            yield StoredBundle(found.digest, b"", str(error))


def check(data: bytes, digest: str, keys: Sequence[TrustedKey], now: datetime) -> tuple[InTotoStatement, str]:
    """The statement in a bundle and the id of its key, once a trusted key's signature holds and it speaks of this digest.

    Raises Corrupt for what is no such bundle, Refused for one that no trusted key signed, or only a key past its time.
    """
    found = bundle.parse(data)
    signers = [trusted for trusted in keys if trusted.key.verifies(found.sig, found.signed)]
    if not signers:
        raise Refused("no trusted key signed it")
    valid = [trusted for trusted in signers if trusted.not_after is None or now < trusted.not_after]
    if not valid:
        raise Refused(f"the key {signers[0].id!r} that signed it is trusted until {signers[0].not_after:%Y-%m-%d %H:%M}Z only")
    said = bundle.parse_statement(found.payload)
    if digest not in said.subjects:
        raise Refused(f"it is signed by {valid[0].id!r}, but for another digest than {digest}")
    return said, valid[0].id


def verify(store: Store, digest: str, keys: Sequence[TrustedKey], now: datetime, name: str = "") -> list[str]:
    """The ids of the trusted keys whose signatures a manifest carries, none of them under other names than `name`.

    Raises Refused where there is none, with the reasons.
    """
    judged = [evaluate(found, digest, keys, now, name) for found in collect(store, digest)]
    if signers := [key_id for key_id, _ in judged if key_id]:
        return list(dict.fromkeys(signers))
    raise unsigned(store.repository, digest, [fault for _, fault in judged if fault])


def is_attestation(data: bytes) -> bool:
    """Whether a bundle claims to say something else than a signature does. Checks no signature: no more than a claim."""
    try:
        return bundle.parse_statement(bundle.parse(data).payload).predicate_type != bundle.SIGNED
    except Corrupt:
        return False


def evaluate(
    found: StoredBundle, digest: str, keys: Sequence[TrustedKey], now: datetime, name: str = "", *, named: bool = False
) -> tuple[str, str]:
    """The id of the trusted key whose signature this is, and why it is none; one of them is empty, of an attestation both.

    A signature that states names counts under `name` only where that is among them; with `named` one must be stated.
    """
    if not found.fault and is_attestation(found.data):
        return "", ""
    try:
        if found.fault:
            raise Corrupt(found.fault)
        statement, key_id = check(found.data, digest, keys, now)
    except (Corrupt, Refused) as error:
        return "", str(error)
    names = statement.subjects[digest]
    if name and name not in names and (names or named):
        said = f"as {', '.join(map(repr, sorted(names)))}" if names else "without a name"
        return "", f"it is signed by {key_id!r} {said}, not as {name!r}"
    return key_id, ""


def unsigned(repository: str, digest: str, faults: Sequence[str]) -> Refused:
    reasons = "; ".join(dict.fromkeys(faults)) or "it has no signature"
    return Refused(
        f"{digest} is not signed by a trusted key: {reasons}", f"model-registry sign {repository}@{digest} --key FILE"
    )
