"""Builds and parses Sigstore bundles (JSON, bundle format v0.3), the files in which cosign 3 stores one signed statement.

An in-toto statement (attestation spec v1) states a *predicate*, such as test results, about a *subject*, the digest of some
content. A signature of a version is a statement with an empty predicate.
"""

# The statement is the payload of a DSSE envelope (github.com/secure-systems-lab/dsse, protocol v1). The cryptographic signature
# covers the pre-authentication encoding of the payload's type and bytes, so that it can be verified before the payload is
# parsed.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from model_registry.errors import Corrupt
from model_registry.oci import digests, manifest
from model_registry.signing.keys import PrivateKey

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
MEDIA_TYPES = (MEDIA_TYPE, "application/vnd.dev.sigstore.bundle+json;version=0.3")
PAYLOAD_TYPE = "application/vnd.in-toto+json"
MAX_BYTES = 1 << 20
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
STATEMENT_TYPES = (STATEMENT_TYPE, "https://in-toto.io/Statement/v0.1")
SIGNED = "https://sigstore.dev/cosign/sign/v1"
MOVED = "https://scorestream.io/attestations/move/v1"
"""The predicate type of a signed move of a channel (model_registry/channels/signed_move.py)."""


class _Subject(msgspec.Struct, frozen=True):
    digest: dict[str, str]
    name: str = ""


class _Statement(msgspec.Struct, frozen=True, rename="camel"):
    type_: str = msgspec.field(name="_type")
    subject: list[_Subject]
    predicate_type: str
    predicate: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class InTotoStatement:
    """A parsed in-toto statement.

    Attributes:
        subjects: The names that the statement gives to its subjects, by the digest of the subject (`sha256:` and hexadecimal
            digits).
        predicate_type: The URI of the predicate's type.
        predicate: The content of the statement.
    """

    subjects: Mapping[str, frozenset[str]]
    predicate_type: str
    predicate: dict[str, Any]


def build_statement(digest: str, predicate_type: str, predicate: dict[str, Any], names: Sequence[str] = ()) -> bytes:
    """Encode a statement about the manifest `digest`. The statement gives the manifest these names."""
    # The statement has one subject per name.
    subjects: list[dict[str, str]] = [{"name": subject_name} for subject_name in names] or [{}]
    subject = [{**subject_name, "digest": {"sha256": digests.hex_digits(digest)}} for subject_name in subjects]
    return manifest.encode(
        {"_type": STATEMENT_TYPE, "subject": subject, "predicateType": predicate_type, "predicate": predicate}
    )


def parse_statement(payload: bytes) -> InTotoStatement:
    """Parse the statement in a payload. Raises Corrupt. Does not verify the signature."""
    statement = manifest.decode(payload, _Statement, "the signed statement")
    if statement.type_ not in STATEMENT_TYPES:
        raise Corrupt(f"the signed document has the type {statement.type_!r:.100}, which is not an in-toto statement")
    subjects: dict[str, frozenset[str]] = {}
    for subject in statement.subject:
        digest = f"sha256:{subject.digest.get('sha256')}"
        subjects[digest] = subjects.get(digest, frozenset()) | ({subject.name} - {""})
    return InTotoStatement(subjects, statement.predicate_type, statement.predicate or {})


class _Signed(msgspec.Struct, frozen=True):
    sig: bytes


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    payload: bytes
    payload_type: str
    signatures: list[_Signed]


class _Bundle(msgspec.Struct, frozen=True, rename="camel"):
    media_type: str
    dsse_envelope: _Envelope


@dataclass(frozen=True, slots=True)
class Bundle:
    """A parsed Sigstore bundle: the payload and its signature.

    The payload is trusted only after `sig` was verified with a trusted key, as a signature of the bytes `signed`.
    """

    payload: bytes
    sig: bytes

    @property
    def signed(self) -> bytes:
        """The bytes that the signature covers."""
        return encoded(PAYLOAD_TYPE, self.payload)


def encoded(payload_type: str, payload: bytes) -> bytes:
    """Return DSSE's pre-authentication encoding of a payload, the bytes that are signed."""
    return b"DSSEv1 %d %s %d %s" % (len(payload_type.encode()), payload_type.encode(), len(payload), payload)


def build(payload: bytes, key: PrivateKey) -> bytes:
    """Sign an encoded statement and return the bundle."""
    # The bundle's field `hint` holds the key's fingerprint in base64, so that tools can find the key. Readers do not trust it.
    sig = key.sign(encoded(PAYLOAD_TYPE, payload))
    document = {  # bytes are written as base64
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": bytes.fromhex(key.public().fingerprint)}},
        "dsseEnvelope": {"payload": payload, "payloadType": PAYLOAD_TYPE, "signatures": [{"sig": sig}]},
    }
    return manifest.encode(document)


def parse(data: bytes) -> Bundle:
    """Parse a bundle with one signed statement. Raises Corrupt. Does not verify the signature."""
    if len(data) > MAX_BYTES:
        raise Corrupt(f"the signature bundle has more than {MAX_BYTES} bytes")
    document = manifest.decode(data, _Bundle, "the signature bundle")
    if document.media_type not in MEDIA_TYPES:
        raise Corrupt(f"the signature bundle has the type {document.media_type!r:.100}; only version 0.3 is read")
    envelope = document.dsse_envelope
    if envelope.payload_type != PAYLOAD_TYPE:
        raise Corrupt(f"the signature bundle holds {envelope.payload_type!r:.100}, which is not an in-toto statement")
    if len(envelope.signatures) != 1:
        raise Corrupt(f"the signature bundle has {len(envelope.signatures)} signatures, not one")
    return Bundle(envelope.payload, envelope.signatures[0].sig)
