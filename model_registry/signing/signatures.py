"""Signatures of versions: signed statements about a manifest's digest and names, stored as referrers of the manifest.

A name has the form MODEL:VERSION. A signature with names is valid only if the content has one of these names. A
signature without names is valid for any name. cosign verifies these signatures, and this module
verifies those of `cosign sign --key`.
"""

# The layout is that of cosign 3. cosign writes no names and ignores them. Neither a transparency log nor certificates are used;
# the caller supplies the trusted keys.

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
    """A public key whose signatures are trusted.

    Attributes:
        id: The name of the key in results and messages.
        key: The public key.
        not_after: The first time (UTC) at which the key is no longer trusted; None if there is no such time.
    """

    id: str
    key: PublicKey
    not_after: datetime | None = None


@dataclass(frozen=True, slots=True)
class StoredBundle:
    """A signature bundle that is stored as a referrer of a version.

    Attributes:
        referrer: The digest of the manifest that stores the bundle.
        data: The bytes of the bundle, unverified; empty if they cannot be read.
        fault: The reason why the bundle cannot be read; empty if it can be read.
    """

    referrer: str
    data: bytes
    fault: str = ""


def sign(store: Store, digest: str, key: PrivateKey, now: datetime, names: Sequence[str] = ()) -> str | None:
    """Sign a manifest under these names, store the signature, and return the digest of the new referrer.

    Returns None if a stored signature by this key is already valid for all the names.

    Raises:
        NotFound, Corrupt, Conflict, Unreachable: Errors of the store.
    """
    own_key = [TrustedKey("this", key.public())]
    for stored in collect(store, digest):
        if all(evaluate(stored, digest, own_key, now, name, named=True)[0] for name in names or [""]):
            return None
    return attach(store, digest, bundle.SIGNED, bundle.build_statement(digest, bundle.SIGNED, {}, names), key, now)


def attach(store: Store, digest: str, predicate_type: str, payload: bytes, key: PrivateKey, now: datetime) -> str:
    """Sign an encoded statement, store the bundle as a referrer of the manifest, and return the referrer's digest.

    Raises Refused if the bundle is too large.
    """
    data = bundle.build(payload, key)
    if len(data) > bundle.MAX_BYTES:
        raise Refused(
            f"the signed statement has {len(data)} bytes; the limit is {bundle.MAX_BYTES} bytes", "make the predicate smaller"
        )
    created = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    notes = {CONTENT: "dsse-envelope", PREDICATE_TYPE: predicate_type, manifest.CREATED: created}
    return referrers.attach(store, digest, bundle.MEDIA_TYPE, data, notes).digest


def collect(store: Store, digest: str) -> Iterator[StoredBundle]:
    """Yield the Sigstore bundles that refer to a manifest, unverified. Raises Unreachable; Corrupt for a damaged list."""
    for entry, parsed in referrers.read(store, digest, bundle.MEDIA_TYPE):
        if not isinstance(parsed, manifest.Manifest):
            yield StoredBundle(entry.digest, b"", str(parsed))
            continue
        layer = parsed.layers[0] if len(parsed.layers) == 1 else None
        if layer is None or layer.media_type not in bundle.MEDIA_TYPES or layer.size > bundle.MAX_BYTES:
            yield StoredBundle(
                entry.digest,
                b"",
                f"{entry.digest} does not contain one signature bundle, or the bundle has more than {bundle.MAX_BYTES} bytes",
            )
            continue
        try:
            yield StoredBundle(entry.digest, b"".join(store.blob(layer)))
        except (Corrupt, NotFound) as error:
            yield StoredBundle(entry.digest, b"", str(error))


def check(data: bytes, digest: str, keys: Sequence[TrustedKey], now: datetime) -> tuple[InTotoStatement, str]:
    """Verify the Sigstore bundle `data`; return its statement and the id of the trusted key that signed it.

    Raises:
        Corrupt: The bytes are no bundle.
        Refused: No trusted key signed the statement, the key has expired, or the statement is about another digest.
    """
    parsed = bundle.parse(data)
    signers = [trusted for trusted in keys if trusted.key.verifies(parsed.sig, parsed.signed)]
    if not signers:
        raise Refused("the signature is not from a trusted key")
    valid = [trusted for trusted in signers if trusted.not_after is None or now < trusted.not_after]
    if not valid:
        raise Refused(
            f"the signature is from the key {signers[0].id!r}, "
            f"which is trusted until {signers[0].not_after:%Y-%m-%d %H:%M}Z only"
        )
    statement = bundle.parse_statement(parsed.payload)
    if digest not in statement.subjects:
        raise Refused(f"the signature by the key {valid[0].id!r} is for another digest than {digest}")
    return statement, valid[0].id


def verify(store: Store, digest: str, keys: Sequence[TrustedKey], now: datetime, name: str = "") -> list[str]:
    """Return the ids of the trusted keys that have a valid signature on a manifest.

    A signature can state the names for which it is valid. If `name` is given, only signatures that state this name or no names
    count. If `name` is empty, all signatures count.

    Raises:
        Refused: No signature that counts is valid; the message has the reasons.
    """
    results = [evaluate(stored, digest, keys, now, name) for stored in collect(store, digest)]
    if signers := [key_id for key_id, _ in results if key_id]:
        return list(dict.fromkeys(signers))
    raise unsigned(store.repository, digest, [fault for _, fault in results if fault])


def is_attestation(data: bytes) -> bool:
    """Return whether a bundle is an attestation and not a plain signature. The signature is not verified."""
    try:
        return bundle.parse_statement(bundle.parse(data).payload).predicate_type != bundle.SIGNED
    except Corrupt:
        return False


def evaluate(
    stored: StoredBundle, digest: str, keys: Sequence[TrustedKey], now: datetime, name: str = "", *, named: bool = False
) -> tuple[str, str]:
    """Check whether a stored bundle is a valid signature of a manifest by a trusted key.

    The result is (key id, "") if the signature is valid, ("", reason) if not, and ("", "") if the bundle is an attestation.

    If `name` is given, a signature with names is valid only if `name` is one of them. A signature without names is valid for
    every name; if `named` is true, it is valid for no name. If `name` is empty, names are not checked.
    """
    if not stored.fault and is_attestation(stored.data):
        return "", ""
    try:
        if stored.fault:
            raise Corrupt(stored.fault)
        statement, key_id = check(stored.data, digest, keys, now)
    except (Corrupt, Refused) as error:
        return "", str(error)
    names = statement.subjects[digest]
    if name and name not in names and (names or named):
        signed_names = f"as {', '.join(map(repr, sorted(names)))}" if names else "without a name"
        return "", f"the signature by the key {key_id!r} was made {signed_names}, not as {name!r}"
    return key_id, ""


def unsigned(repository: str, digest: str, faults: Sequence[str]) -> Refused:
    """Return the error for a manifest without a valid signature; `faults` are the reasons from `evaluate`."""
    reasons = "; ".join(dict.fromkeys(faults)) or "there is no signature"
    return Refused(
        f"{digest} is not signed by a trusted key: {reasons}", f"model-registry sign {repository}@{digest} --key FILE"
    )
