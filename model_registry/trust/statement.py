"""in-toto statements (attestation spec v1): something is said (the predicate) about content with a digest (the subject).

A signature is the statement with nothing in it; attestations say more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from model_registry.errors import Corrupt
from model_registry.oci import digest as digests
from model_registry.oci import manifest

TYPE = "https://in-toto.io/Statement/v1"
TYPES = (TYPE, "https://in-toto.io/Statement/v0.1")
SIGNATURE = "https://sigstore.dev/cosign/sign/v1"


class _Subject(msgspec.Struct, frozen=True):
    digest: dict[str, str]
    name: str = ""


class _Statement(msgspec.Struct, frozen=True, rename="camel"):
    type_: str = msgspec.field(name="_type")
    subject: list[_Subject]
    predicate_type: str
    predicate: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """`subjects` are the digests it speaks of, `sha256:` and hexadecimal digits, each with the names that it has there."""

    subjects: Mapping[str, frozenset[str]]
    predicate_type: str
    predicate: dict[str, Any]


def build(digest: str, predicate_type: str, predicate: dict[str, Any], names: Sequence[str] = ()) -> bytes:
    """A statement about one manifest under some names (a subject each), or under none, as JSON."""
    named: list[dict[str, str]] = [{"name": name} for name in names] or [{}]
    subject = [{**name, "digest": {"sha256": digests.hex_of(digest)}} for name in named]
    return manifest.encode({"_type": TYPE, "subject": subject, "predicateType": predicate_type, "predicate": predicate})


def parse(payload: bytes) -> Statement:
    """Raises Corrupt for what is no statement. Says nothing about who made it."""
    found = manifest.decode(payload, _Statement, "the signed statement")
    if found.type_ not in TYPES:
        raise Corrupt(f"the signed document is {found.type_!r:.100}, no in-toto statement")
    subjects: dict[str, frozenset[str]] = {}
    for one in found.subject:
        digest = f"sha256:{one.digest.get('sha256')}"
        subjects[digest] = subjects.get(digest, frozenset()) | ({one.name} - {""})
    return Statement(subjects, found.predicate_type, found.predicate or {})
