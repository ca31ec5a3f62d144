"""Attestations are written, read back with their verification, and refused if their type does not allow the content."""

from typing import Any

import pytest

from model_registry.errors import BadFile, BadReference
from model_registry.signing import bundle, referrers, signatures
from model_registry.signing.attestation import attest, list_attestations, type_uri
from model_registry.signing.predicates import COMPARISON, EVALUATION, PROVENANCE, TEST_RESULT
from model_registry.stores.oci_layout import LayoutStore
from tests.support.attested import comparison
from tests.unit.model_registry.keyring import NOW, ONE, TWO, trusted, version

GOOD: dict[str, dict[str, Any]] = {
    "slsa-provenance": {
        "buildDefinition": {"buildType": "https://example.org/train/v1", "externalParameters": {"seed": 7}},
        "runDetails": {"builder": {"id": "https://example.org/ci"}},
    },
    "test-result": {"result": "PASSED", "configuration": [{"name": "golden", "digest": {"sha256": "0" * 64}}]},
    "evaluation": {
        "dataset": {"name": "flights-2013-q4", "digest": {"sha256": "0" * 64}},
        "metrics": {"auc": 0.93, "rows": 81_000},
        "confusion_matrix": {"labels": ["late", "on time"], "counts": [[5, 1], [2, 9]]},
        "notes": "held out by time",
    },
    "https://example.org/mine/v1": {"anything": [1, 2]},
}


@pytest.mark.parametrize("type_", GOOD)
def test_an_attestation_is_read_with_its_verified_key(store: LayoutStore, type_: str) -> None:
    digest = version(store)
    referrer = attest(store, digest, type_, GOOD[type_], ONE, NOW)
    (attestation,) = list_attestations(store, digest, trusted(ONE), NOW)
    assert (attestation.type, attestation.predicate, attestation.referrer) == (type_uri(type_), GOOD[type_], referrer)
    assert attestation.verified
    assert attestation.key_id == "key-1"


def test_an_attestation_without_a_trusted_signature_is_unverified(store: LayoutStore) -> None:
    first, second = version(store, "one"), version(store, "two")
    attest(store, first, "evaluation", GOOD["evaluation"], ONE, NOW)
    (attestation,) = list_attestations(store, first, trusted(TWO), NOW)
    assert (attestation.verified, attestation.fault) == (False, "the signature is not from a trusted key")
    content = next(signatures.collect(store, first)).data
    referrers.attach(store, second, bundle.MEDIA_TYPE, content, {})
    (attestation,) = list_attestations(store, second, trusted(ONE), NOW)
    assert not attestation.verified
    assert "another digest" in attestation.fault


def test_signatures_and_noise_are_no_attestations(store: LayoutStore) -> None:
    digest = version(store)
    signatures.sign(store, digest, ONE, NOW)
    referrers.attach(store, digest, bundle.MEDIA_TYPE, b"noise", {})
    assert list_attestations(store, digest, trusted(ONE), NOW) == []


def test_types() -> None:
    names = {"slsa-provenance": PROVENANCE, "test-result": TEST_RESULT, "evaluation": EVALUATION, "comparison": COMPARISON}
    assert {name: type_uri(name) for name in names} == names
    for type_name in ("slsa", "", "ftp://x", "https://x\n", "https://sigstore.dev/cosign/sign/v1"):
        with pytest.raises(BadReference, match="not a type of attestation"):
            type_uri(type_name)


def test_a_comparison_is_attested_with_any_verdict_and_for_a_first_model(store: LayoutStore) -> None:
    digest = version(store)
    comparisons = [comparison(digest, verdict) for verdict in ("passed", "refused", "same")] + [
        comparison(digest, champion=None)
    ]
    for attested in comparisons:
        attest(store, digest, "comparison", attested, ONE, NOW)
    assert [attestation.predicate for attestation in list_attestations(store, digest, trusted(ONE), NOW)] == comparisons


RULE = {"name": "leak", "value": 0, "bound": 0, "passed": True}
BAD_COMPARISONS: list[tuple[dict[str, Any], str]] = [
    ({"run": ""}, "run is ''"),
    ({"rows": None}, "rows is missing"),
    ({"rows": {"digest": "abc"}}, "rows.digest is 'abc'"),
    ({"challenger": {"digest": f"sha256:{7:064x}"}}, "but the attested version is sha256:"),
    ({"challenger": {}}, "challenger.digest is None"),
    ({"champion": {"digest": "1.0.0"}}, "champion.digest is '1.0.0'"),
    ({"champion": "1.0.0"}, "champion is missing, or is not an object"),
    ({"verdict": "yes"}, "verdict is 'yes'; it must be one of passed, refused, same"),
    ({"verdict": None}, "verdict is None"),
    ({"rules": []}, "rules must list"),
    ({"rules": [RULE | {"passed": "true"}]}, "rules[0] must have a name"),
    ({"rules": [RULE | {"passed": False}]}, "verdict is 'passed', but the rule 'leak' did not pass"),
    ({"rules": [RULE | {"value": float("inf")}]}, "rules[0].value is inf"),
    ({"rules": [RULE | {"bound": "0.9"}]}, "rules[0].bound is '0.9'"),
    ({"rules": [{"name": "leak", "passed": True, "bound": 0}]}, "rules[0] ('leak') has no value"),
]


@pytest.mark.parametrize(("changes", "fault"), BAD_COMPARISONS)
def test_an_incomplete_comparison_is_refused(store: LayoutStore, changes: dict[str, Any], fault: str) -> None:
    digest = version(store)
    with pytest.raises(BadFile) as refused:
        attest(store, digest, "comparison", comparison(digest) | changes, ONE, NOW)
    assert fault in str(refused.value)
    without = comparison(digest)
    del without["champion"]
    with pytest.raises(BadFile, match="write null if there is none"):
        attest(store, digest, "comparison", without, ONE, NOW)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("slsa-provenance", {}, "buildDefinition is missing"),
    ("slsa-provenance", {"buildDefinition": {"buildType": 1}, "runDetails": {"builder": {"id": "x"}}}, "buildType is 1"),
    ("slsa-provenance", {"buildDefinition": {"buildType": "x"}, "runDetails": {"builder": {}}}, "id is None"),
    ("test-result", {"result": "ok", "configuration": []}, "result is 'ok'"),
    ("test-result", {"result": "PASSED"}, "configuration must be a list"),
    ("evaluation", {"metrics": {"auc": 1}}, "dataset must name"),
    ("evaluation", {"dataset": "x", "metrics": {}}, "metrics is empty"),
    ("evaluation", {"dataset": "x", "metrics": {"auc": "good"}}, "metrics.auc is 'good'"),
    ("evaluation", {"dataset": "x", "metrics": {"auc": float("nan")}}, "metrics.auc is nan"),
    ("evaluation", {"dataset": "x", "metrics": {"auc": True}}, "metrics.auc is True"),
    ("evaluation", {"dataset": "x", "metrics": {"a": 1}, "metric": {}}, "unknown key 'metric'"),
    ("evaluation", {"dataset": "x", "metrics": {"a": 1}, "confusion_matrix": {}}, "labels must list"),
    (
        "evaluation",
        {"dataset": "x", "metrics": {"a": 1}, "confusion_matrix": {"labels": ["a", "b"], "counts": [[1, 2]]}},
        "2 rows of 2 counts",
    ),
    (
        "evaluation",
        {"dataset": "x", "metrics": {"a": 1}, "confusion_matrix": {"labels": ["a"], "counts": [[-1]]}},
        "has -1, which is not a count",
    ),
    (
        "evaluation",
        {"dataset": "x", "metrics": {"a": 1}, "residuals": {"edges": [0, 1]}},
        "residuals must have edges, and counts",
    ),
    (
        "evaluation",
        {"dataset": "x", "metrics": {"a": 1}, "residuals": {"edges": [0, 1, 1], "counts": [3, 4]}},
        "residuals.edges must be increasing numbers",
    ),
    (
        "evaluation",
        {"dataset": "x", "metrics": {"a": 1}, "residuals": {"edges": [0, float("inf")], "counts": [3]}},
        "residuals.edges[1] is inf",
    ),
    (
        "evaluation",
        {"dataset": "x", "metrics": {"a": 1}, "residuals": {"edges": [0, 1], "counts": [0.5]}},
        "residuals.counts has 0.5, which is not a count",
    ),
    (
        "evaluation",
        {"dataset": "x", "metrics": {"a": 1}, "interval_coverage": {"level": 0.8, "value": 0.7, "low": 0.6}},
        "interval_coverage.high is None",
    ),
    (
        "evaluation",
        {"dataset": "x", "metrics": {"a": 1}, "interval_coverage": {"level": 80, "value": 0.7, "low": 0.6, "high": 0.8}},
        "interval_coverage.level is 80; it must be a share from 0 to 1",
    ),
]


@pytest.mark.parametrize(("type_", "predicate", "fault"), WRONG)
def test_a_predicate_that_its_type_does_not_allow_is_refused(
    store: LayoutStore, type_: str, predicate: dict[str, Any], fault: str
) -> None:
    digest = version(store)
    with pytest.raises(BadFile, match="the predicate") as refused:
        attest(store, digest, type_, predicate, ONE, NOW)
    assert fault in str(refused.value)
    assert referrers.listed(store, digest) == []
