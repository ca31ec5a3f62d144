"""in-toto statements (attestation spec v1): something is said (the predicate) about content with a digest (the subject).

A signature is the statement with nothing in it; attestations say more.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from model_registry import digest as digests
from model_registry import manifest
from model_registry.errors import Corrupt

TYPE = "https://in-toto.io/Statement/v1"
TYPES = (TYPE, "https://in-toto.io/Statement/v0.1")
SIGNATURE = "https://sigstore.dev/cosign/sign/v1"


class _Subject(msgspec.Struct, frozen=True):
    digest: dict[str, str]


class _Statement(msgspec.Struct, frozen=True, rename="camel"):
    type_: str = msgspec.field(name="_type")
    subject: list[_Subject]
    predicate_type: str
    predicate: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """`subjects` are the digests it speaks of, `sha256:` and hexadecimal digits."""

    subjects: frozenset[str]
    predicate_type: str
    predicate: dict[str, Any]


def build(digest: str, predicate_type: str, predicate: dict[str, Any]) -> bytes:
    """A statement about one manifest, as JSON."""
    subject = [{"digest": {"sha256": digests.hex_of(digest)}}]
    return manifest.encode({"_type": TYPE, "subject": subject, "predicateType": predicate_type, "predicate": predicate})


def parse(payload: bytes) -> Statement:
    """Raises Corrupt for what is no statement. Says nothing about who made it."""
    found = manifest.decode(payload, _Statement, "the signed statement")
    if found.type_ not in TYPES:
        raise Corrupt(f"the signed document is {found.type_!r:.100}, no in-toto statement")
    subjects = frozenset(f"sha256:{value}" for one in found.subject if (value := one.digest.get("sha256")))
    return Statement(subjects, found.predicate_type, found.predicate or {})
