"""Checks the predicates (contents) of attestations. TYPES lists the checked types; predicates of other types are not checked.

A predicate is checked before it is signed. It is checked again after it is read, because any account may have stored it.
"""

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
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
HINT = "model_registry/docs/attestations.md describes attestations"


def check(type_uri: str, predicate: Mapping[str, Any], digest: str) -> None:
    """Raise BadFile if a predicate does not have the form of its type, or is about another manifest than `digest`.

    A predicate of a type that is not in TYPES is not checked.
    """
    if check_predicate := _CHECKS.get(type_uri):
        check_predicate(predicate, digest)


def _provenance(predicate: Mapping[str, Any], _about: str) -> None:
    """Check SLSA build provenance v1, which must state a build type and a builder."""
    definition = _part(predicate, "buildDefinition")
    details = _part(predicate, "runDetails")
    for part, key in ((definition, "buildType"), (_part(details, "builder"), "id")):
        if not isinstance(part.get(key), str):
            _fail(f"{key} is {part.get(key)!r:.100}, which is not a text")


def _test_result(predicate: Mapping[str, Any], _about: str) -> None:
    if predicate.get("result") not in ("PASSED", "WARNED", "FAILED"):
        _fail(f"result is {predicate.get('result')!r:.100}; it must be PASSED, WARNED or FAILED")
    if not isinstance(predicate.get("configuration"), list):
        _fail("configuration must be a list of what the tests were configured with, each with its digest")


def _evaluation(predicate: Mapping[str, Any], _about: str) -> None:
    """Check an evaluation, a predicate type of this product.

    An evaluation has `dataset` (text, or an object with name and digest) and `metrics` (numbers by name). For a classifier it
    may have `confusion_matrix` with `labels` and `counts` (a row per true class, a column per predicted class). For a
    regression it may have `residuals` with `edges` and `counts`: a histogram of score minus label. For a regression with
    intervals it may have `interval_coverage`: the share of the outcomes in their intervals (`value`, from `low` to `high`), and
    the share that the intervals are meant to contain (`level`).
    """
    valid = ("dataset", "metrics", "confusion_matrix", "residuals", "interval_coverage", "notes")
    if unknown := sorted(set(predicate) - set(valid)):
        _fail(f"unknown key {unknown[0]!r:.100}; an evaluation has {', '.join(valid)}")
    if not isinstance(predicate.get("dataset"), str | Mapping):
        _fail("dataset must name the data on which the metrics were measured")
    metrics = _part(predicate, "metrics")
    if not metrics:
        _fail("metrics is empty; it must contain at least one metric")
    for name, value in metrics.items():
        _number(f"metrics.{name}", value)
    if "confusion_matrix" in predicate:
        _matrix(_part(predicate, "confusion_matrix"))
    if "residuals" in predicate:
        _residuals(_part(predicate, "residuals"))
    if "interval_coverage" in predicate:
        _coverage(_part(predicate, "interval_coverage"))


def _comparison(predicate: Mapping[str, Any], digest: str) -> None:
    """Check a comparison, a predicate type of this product.

    A comparison has the id of the run (`run`), the compared version (`challenger`), the version that answered at that time
    (`champion`; null if there was none), the rows that both versions scored (`rows`), the results of the rules (`rules`), and
    the result for the challenger (`verdict`). Further keys are not checked.
    """
    if not isinstance(predicate.get("run"), str) or not predicate["run"]:
        _fail(f"run is {predicate.get('run')!r:.100}, which is not a text")
    rows = _part(predicate, "rows")
    challenger = _part(predicate, "challenger")
    _check_digest(rows, "rows")
    _check_digest(challenger, "challenger")
    if challenger["digest"] != digest:
        _fail(f"challenger.digest is {challenger['digest']}, but the attested version is {digest}")
    if "champion" not in predicate:
        _fail("champion is missing; write null if there is none")
    if predicate["champion"] is not None:
        _check_digest(_part(predicate, "champion"), "champion")
    verdict = predicate.get("verdict")
    failed = _failed(predicate.get("rules"))
    if verdict not in VERDICTS:
        _fail(f"verdict is {verdict!r:.100}; it must be one of {', '.join(VERDICTS)}")
    if verdict == PASSED and failed:
        _fail(f"verdict is {PASSED!r}, but the rule {failed[0]!r} did not pass")


def _failed(rules: Any) -> list[str]:
    """Check the rules of a comparison, and return the names of the rules that did not pass."""
    if not isinstance(rules, list) or not rules:
        _fail("rules must list the rules by which the version was compared")
    for index, rule in enumerate(rules):
        if not isinstance(rule, Mapping) or not isinstance(rule.get("name"), str) or not isinstance(rule.get("passed"), bool):
            _fail(f"rules[{index}] must have a name (text) and passed (true or false)")
        for key in ("value", "bound"):
            if key not in rule:
                _fail(f"rules[{index}] ({rule['name']!r:.100}) has no {key}; write null if there is none")
            if rule[key] is not None:
                _number(f"rules[{index}].{key}", rule[key])
    return [rule["name"] for rule in rules if not rule["passed"]]


def _matrix(matrix: Mapping[str, Any]) -> None:
    labels = matrix.get("labels")
    counts = matrix.get("counts")
    if not isinstance(labels, list) or not labels:
        _fail("confusion_matrix.labels must list the classes")
    rows = counts if isinstance(counts, list) else []
    if len(rows) != len(labels) or any(not isinstance(row, list) or len(row) != len(labels) for row in rows):
        _fail(f"confusion_matrix.counts must have {len(labels)} rows of {len(labels)} counts")
    for count in (count for row in rows for count in row):
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            _fail(f"confusion_matrix.counts has {count!r:.100}, which is not a count")


def _residuals(residuals: Mapping[str, Any]) -> None:
    edges = residuals.get("edges")
    counts = residuals.get("counts")
    if not isinstance(edges, list) or not isinstance(counts, list) or len(edges) < 2 or len(edges) != len(counts) + 1:
        _fail("residuals must have edges, and counts with one element less than edges")
    for at, edge in enumerate(edges):
        _number(f"residuals.edges[{at}]", edge)
    if any(low >= high for low, high in pairwise(edges)):
        _fail("residuals.edges must be increasing numbers")
    for count in counts:
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            _fail(f"residuals.counts has {count!r:.100}, which is not a count")


def _coverage(coverage: Mapping[str, Any]) -> None:
    for key in ("level", "value", "low", "high"):
        share: Any = coverage.get(key)
        _number(f"interval_coverage.{key}", share)
        if not 0 <= share <= 1:
            _fail(f"interval_coverage.{key} is {share!r:.100}; it must be a share from 0 to 1")


def _part(predicate: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = predicate.get(key)
    if not isinstance(part, Mapping):
        _fail(f"{key} is missing, or is not an object")
    return part


def _number(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        _fail(f"{name} is {value!r:.100}, which is not a finite number")


def _check_digest(part: Mapping[str, Any], name: str) -> None:
    digest = part.get("digest")
    if not isinstance(digest, str) or not is_digest(digest):
        _fail(f"{name}.digest is {digest!r:.100}; it must be sha256: and 64 hexadecimal digits")


def _fail(problem: str) -> NoReturn:
    raise BadFile(f"the predicate: {problem}", HINT)


_CHECKS: Mapping[str, Callable[[Mapping[str, Any], str], None]] = {
    PROVENANCE: _provenance,
    TEST_RESULT: _test_result,
    EVALUATION: _evaluation,
    COMPARISON: _comparison,
}
