"""The reports of recorded runs: complete for a run as it is written, and without a fault for hostile records."""

import json
from io import StringIO
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console, RenderableType

from publisher.errors import Fatal
from scorer.console.training import documents
from scorer.console.training.step_documents import EvaluatedDocument
from tests.support import recorded_runs, trained
from tests.support.recorded_runs import RecordedEvents
from training.commands import run_report
from training.pipeline.step_results import Evaluated, JoinResult, Part, as_json
from training.runs_topic.read_history import find_run
from training.snapshot.target import Target
from training.validation_gate.comparison import ConfusionMatrix, IntervalCoverage, Residuals
from training.validation_gate.metrics import ModelAnswers
from training.validation_gate.version_figures import MAX_CLASSES, NO_CLASS, confusion_matrix


def printed(report: RenderableType) -> str:
    output = StringIO()
    Console(file=output, width=200).print(report)
    return output.getvalue()


def test_refused_run_is_reported_with_its_rules_trials_and_cost() -> None:
    (run,) = recorded_runs.history(recorded_runs.refused(1)).runs.values()
    document = run_report.recorded_document(run, 1e12)
    assert (document["outcome"], document["version"], document["digest"]) == (
        "refused",
        trained.version(1),
        recorded_runs.DIGEST,
    )
    assert document["comparison"]["verdict"] == "refused"
    assert [trial["metrics"][-1]["budget"] for trial in document["trials"]] == [27] * 6
    assert json.loads(json.dumps(document)) == document
    text = printed(run_report.recorded_tables(run, 1e12))
    for part in ("refused", "recall of late", "learning_rate", "trained to", "seconds"):
        assert part in text


@pytest.mark.parametrize("result", [None, [], "x", {"parts": [{}]}, {"counts": 1}, {"rungs": [{"budget": 1}]}, {"rules": [{}]}])
def test_step_with_any_result_is_reported_without_a_fault(result: Any) -> None:
    events = RecordedEvents(1)
    events.start()
    for step in ("plan", "freeze", "copy", "join", "search", "push", "evaluate", "gate", "promote", "other"):
        events.step(step, result)
    (run,) = recorded_runs.history(events).runs.values()
    assert run_report.recorded_document(run, 0.0)["steps"][-1]["step"] == "other"
    assert "interrupted" in printed(run_report.recorded_tables(run, 1e12))


def test_search_for_a_low_metric_is_reported_with_its_lowest_score_and_its_failures() -> None:
    rungs = [{"budget": 27, "trials": [{"trial": 0, "score": 0.25}, {"trial": 1, "score": 0.75}], "kept": [0]}]
    failures = [{"trial": 2, "budget": 27, "reason": "exit code 7", "log": "no luck"}]
    events = RecordedEvents(1)
    events.start()
    events.step("search", {"metric": "log_loss", "goal": "min", "rungs": rungs, "failures": failures})
    (run,) = recorded_runs.history(events).runs.values()
    text = printed(run_report.recorded_tables(run, 1e12))
    assert "0.2500" in text
    assert "0.7500" not in text
    assert "trial 2 failed at 27: exit code 7" in text
    assert "no luck" in text


def test_scores_are_reported_while_the_search_runs_with_its_default_metric() -> None:
    events = RecordedEvents(1)
    events.trial(0, 27, {})
    events.line(0, 27, rmse=0.625)
    (run,) = recorded_runs.history(events).runs.values()
    text = printed(run_report.recorded_tables(run, 1e12))
    assert "rmse" in text
    assert "0.6250" in text


def test_the_evaluation_of_a_run_has_its_confusion_matrix() -> None:
    (run,) = recorded_runs.history(recorded_runs.refused(1)).runs.values()
    assert run.evaluation is not None
    assert run.evaluation.confusion_matrix is not None
    assert run.evaluation.confusion_matrix.counts == [[40, 2], [3, 50]]


def test_a_run_of_150_classes_is_reported_with_its_metrics_and_rules() -> None:
    names = [f"{figure}.{number}" for figure in ("precision", "recall") for number in range(150)]
    metrics = dict.fromkeys(names, 0.5)
    events = RecordedEvents(1)
    events.start()
    events.step("join", {"version": "1.0.0", "classes": dict.fromkeys(map(str, range(150)), 9)})
    events.step("evaluate", {"metrics": metrics})
    rules = [{"name": name, "passed": True} for name in names]
    events.step("gate", {"verdict": "passed", "challenger": {"metrics": metrics}, "rules": rules})
    (run,) = recorded_runs.history(events).runs.values()
    assert run.version == "1.0.0"
    assert run.evaluation is not None
    assert len(run.evaluation.metrics) == 300
    assert run.comparison is not None
    assert len(run.comparison.rules) == 300


def test_rows_with_numbers_as_labels_are_reported_with_their_distribution() -> None:
    outcomes = {"mean": 12.5, "deviation": 2.5}
    part = {"part": "training", "from_ms": 0, "to_ms": 1, "rows": 9, "classes": {}, "outcomes": outcomes}
    events = RecordedEvents(1)
    events.start()
    events.step("freeze", {"now_ms": 1})
    events.step("copy", {"events": 9, "labels": 9})
    events.step("join", {"outcomes": outcomes, "parts": [part]})
    (run,) = recorded_runs.history(events).runs.values()
    assert "12.5" in printed(run_report.recorded_tables(run, 1e12))


def test_log_has_no_control_characters_of_the_records() -> None:
    events = RecordedEvents(1)
    events.start()
    events.trial(0, 27, {})
    events.fail_trial(0, "exit code 1", "line 1\n\x1b[31mline 2")
    events.fail("search", "all failed\x1b[2J")
    (run,) = recorded_runs.history(events).runs.values()
    text = run_report.log_text(run, 0.0)
    assert "\x1b" not in text
    assert "--- trial 0 failed: exit code 1\nline 1\n" in text
    assert "--- log of the run" in text


def test_run_is_selected_by_key_id_or_version() -> None:
    history = recorded_runs.history(recorded_runs.refused(1), recorded_runs.refused(2))
    for name in (trained.version(1), trained.run_id(1), recorded_runs.refused(1).run):
        assert find_run(history, name, "m.runs").version == trained.version(1)
    assert find_run(history, None, "m.runs", "join").version == trained.version(2)
    with pytest.raises(Fatal, match=r"no run 'x' on m\.runs"):
        find_run(history, "x", "m.runs")


def test_evaluation_is_read_from_the_record_of_its_step() -> None:
    events = RecordedEvents(1)
    events.start()
    matrix = ConfusionMatrix(("a", "b"), ((3, 1), (0, 4)))
    events.step("evaluate", Evaluated(None, {"auc": 0.9}, matrix, Residuals((0.0, 1.0), (8,)), {}))
    (run,) = recorded_runs.history(events).runs.values()
    assert run.evaluation is not None
    assert run.evaluation.metrics == {"auc": 0.9}
    assert run.evaluation.confusion_matrix is not None
    assert run.evaluation.confusion_matrix.counts == [[3, 1], [0, 4]]
    assert run.evaluation.residuals is not None


def joined(classes: tuple[str, ...], outcomes: dict[str, float]) -> JoinResult:
    counts = dict.fromkeys(classes, 5)
    parts = tuple(Part(name, 0, 1, 5, counts, "sha256:1", outcomes) for name in ("training", "validation", "hold-out"))
    target = Target("classes" if classes else "regression", classes)
    skipped: dict[str, Any] = {"counts": {}, "first": {}}
    identity = trained.run_id(1), trained.version(1)
    return JoinResult(9, 9, 1.0, target, counts, outcomes, skipped, skipped, parts, *identity)


def test_run_with_a_thousand_classes_has_its_version() -> None:
    events = RecordedEvents(1)
    events.start()
    events.step("join", joined(tuple(map(str, range(1_000))), {}))
    (run,) = recorded_runs.history(events).runs.values()
    assert (run.id, run.version) == (trained.run_id(1), trained.version(1))


def test_matrix_of_the_largest_number_of_classes_and_decisions_that_are_no_class_is_read() -> None:
    classes = tuple(map(str, range(MAX_CLASSES)))
    answers = ModelAnswers(np.zeros((2, MAX_CLASSES)), np.array([0, MAX_CLASSES]))
    matrix = confusion_matrix(Target("classes", classes), answers, np.array([0, 1], np.int16))
    read = documents.read(as_json(Evaluated(None, {}, matrix, None, {})), EvaluatedDocument)
    assert read.confusion_matrix is not None
    assert read.confusion_matrix.names[-1] == NO_CLASS


def test_coverage_is_reported_with_its_level_and_its_interval() -> None:
    coverage = {"level": 0.8, "value": 0.79, "low": 0.77, "high": 0.81}
    metrics = {"rmse": 4.5, "interval_score": 30.0, "interval_coverage": 0.79}
    champion = {"version": "1", "metrics": {"rmse": 5.0}}
    challenger = {"version": "2", "metrics": metrics, "interval_coverage": coverage}
    results = {"champion": champion, "challenger": challenger, "rules": [], "verdict": "passed", "because": "better"}
    text = " ".join(printed(run_report.comparison(results)).split())
    assert "interval_coverage (level 0.8)" in text
    assert "0.7900 (0.7700 to 0.8100)" in text
    both_with_coverage = {**results, "champion": {**challenger, "interval_coverage": {**coverage, "low": 0.7}}}
    assert "0.7900 (0.7000 to 0.8100)" in printed(run_report.comparison(both_with_coverage))
    events = RecordedEvents(1)
    events.start()
    events.step("evaluate", Evaluated(None, metrics, None, None, {}, IntervalCoverage(**coverage)))
    (run,) = recorded_runs.history(events).runs.values()
    assert run.evaluation is not None
    assert msgspec.to_builtins(run.evaluation.interval_coverage) == coverage
