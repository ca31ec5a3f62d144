"""The chain of evidence of a promotion: from verified attestations alone, and the names of missing parts."""

from pathlib import Path
from typing import Any

import pytest

from model_registry.errors import Refused
from model_registry.signing.attestation import attest
from model_registry.stores.oci_layout import LayoutStore
from tests.support.attested import CHAMPION, RUN, comparison, provenance
from tests.support.publishing import AT, KEY, KEYS, OTHER, copied, folder, publish, records
from tests.unit.model_registry.conftest import make_package, store
from tests.unit.model_registry.keyring import TWO, trusted
from tests.unit.training.publish.test_publish import pushed
from training.publish.attest_and_sign import attest_once
from training.publish.promote import Promoted
from training.publish.verify_lineage import Champion, Span, evidence
from training.snapshot.files import Copied

__all__ = ["copied", "folder", "make_package", "pushed", "records", "store"]


def test_the_evidence_of_a_promotion(store: LayoutStore, folder: Path, records: Path, copied: Copied) -> None:
    published = publish(store, folder, records, copied)
    assert isinstance(published, Promoted)
    lineage = evidence(store, published.move.champion, KEYS, AT, before=published.move.revision)
    assert (lineage.run, lineage.seed, lineage.recipe, lineage.parameters) == (RUN, 7, "trees", {"leaves": 31})
    assert (lineage.dataset, lineage.environment) == (f"sha256:{3:064x}", f"sha256:{4:064x}")
    assert (lineage.champion, lineage.verdict, lineage.passed, lineage.rows, lineage.count) == (
        None,
        "passed",
        True,
        f"sha256:{2:064x}",
        100,
    )
    assert lineage.spans == (
        Span("events", "cluster", "flights", 0, 5, 1_005),
        Span("events", "cluster", "flights", 1, 0, 0),
        Span("labels", "cluster", "outcomes", 0, 0, 990),
    )
    assert lineage.keys == ("training", "training")


def test_the_evidence_is_of_the_champion_of_the_last_comparison(store: LayoutStore, pushed: str) -> None:
    attest_once(store, pushed, "slsa-provenance", provenance(), KEY, AT)
    champion = comparison(pushed)["champion"]
    for revision, verdict in ((5, "passed"), (9, "refused"), (3, "refused")):
        predicate = comparison(pushed, verdict, champion=champion | {"revision": revision})
        attest_once(store, pushed, "comparison", predicate, KEY, AT)
    lineage = evidence(store, pushed, KEYS, AT)
    assert (lineage.verdict, lineage.champion) == ("refused", Champion(CHAMPION, "1.0.0", 9))
    assert evidence(store, pushed, KEYS, AT, before=6).passed
    with pytest.raises(Refused, match="before revision 3"):
        evidence(store, pushed, KEYS, AT, before=3)


def test_evidence_that_is_missing_or_not_verified_is_named(store: LayoutStore, pushed: str) -> None:
    with pytest.raises(Refused, match="has no comparison that a trusted key signed: there is no such attestation"):
        evidence(store, pushed, KEYS, AT)
    attest(store, pushed, "comparison", comparison(pushed), TWO, AT)
    with pytest.raises(Refused, match="no comparison that a trusted key signed: the signature is not from a trusted key"):
        evidence(store, pushed, KEYS, AT)
    attest_once(store, pushed, "comparison", comparison(pushed), KEY, AT)
    with pytest.raises(Refused, match="has no slsa-provenance that a trusted key signed: there is no such attestation"):
        evidence(store, pushed, KEYS, AT)
    attest_once(store, pushed, "slsa-provenance", provenance(OTHER), KEY, AT)
    with pytest.raises(Refused, match="no trusted provenance names this run as its builder"):
        evidence(store, pushed, KEYS, AT)
    attest_once(store, pushed, "slsa-provenance", provenance(), KEY, AT)
    assert evidence(store, pushed, KEYS, AT).passed
    assert evidence(store, pushed, trusted(TWO, KEY), AT).keys == ("key-2", "key-1")


def without(name: str) -> dict[str, Any]:
    predicate = provenance()
    definition = predicate["buildDefinition"]
    definition["resolvedDependencies"] = [
        dependency for dependency in definition["resolvedDependencies"] if dependency["name"] != name
    ]
    return predicate


def spanning(**changes: Any) -> dict[str, Any]:
    predicate = provenance()
    predicate["buildDefinition"]["resolvedDependencies"][0] |= changes
    return predicate


@pytest.mark.parametrize(
    ("predicate", "fault"),
    [
        (without("labels"), "does not name the labels that it was trained on"),
        (without("dataset"), "no digest of the dataset"),
        (without("environment"), "no digest of the environment"),
        (spanning(annotations={"from": 5}), "does not name the offsets of kafka:cluster/flights/0"),
        (spanning(annotations={"from": 5, "to": 4}), "does not name the offsets of"),
        (spanning(uri="kafka:flights"), "not kafka:CLUSTER/TOPIC/PARTITION"),
        (provenance(seed="seven"), "cannot be read"),
    ],
)
def test_incomplete_provenance_is_no_evidence(store: LayoutStore, pushed: str, predicate: dict[str, Any], fault: str) -> None:
    attest_once(store, pushed, "comparison", comparison(pushed), KEY, AT)
    attest_once(store, pushed, "slsa-provenance", predicate, KEY, AT)
    with pytest.raises(Refused) as refused:
        evidence(store, pushed, KEYS, AT)
    assert fault in str(refused.value)
