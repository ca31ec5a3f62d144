"""What each type of attestation must say. `TYPES` are the types with a short name; any other type may say anything.

The checks read documents that anybody may have signed as well as those that are about to be.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from model_registry.errors import BadFile
from model_registry.oci.digests import is_digest

PROVENANCE = "https://slsa.dev/provenance/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
EVALUATION = "https://scorestream.io/attestations/evaluation/v1"
COMPARISON = "https://scorestream.io/attestations/comparison/v1"
TYPES = {"slsa-provenance": PROVENANCE, "test-result": TEST_RESULT, "evaluation": EVALUATION, "comparison": COMPARISON}
PASSED = "passed"
VERDICTS = (PASSED, "refused", "same")
HINT = "model_registry/docs/signing.md describes attestations"


def check(type_uri: str, predicate: Mapping[str, Any], digest: str) -> None:
    """Raises BadFile, naming the fault, for a predicate that its type does not allow about the manifest with this digest."""
    if of_type := _CHECKS.get(type_uri):
        of_type(predicate, digest)


def _provenance(predicate: Mapping[str, Any], _about: str) -> None:
    """SLSA build provenance v1: both parts are there, and say which build and who built."""
    definition, details = _part(predicate, "buildDefinition"), _part(predicate, "runDetails")
    for part, key in ((definition, "buildType"), (_part(details, "builder"), "id")):
        if not isinstance(part.get(key), str):
            _wrong(f"{key} is {part.get(key)!r:.100}, no text")


def _test_result(predicate: Mapping[str, Any], _about: str) -> None:
    if predicate.get("result") not in ("PASSED", "WARNED", "FAILED"):
        _wrong(f"result is {predicate.get('result')!r:.100}, none of PASSED, WARNED and FAILED")
    if not isinstance(predicate.get("configuration"), list):
        _wrong("configuration must be a list of what the tests were configured with, each with its digest")


def _evaluation(predicate: Mapping[str, Any], _about: str) -> None:
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
        _number(f"metrics.{name}", value)
    if "confusion_matrix" in predicate:
        _matrix(_part(predicate, "confusion_matrix"))


def _comparison(predicate: Mapping[str, Any], digest: str) -> None:
    """Our own type: how a version (`challenger`) did beside the one that answers (`champion`; null for a first model) on the
    same `rows`, by which `rules`, and the `verdict`. Further parts are free."""
    if not isinstance(predicate.get("run"), str) or not predicate["run"]:
        _wrong(f"run is {predicate.get('run')!r:.100}, no text")
    rows, challenger = _part(predicate, "rows"), _part(predicate, "challenger")
    _check_digest(rows, "rows")
    _check_digest(challenger, "challenger")
    if challenger["digest"] != digest:
        _wrong(f"challenger.digest is {challenger['digest']}, and the version that it is about is {digest}")
    if "champion" not in predicate:
        _wrong("champion is missing; it is null where there is none")
    if predicate["champion"] is not None:
        _check_digest(_part(predicate, "champion"), "champion")
    verdict, failed = predicate.get("verdict"), _failed(predicate.get("rules"))
    if verdict not in VERDICTS:
        _wrong(f"verdict is {verdict!r:.100}, none of {', '.join(VERDICTS)}")
    if verdict == PASSED and failed:
        _wrong(f"verdict is {PASSED!r}, and the rule {failed[0]!r} did not pass")


def _failed(rules: Any) -> list[str]:
    """The names of the rules that did not pass."""
    if not isinstance(rules, list) or not rules:
        _wrong("rules must list what the version was judged by")
    for at, rule in enumerate(rules):
        if not isinstance(rule, Mapping) or not isinstance(rule.get("name"), str) or not isinstance(rule.get("passed"), bool):
            _wrong(f"rules[{at}] must have a name (text) and passed (true or false)")
        for key in ("value", "bound"):
            if key not in rule:
                _wrong(f"rules[{at}] ({rule['name']!r:.100}) has no {key}; it is null where there is none")
            if rule[key] is not None:
                _number(f"rules[{at}].{key}", rule[key])
    return [rule["name"] for rule in rules if not rule["passed"]]


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


def _number(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        _wrong(f"{name} is {value!r:.100}, no finite number")


def _check_digest(part: Mapping[str, Any], name: str) -> None:
    found = part.get("digest")
    if not isinstance(found, str) or not is_digest(found):
        _wrong(f"{name}.digest is {found!r:.100}, not sha256: and 64 hexadecimal digits")


def _wrong(what: str) -> NoReturn:
    raise BadFile(f"the predicate: {what}", HINT)


_CHECKS: Mapping[str, Callable[[Mapping[str, Any], str], None]] = {
    PROVENANCE: _provenance,
    TEST_RESULT: _test_result,
    EVALUATION: _evaluation,
    COMPARISON: _comparison,
}
