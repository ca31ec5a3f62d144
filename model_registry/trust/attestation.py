"""Attestations: signed statements beside a version that say where it comes from and how well it does.

Stored as signatures are, and as `cosign attest --key` does it. `TYPES` are the types with a short name; any other type is named
by its URI and its predicate is taken as it is.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from model_registry.errors import BadFile, BadReference, Corrupt, Refused
from model_registry.files import read_named
from model_registry.stores import Store
from model_registry.trust import bundle, signing
from model_registry.trust.keys import PrivateKey
from model_registry.trust.signing import Evidence, TrustedKey

PROVENANCE = "https://slsa.dev/provenance/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
EVALUATION = "https://scorestream.io/attestations/evaluation/v1"
_HINT = "model_registry/README.md describes attestations"
TYPES = {"slsa-provenance": PROVENANCE, "test-result": TEST_RESULT, "evaluation": EVALUATION}


@dataclass(frozen=True, slots=True)
class Attestation:
    """One attestation beside a version. `key_id` is the trusted key that signed it.

    Where it is None, no trusted key signed it, for the reason in `fault`: then `predicate` is only a claim.
    """

    type: str
    predicate: Mapping[str, Any]
    referrer: str
    key_id: str | None
    fault: str = ""

    @property
    def verified(self) -> bool:
        """Whether a trusted key signed it for this version."""
        return self.key_id is not None


def read_predicate(path: Path) -> dict[str, Any]:
    """What a file says, to be attested. Raises BadFile where it is not there, or no JSON object."""
    data = read_named("predicate", path)
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadFile(f"the predicate {path} is no JSON object: {error}", _HINT) from None


def attest(store: Store, digest: str, type_: str, predicate: Mapping[str, Any], key: PrivateKey, now: datetime) -> str:
    """Sign a statement about a manifest and store it beside it; the digest of the new referrer.

    Raises BadReference for an unknown type, BadFile for a predicate that its type does not allow, Refused for one that
    is too large, and what the store raises.
    """
    uri = type_uri(type_)
    if check := _CHECKS.get(uri):
        check(predicate)
    return signing.attach(store, digest, uri, bundle.build_statement(digest, uri, dict(predicate)), key, now)


def attestations(store: Store, digest: str, keys: Sequence[TrustedKey], now: datetime) -> list[Attestation]:
    """What is attested about a manifest, verified or not; the signatures themselves are left out.

    What cannot be read at all is left out too: it says nothing. Raises Unreachable, and Corrupt for a damaged list.
    """
    return list(each(store, digest, keys, now))


def each(store: Store, digest: str, keys: Sequence[TrustedKey], now: datetime) -> Iterator[Attestation]:
    """The same, one after the other: everybody who writes to the store may have put hundreds there, of a megabyte each."""
    found = (_read(one, digest, keys, now) for one in signing.collect(store, digest))
    return (one for one in found if one is not None and one.type != bundle.SIGNED)


def type_uri(name: str) -> str:
    """The URI of a predicate type, given by its short name or as it is. Raises BadReference."""
    if name in TYPES:
        return TYPES[name]
    if not name.isprintable() or not name.startswith(("https://", "http://")) or name == bundle.SIGNED:
        raise BadReference(
            f"{name!r:.100} is no type of an attestation", f"write {', '.join(TYPES)}, or the type's https:// URI"
        )
    return name


def _read(found: Evidence, digest: str, keys: Sequence[TrustedKey], now: datetime) -> Attestation | None:
    try:
        said, key_id, fault = bundle.parse_statement(bundle.parse(found.data).payload), None, ""
    except Corrupt:
        return None
    try:
        _, key_id = signing.check(found.data, digest, keys, now)
    except (Corrupt, Refused) as error:
        fault = str(error)
    return Attestation(said.predicate_type, said.predicate, found.referrer, key_id, fault)


def _provenance(predicate: Mapping[str, Any]) -> None:
    """SLSA build provenance v1: both parts are there, and say which build and who built."""
    definition, details = _part(predicate, "buildDefinition"), _part(predicate, "runDetails")
    for part, key in ((definition, "buildType"), (_part(details, "builder"), "id")):
        if not isinstance(part.get(key), str):
            _wrong(f"{key} is {part.get(key)!r:.100}, no text")


def _test_result(predicate: Mapping[str, Any]) -> None:
    if predicate.get("result") not in ("PASSED", "WARNED", "FAILED"):
        _wrong(f"result is {predicate.get('result')!r:.100}, none of PASSED, WARNED and FAILED")
    if not isinstance(predicate.get("configuration"), list):
        _wrong("configuration must be a list of what the tests were configured with, each with its digest")


def _evaluation(predicate: Mapping[str, Any]) -> None:
    """Our own type: `dataset` (text, or an object with name and digest), `metrics` (name to number), and, for classifiers,
    `confusion_matrix` with `labels` and `counts` (rows are true classes, columns predicted ones)."""
    valid = ("dataset", "metrics", "confusion_matrix", "notes")
    if unknown := sorted(set(predicate) - set(valid)):
        _wrong(f"unknown key {unknown[0]!r:.100}; an evaluation has {', '.join(valid)}")
    if not isinstance(predicate.get("dataset"), str | Mapping):
        _wrong("dataset must say on which data the figures were taken")
    metrics = _part(predicate, "metrics")
    if not metrics:
        _wrong("metrics is empty")
    for name, value in metrics.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            _wrong(f"metrics.{name} is {value!r:.100}, no finite number")
    if "confusion_matrix" in predicate:
        _matrix(_part(predicate, "confusion_matrix"))


def _matrix(matrix: Mapping[str, Any]) -> None:
    labels, counts = matrix.get("labels"), matrix.get("counts")
    if not isinstance(labels, list) or not labels:
        _wrong("confusion_matrix.labels must list the classes")
    rows = counts if isinstance(counts, list) else []
    if len(rows) != len(labels) or any(not isinstance(row, list) or len(row) != len(labels) for row in rows):
        _wrong(f"confusion_matrix.counts must have {len(labels)} rows of {len(labels)} counts")
    for count in (count for row in rows for count in row):
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            _wrong(f"confusion_matrix.counts has {count!r:.100}, no count")


def _part(predicate: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = predicate.get(key)
    if not isinstance(found, Mapping):
        _wrong(f"{key} is missing, or no object")
    return found


def _wrong(what: str) -> NoReturn:
    raise BadFile(f"the predicate: {what}", _HINT)


_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    PROVENANCE: _provenance,
    TEST_RESULT: _test_result,
    EVALUATION: _evaluation,
}
