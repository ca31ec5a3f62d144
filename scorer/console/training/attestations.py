"""Select the attestations of one version that the console shows: one for each type of document. Pure.

A document signed by a trusted key takes precedence over a claim, a document that no trusted key signed.
"""

# Every user with write access to the registry can add claims. Among equally trusted documents the last listed one is shown.

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
"""The form of a training run's version name: the date of its data snapshot, and the id of the run."""


@dataclass(frozen=True, slots=True)
class AttestedDocument(Generic[Document]):
    """One attested document of a version.

    Attributes:
        type: The predicate type of the attestation.
        document: The document; None if it is unreadable.
        fault: Why the document is unreadable; otherwise empty.
        key_id: The trusted key that signed the document; None if no trusted key signed it.
        unverified: Why `key_id` is None; empty if a trusted key signed the document.
        others: The number of further attestations of this type.
    """

    type: str
    document: Document | None
    fault: str = ""
    key_id: str | None = None
    unverified: str = ""
    others: int = 0

    @property
    def name(self) -> str:
        """The name of the document's type."""
        return documents.NAMES[self.type]

    @property
    def verified(self) -> bool:
        """Whether a trusted key signed the document."""
        return self.key_id is not None


@dataclass(frozen=True, slots=True)
class VersionAttestations:
    """The attested documents of one version; a document that is not attested is None.

    Attributes:
        fault: The reason why the attestations cannot be read; empty if they can.
        attested: The time of the first attestation in UTC. The time comes from the registry, and no signature covers it.
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
        """The documents that are attested, in the order provenance, evaluation, comparison."""
        return [each for each in (self.provenance, self.evaluation, self.comparison) if each is not None]


@dataclass(frozen=True, slots=True)
class AttestationLibrary:
    """The attestations of the newest versions.

    Attributes:
        left_out: The number of older versions beyond the limit, which are not read.
        read: Whether all versions, except the older ones in `left_out`, were read at least once.
        trusting: Whether the configured policy lists trusted keys. Without trusted keys no document can be verified.
    """

    versions: tuple[VersionAttestations, ...] = ()
    left_out: int = 0
    read: bool = False
    trusting: bool = True


@dataclass(slots=True)
class BestAttestations:
    """Select one attestation of each predicate type from a sequence: the last verified one, or else the last one."""

    best: dict[str, Attestation] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, attestation: Attestation) -> None:
        """Count an attestation, and keep it if it is the best one of its type. An unverified one never replaces a verified one.

        Attestations of other types than `documents.TYPES` are ignored.
        """
        # A verified attestation is better than a claim. Of equally good ones, the last one is selected.
        if attestation.type not in documents.TYPES:
            return
        self.counts[attestation.type] = self.counts.get(attestation.type, 0) + 1
        before = self.best.get(attestation.type)
        if before is None or attestation.verified >= before.verified:
            self.best[attestation.type] = attestation


def collect_attestations(version: str, digest: str, attestations: Iterable[Attestation]) -> VersionAttestations:
    """Return the attested documents of a version. Raises the errors that the iterable raises."""
    selection = BestAttestations()
    for attestation in attestations:
        selection.add(attestation)
    return VersionAttestations(
        version,
        digest,
        provenance=_document(selection, PROVENANCE, ProvenanceDocument),
        evaluation=_document(selection, EVALUATION, EvaluationDocument),
        comparison=_document(selection, COMPARISON, ComparisonDocument),
    )


def _document(selection: BestAttestations, type_: str, document: type[Document]) -> AttestedDocument[Document] | None:
    attestation = selection.best.get(type_)
    if attestation is None:
        return None
    content = None
    fault = ""
    try:
        content = documents.read(attestation.predicate, document)
    except ValueError as error:
        fault = str(error)
    return AttestedDocument(type_, content, fault, attestation.key_id, attestation.fault, selection.counts[type_] - 1)
