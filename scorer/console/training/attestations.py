"""What is attested about one version, the best statement of each document. Pure.

A statement that a trusted key signed wins over every other: whoever writes to the registry can add claims, never a verified
statement. Of several that are equal in this the last that is listed counts.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from model_registry.signing.attestation import Attestation
from model_registry.signing.predicates import COMPARISON, EVALUATION, PROVENANCE
from scorer.console.training import documents
from scorer.console.training.documents import ComparisonDocument, EvaluationDocument, ProvenanceDocument

Document = TypeVar("Document", ProvenanceDocument, EvaluationDocument, ComparisonDocument)
RUN_VERSION = re.compile(r"(\d{4})(\d\d)(\d\d)-([0-9a-f]{12})")
"""What training calls a version: the date of its snapshot and the id of its run."""


@dataclass(frozen=True, slots=True)
class AttestedDocument(Generic[Document]):
    """One document of a version. `said` is None where it does not read, for the reason in `fault`.

    `key_id` is the trusted key that signed it; None: it is claimed only, for the reason in `unverified`. `others` counts the
    further statements of this type.
    """

    type: str
    said: Document | None
    fault: str = ""
    key_id: str | None = None
    unverified: str = ""
    others: int = 0

    @property
    def name(self) -> str:
        return documents.NAMES[self.type]

    @property
    def verified(self) -> bool:
        return self.key_id is not None


@dataclass(frozen=True, slots=True)
class VersionAttestations:
    """The documents of one version; None: nobody attested it. `fault` says why its attestations cannot be read at all.

    `attested` is when the first of them was stored, in UTC, as the registry lists it: nobody signed that.
    """

    version: str
    digest: str
    provenance: AttestedDocument[ProvenanceDocument] | None = None
    evaluation: AttestedDocument[EvaluationDocument] | None = None
    comparison: AttestedDocument[ComparisonDocument] | None = None
    fault: str = ""
    attested: datetime | None = None

    @property
    def statements(
        self,
    ) -> list[
        AttestedDocument[ProvenanceDocument] | AttestedDocument[EvaluationDocument] | AttestedDocument[ComparisonDocument]
    ]:
        """Those that are there."""
        return [each for each in (self.provenance, self.evaluation, self.comparison) if each is not None]


@dataclass(frozen=True, slots=True)
class AttestationLibrary:
    """The versions that were looked at. `left_out` are those beyond the most that are; `read` says that all were seen once.
    `trusting`: whether a policy names keys; without one no statement can be verified."""

    versions: tuple[VersionAttestations, ...] = ()
    left_out: int = 0
    read: bool = False
    trusting: bool = True


@dataclass(slots=True)
class BestAttestations:
    """The best statement of each type among those that are heard, one after the other: no more than one of each is held."""

    found: dict[str, Attestation] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def hear(self, one: Attestation) -> None:
        if one.type not in documents.TYPES:
            return
        self.counts[one.type] = self.counts.get(one.type, 0) + 1
        before = self.found.get(one.type)
        if before is None or one.verified >= before.verified:
            self.found[one.type] = one


def collect_attestations(version: str, digest: str, attestations: Iterable[Attestation]) -> VersionAttestations:
    """The evidence of a version. Raises what reading the attestations raises."""
    best = BestAttestations()
    for one in attestations:
        best.hear(one)
    return VersionAttestations(
        version,
        digest,
        provenance=_statement(best, PROVENANCE, ProvenanceDocument),
        evaluation=_statement(best, EVALUATION, EvaluationDocument),
        comparison=_statement(best, COMPARISON, ComparisonDocument),
    )


def _statement(best: BestAttestations, type_: str, document: type[Document]) -> AttestedDocument[Document] | None:
    one = best.found.get(type_)
    if one is None:
        return None
    said, fault = None, ""
    try:
        said = documents.read(one.predicate, document)
    except ValueError as error:
        fault = str(error)
    return AttestedDocument(type_, said, fault, one.key_id, one.fault, best.counts[type_] - 1)
