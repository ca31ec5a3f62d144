"""Training runs from verified documents, claims, no documents and hostile documents."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.channels.roles import Role
from model_registry.signing.attestation import Attestation
from model_registry.signing.predicates import COMPARISON, EVALUATION, PROVENANCE
from scorer.console.command_lines import CommandLines
from scorer.console.training import documents, runs, view
from scorer.console.training.attestations import AttestationLibrary, VersionAttestations, collect_attestations
from scorer.console.training.documents import ComparisonDocument, EvaluationDocument, MetricDifference, ProvenanceDocument
from scorer.console.training.run_history import RunHistory
from tests.support import recorded_runs, trained
from tests.unit.scorer.console import console_records
from tests.unit.scorer.minimal import minimal

LINES = CommandLines(minimal(), "scorer.yaml")
DIGEST = "sha256:" + "c" * 64
CHAMPION = (trained.version(0), "sha256:" + "b" * 64)


def attested(type_: str, predicate: dict[str, Any], key: str | None = "training") -> Attestation:
    return Attestation(type_, predicate, "sha256:" + "f" * 64, key, "" if key else "the signature is not from a trusted key")


def run(*attestations: Attestation, number: int = 1, moves: tuple[Any, ...] = ()) -> runs.TrainingRun:
    """Return the run of a version with these attestations."""
    channels = console_records.registry(*moves).channels.values() if moves else ()
    (training_run,) = runs.runs([collect_attestations(trained.version(number), DIGEST, attestations)], channels)
    return training_run


def judged(key: str | None = "training", **overrides: Any) -> tuple[Attestation, Attestation]:
    comparison = trained.comparison(1, DIGEST, CHAMPION, **overrides)
    return attested(PROVENANCE, trained.provenance(1, CHAMPION), key), attested(COMPARISON, comparison, key)


def test_refused_run_has_its_reason_and_failed_rules() -> None:
    training_run = run(*judged(change=-0.0061))
    assert (training_run.verdict, training_run.tone, training_run.verified, training_run.id) == (
        "refused",
        "bad",
        True,
        trained.run_id(1),
    )
    assert training_run.because.startswith("auc -0.0061")
    assert training_run.failed == ["not worse: auc", "recall of late"]
    assert (training_run.date, training_run.training.recipe, training_run.training.seed, training_run.unit) == (
        "2026-03-02",
        "trees",
        2013,
        "trees",
    )
    assert training_run.bar is not None
    assert (training_run.bar.tone, training_run.bar.limit) == ("bad", -0.002)
    assert training_run.bar.edge is not None
    assert (
        training_run.bar.left < training_run.bar.mean < training_run.bar.right < training_run.bar.edge < training_run.bar.zero
    )
    assert training_run.dataset == "sha256:" + "d" * 64
    assert training_run.metrics[0].name == "auc"
    assert training_run.metrics[0].change == pytest.approx(-0.0061)
    assert training_run.warnings == []


def test_claimed_verdict_is_never_good() -> None:
    assert run(*judged()).tone == "good"
    claimed_run = run(*judged(key=None))
    assert (claimed_run.verdict, claimed_run.tone, claimed_run.verified, claimed_run.claimed) == ("passed", "wait", False, True)
    assert run(*judged(key=None, change=-0.0061)).tone == "bad"


def test_verdict_that_only_the_run_recorded_is_never_good() -> None:
    events = recorded_runs.refused(3)
    events.end("passed")
    (recorded_run,) = runs.with_records([], recorded_runs.history(events), 0.0)
    assert (recorded_run.verdict, recorded_run.attested, recorded_run.tone) == ("passed", False, "wait")


def test_missing_documents_are_named() -> None:
    assert (run().verdict, run().because) == ("not judged", "It has no attestations.")
    without_comparison = run(attested(PROVENANCE, trained.provenance(1)), attested(EVALUATION, trained.evaluation()))
    assert without_comparison.because == "Only its provenance and evaluation is attested, and no comparison."
    assert [(metric.name, metric.champion, metric.challenger) for metric in without_comparison.metrics] == [
        ("auc", None, 0.9061),
        ("brier", None, 0.0912),
    ]
    without_champion = run(attested(COMPARISON, trained.comparison(1, DIGEST, rules=[], because="")))
    assert (without_champion.champion, without_champion.bar, without_champion.because) == (
        None,
        None,
        "The comparison has no reason.",
    )
    broken = run(attested(COMPARISON, {"verdict": "perhaps"}))
    assert (broken.verdict, broken.tone) == ("unreadable", "bad")
    assert broken.because == "Its comparison is unreadable: Invalid enum value 'perhaps' - at `$.verdict`"
    assert runs.runs([VersionAttestations(trained.version(1), DIGEST, fault="torn")], [])[0].because.endswith(
        "cannot be read: torn"
    )


def test_versions_without_training_are_not_runs() -> None:
    elsewhere = trained.provenance(1)
    elsewhere["buildDefinition"]["buildType"] = "https://example.org/ci"
    attestations = [attested(PROVENANCE, elsewhere), attested(EVALUATION, trained.evaluation())]
    assert runs.runs([collect_attestations("1.0.0", DIGEST, attestations), collect_attestations("2.0.0", DIGEST, [])], []) == []
    (training_run,) = runs.runs([collect_attestations("1.0.0", DIGEST, [attested(PROVENANCE, trained.provenance(1))])], [])
    assert (training_run.id, training_run.date) == (trained.run_id(1), "")


def test_channel_moves_are_listed_with_their_actor() -> None:
    move = replace(console_records.move(1, trained.version(1), reason=f"run {trained.run_id(1)}"), to_digest=DIGEST)
    by_hand = replace(console_records.move(2, trained.version(1), reason=f"running {trained.run_id(1)}0"), to_digest=DIGEST)
    move_to_other_version = console_records.move(3, "2.0.0", trained.version(1))
    promotions = run(*judged(), moves=(move, by_hand)).promotions
    assert [(promotion.channel, promotion.revision, promotion.by_run, promotion.now) for promotion in promotions] == [
        ("prod", 2, False, True),
        ("prod", 1, True, False),
    ]
    replaced_run = run(*judged(), moves=(move, move_to_other_version))
    assert ([promotion.now for promotion in replaced_run.promotions], replaced_run.serves, replaced_run.warnings) == (
        [False],
        [],
        [],
    )
    roles = (Role("champion", "2.0.0", console_records.digest("2.0.0"), 95), Role("canary", trained.version(1), DIGEST, 5))
    canary = run(*judged(change=-0.0061), moves=(move, replace(console_records.move(2, "2.0.0"), roles=roles)))
    assert canary.serves == ["prod canary"]
    assert canary.warnings == ["prod names it, but its verdict is: refused."]


def test_contradictions_are_warned_of() -> None:
    comparison_of_other_run = trained.comparison(2, "sha256:" + "9" * 64, CHAMPION)
    training_run = run(
        attested(PROVENANCE, {}),
        attested(COMPARISON, comparison_of_other_run),
        attested(COMPARISON, comparison_of_other_run, None),
    )
    assert training_run.warnings == [
        f"The comparison is from another run, {trained.run_id(2)}.",
        f"The comparison is of sha256:{'9' * 64}, which is not this version.",
        "Its provenance is unreadable: Object missing required field `buildDefinition`",
        "The comparison shown is one of 2 attestations of its type.",
    ]


def test_slice_has_its_own_margin_and_run_page_is_complete() -> None:
    page = view.shown(run(*judged()), LINES, {})
    name, rows, bar = page.slices[0]
    assert (name, rows, bar.limit if bar else None) == ("carrier = UA", 9_000, -0.03)
    assert [title for title, _ in page.matrices] == [f"champion {CHAMPION[0]}", f"challenger {trained.version(1)}"]
    assert (len(page.spans), page.spans_left_out, len(page.rules)) == (8, 0, 5)
    assert [text for _, _, text in page.commands] == [
        f"scorer train show training.yaml {trained.run_id(1)}",
        f"model-registry inspect oci:./registry/m:{trained.version(1)} --key KEY.pub --json",
    ]
    bare = view.shown(run(), LINES, {})
    assert (bare.rungs, bare.curve, bare.matrices, bare.rules, bare.slices, bare.spans) == ("", "", [], [], [], [])


def test_runs_are_selected_by_verdict_and_named_by_version_or_id() -> None:
    library = AttestationLibrary(
        (collect_attestations(trained.version(1), DIGEST, judged()), collect_attestations(trained.version(0), DIGEST, [])),
        left_out=3,
        read=True,
    )
    listing = view.training(library, RunHistory(), [], {"show": "passed"}, 0.0)
    assert ([row.version for row in listing.rows.rows], listing.left_out) == ([trained.version(1)], 3)
    assert listing.verdicts == [("passed", 1), ("not judged", 1)]
    for name in (trained.version(1), trained.run_id(1)):
        selected = view.training(library, RunHistory(), [], {"run": name}, 0.0).run
        assert selected is not None
        assert selected.version == trained.version(1)
    assert view.training(library, RunHistory(), [], {"run": ""}, 0.0).run is None
    assert view.training(library, RunHistory(), [], {"run": "no such"}, 0.0).run is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Yield the path of every value in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(path_of_value for key, value in inner for path_of_value in places(value, (*path, key)))]


DOCUMENTS: dict[type[msgspec.Struct], tuple[str, dict[str, Any]]] = {
    ComparisonDocument: (COMPARISON, trained.comparison(1, DIGEST, CHAMPION)),
    ProvenanceDocument: (PROVENANCE, trained.provenance(1, CHAMPION)),
    EvaluationDocument: (EVALUATION, trained.evaluation()),
}


@given(st.data(), st.sampled_from(list(DOCUMENTS)), JSON)
def test_damaged_document_is_shown_or_has_a_one_line_fault(data: st.DataObject, type_: type[msgspec.Struct], junk: Any) -> None:
    uri, valid = DOCUMENTS[type_]
    document = msgspec.json.decode(msgspec.json.encode(valid))
    *path, last_key = data.draw(st.sampled_from(places(document)[1:]))
    target = document
    for key in path:
        target = target[key]
    target[last_key] = junk
    training_run = run(attested(uri, document))
    (statement,) = training_run.attestations.statements
    assert (statement.document is None) == bool(statement.fault)
    assert "\n" not in statement.fault
    assert len(statement.fault) <= 300
    view.shown(training_run, LINES, {})


@pytest.mark.parametrize(
    "wrong",
    [
        {"rules": [{"name": "x", "passed": True}] * 2_049},
        {"because": "x" * 2_001},
        {"metric": "x" * 201},
        {"difference": {"value": float("nan"), "low": 0.0, "high": 0.0}},
        {"difference": {"value": 10**400, "low": 0.0, "high": 0.0}},
        {"challenger": {"confusion_matrix": {"labels": ["a", "b"], "counts": [[1, 2]]}}},
        {"challenger": {"confusion_matrix": {"labels": ["a"], "counts": [[-1]]}}},
        {"challenger": {"metrics": {str(k): 0.5 for k in range(2_049)}}},
    ],
)
def test_documents_are_bounded(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Expected|confusion_matrix|out of range"):
        documents.read(trained.comparison(1, DIGEST) | wrong, ComparisonDocument)


@given(*[st.floats(-1e15, 1e15)] * 3, st.none() | st.floats(-1e15, 1e15))
def test_a_bar_lies_within_its_width(value: float, low: float, high: float, limit: float | None) -> None:
    bar = runs.bar(MetricDifference(value, low, high), limit)
    assert bar is not None
    for place in (bar.left, bar.right, bar.mean, bar.zero, bar.edge or 0.0):
        assert 0 <= place <= runs.WIDTH
    assert bar.left <= bar.right


@pytest.mark.parametrize(("change", "tone"), [(0.5, "bad"), (-0.5, "good")])
def test_bar_of_an_error_is_bad_if_its_interval_exceeds_the_rule(change: float, tone: str) -> None:
    difference = {"value": change, "low": change - 0.1, "high": change + 0.1}
    limits = [{"name": "rmse", "value": change + 0.1, "bound": 0.15, "passed": tone == "good"}]
    slices = [{"field": "carrier", "value": "UA", "rows": 9_000, "difference": difference, "scale": 10.0}]
    overrides: dict[str, Any] = {"metric": "rmse", "difference": difference, "rules": limits, "slices": slices}
    compared = trained.comparison(1, DIGEST, ("1.0.0", "sha256:" + "b" * 64), **overrides)
    training_run = run(judged()[0], attested(COMPARISON, compared))
    assert training_run.bar is not None
    assert (training_run.bar.tone, training_run.bar.limit) == (tone, 0.15)
    ((_, _, bar),) = runs.slice_bars(training_run)
    assert bar is not None
    assert (bar.tone, bar.limit) == ("bad" if change > 0.3 else "good", 0.03 * 10)


def test_runs_without_records_keep_their_order_among_recorded_ones() -> None:
    attested_runs = runs.runs(
        [collect_attestations(trained.version(number), DIGEST, judged() if number == 3 else ()) for number in (4, 3, 2)], []
    )
    events = recorded_runs.refused(3)
    listed_runs = runs.with_records(attested_runs, recorded_runs.history(events), 0.0)
    assert [listed_run.version for listed_run in listed_runs] == [trained.version(4), trained.version(2), trained.version(3)]
    assert [(listed_run.attested, listed_run.state) for listed_run in listed_runs] == [
        (True, ""),
        (True, ""),
        (True, "refused"),
    ]
    assert runs.with_records(attested_runs, RunHistory(), 0.0) == attested_runs
