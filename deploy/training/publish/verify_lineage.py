"""Collect the evidence of a decision about a version from verified attestations: rows, environment, seed and champion."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from model_registry.errors import BadFile, Refused
from model_registry.oci.digests import is_digest
from model_registry.signing import predicates
from model_registry.signing.attestation import Attestation, list_attestations
from model_registry.signing.predicates import COMPARISON, PASSED, PROVENANCE, TYPES
from model_registry.signing.signatures import TrustedKey
from model_registry.stores.base import Store

NAMES = {uri: name for name, uri in TYPES.items()}
KINDS = ("events", "labels")
_HINT = "model-registry inspect REF --key FILE shows the attestations; a training run attests both"


class _Dependency(msgspec.Struct, frozen=True):
    name: str
    uri: str = ""
    digest: dict[str, str] = {}
    annotations: dict[str, Any] = {}


class _Internal(msgspec.Struct, frozen=True):
    run: str
    seed: int
    recipe: str
    parameters: dict[str, Any] = {}


class _Definition(msgspec.Struct, frozen=True, rename="camel"):
    build_type: str
    internal_parameters: _Internal
    resolved_dependencies: list[_Dependency]


class _Provenance(msgspec.Struct, frozen=True, rename="camel"):
    build_definition: _Definition


class Champion(msgspec.Struct, frozen=True):
    """The champion that a version was compared with, and the revision of the channel at that time."""

    digest: str
    version: str
    revision: int


class _Compared(msgspec.Struct, frozen=True):
    run: str
    rows: dict[str, Any]
    champion: Champion | None
    verdict: str
    rules: list[dict[str, Any]]
    because: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """The records with offsets `[begin, end)` of a partition; `kind` is events or labels."""

    kind: str
    cluster: str
    topic: str
    partition: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class DecisionEvidence:
    """The evidence of a decision to promote or reject a version. Digests are `sha256:...`.

    Attributes:
        spans: The record ranges that the version was trained on.
        count: The number of rows on which the version and the champion were evaluated.
        rows: The digest of these rows.
        keys: The ids of the trusted keys that signed the provenance and the comparison.
    """

    digest: str
    run: str
    seed: int
    recipe: str
    parameters: Mapping[str, Any]
    spans: tuple[Span, ...]
    dataset: str
    environment: str
    champion: Champion | None
    rows: str
    count: int | None
    verdict: str
    because: str
    rules: Sequence[Mapping[str, Any]]
    keys: tuple[str, str]

    @property
    def passed(self) -> bool:
        return self.verdict == PASSED


def evidence(
    store: Store, digest: str, keys: Sequence[TrustedKey], now: datetime, before: int | None = None
) -> DecisionEvidence:
    """Return the evidence about the training and the evaluation of a version, from attestations of trusted keys.

    If the version was compared several times, the comparison with the newest champion is used. `before` excludes champions of
    this and later channel revisions. To get the comparison that decided a promotion, pass the promotion's revision.

    Raises:
        Refused: An attestation is missing, not signed by a trusted key, or contradicts another one.
        Unreachable: The store is unreachable.
        Corrupt: The list of attestations is damaged.
    """
    attestations = list_attestations(store, digest, keys, now)
    every = [(attested, _comparison(attested, digest)) for attested in _verified(attestations, COMPARISON, digest)]
    compared = [pair for pair in every if before is None or _revision(pair[1]) < before]
    if not compared:
        raise Refused(f"{digest} has no comparison with a champion from before revision {before} of the channel", _HINT)
    judged_by, judged = max(compared, key=lambda pair: (_revision(pair[1]), pair[1].verdict == PASSED))
    for made_by, definition in (
        (attested, _provenance(attested, digest)) for attested in _verified(attestations, PROVENANCE, digest)
    ):
        if definition.internal_parameters.run == judged.run:
            return _joined(digest, made_by, definition, judged_by, judged)
    raise Refused(
        f"{digest} was compared by the run {judged.run}, but no trusted provenance names this run as its builder", _HINT
    )


def _joined(
    digest: str, made_by: Attestation, definition: _Definition, judged_by: Attestation, judged: _Compared
) -> DecisionEvidence:
    inside = definition.internal_parameters
    named = {dependency.name: dependency for dependency in definition.resolved_dependencies}
    spans = tuple(_span(dependency, digest) for dependency in definition.resolved_dependencies if dependency.name in KINDS)
    for kind in KINDS:
        if not any(span.kind == kind for span in spans):
            raise Refused(f"{digest}: its provenance does not name the {kind} that it was trained on", _HINT)
    dataset, environment = (_digest_of(named.get(name), name, digest) for name in ("dataset", "environment"))
    count = judged.rows.get("count")
    return DecisionEvidence(
        digest,
        inside.run,
        inside.seed,
        inside.recipe,
        inside.parameters,
        spans,
        dataset,
        environment,
        judged.champion,
        judged.rows["digest"],
        count if isinstance(count, int) else None,
        judged.verdict,
        judged.because,
        judged.rules,
        (str(made_by.key_id), str(judged_by.key_id)),
    )


def _verified(attestations: Sequence[Attestation], type_: str, digest: str) -> list[Attestation]:
    """Return the attestations of a type that trusted keys signed. Raises Refused with the reasons if there is none."""
    of_type = [attested for attested in attestations if attested.type == type_]
    if trusted := [attested for attested in of_type if attested.verified]:
        return trusted
    faults = "; ".join(dict.fromkeys(attested.fault for attested in of_type)) or "there is no such attestation"
    raise Refused(f"{digest} has no {NAMES[type_]} that a trusted key signed: {faults}", _HINT)


def _comparison(attested: Attestation, digest: str) -> _Compared:
    """Decode the predicate of a comparison. Raises Refused if it is not valid."""
    try:
        predicates.check(COMPARISON, attested.predicate, digest)
        return msgspec.convert(attested.predicate, _Compared)
    except (BadFile, msgspec.ValidationError) as error:
        raise Refused(f"{digest}: the comparison that {attested.key_id!r} signed cannot be read: {error}", _HINT) from None


def _provenance(attested: Attestation, digest: str) -> _Definition:
    """Decode the build definition in the predicate of a provenance. Raises Refused if it is not valid."""
    try:
        return msgspec.convert(attested.predicate, _Provenance).build_definition
    except msgspec.ValidationError as error:
        raise Refused(f"{digest}: the provenance that {attested.key_id!r} signed cannot be read: {error}", _HINT) from None


def _span(dependency: _Dependency, digest: str) -> Span:
    """Return the range of Kafka records that a dependency in a provenance names.

    The URI of the dependency must be `kafka:CLUSTER/TOPIC/PARTITION`. Its annotation `from` must be the first offset of the
    range, and `to` the offset after the last one.

    Args:
        dependency: The dependency.
        digest: The digest of the version that has the provenance, for the error message.

    Raises:
        Refused: A part is missing or not valid.
    """
    cluster, _, rest = dependency.uri.removeprefix("kafka:").partition("/")
    topic, _, partition = rest.rpartition("/")
    begin = dependency.annotations.get("from")
    end = dependency.annotations.get("to")
    if not (dependency.uri.startswith("kafka:") and cluster and topic and partition.isdecimal()):
        raise Refused(
            f"{digest}: its provenance names {dependency.uri!r:.200}, which is not kafka:CLUSTER/TOPIC/PARTITION", _HINT
        )
    if not isinstance(begin, int) or not isinstance(end, int) or not 0 <= begin <= end:
        raise Refused(f"{digest}: its provenance does not name the offsets of {dependency.uri} that it was trained on", _HINT)
    return Span(dependency.name, cluster, topic, int(partition), begin, end)


def _digest_of(dependency: _Dependency | None, name: str, digest: str) -> str:
    stated_digest = f"sha256:{dependency.digest.get('sha256')}" if dependency else ""
    if not is_digest(stated_digest):
        raise Refused(f"{digest}: its provenance has no digest of the {name} that it was trained with", _HINT)
    return stated_digest


def _revision(compared: _Compared) -> int:
    return compared.champion.revision if compared.champion else 0
