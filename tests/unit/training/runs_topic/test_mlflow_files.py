"""The files of MLflow's file store; `python -m tests mlflow-runs` reads them with MLflow itself."""

from pathlib import Path

import pytest
import yaml

from publisher.errors import Fatal
from tests.support import recorded_runs
from tests.support.recorded_runs import RecordedEvents
from training.runs_topic import mlflow_files


def test_each_trial_is_a_child_run_with_its_curve(tmp_path: Path) -> None:
    counts = mlflow_files.write(recorded_runs.history(recorded_runs.refused(1)), "flight-delay", tmp_path / "mlflow")
    assert (counts.runs, counts.trials) == (1, 6)
    (experiment,) = (tmp_path / "mlflow").iterdir()
    assert yaml.safe_load((experiment / "meta.yaml").read_text())["name"] == "flight-delay"
    runs = {path.parent.name: yaml.safe_load(path.read_text()) for path in experiment.glob("*/meta.yaml")}
    (parent,) = (id_ for id_ in runs if (experiment / id_ / "tags" / "scorestream.key").exists())
    children = [id_ for id_ in runs if id_ != parent]
    assert {(experiment / id_ / "tags" / "mlflow.parentRunId").read_text() for id_ in children} == {parent}
    (second,) = (id_ for id_ in children if runs[id_]["run_name"] == "trial 2")
    lines = [line.split() for line in (experiment / second / "metrics" / "auc").read_text().splitlines()]
    assert [int(step) for *_, step in lines] == list(range(3, 28, 3))
    assert (experiment / second / "params" / "num_leaves").read_text() == "60"
    assert (experiment / parent / "metrics" / "auc").read_text().split()[1] == "0.88"
    assert runs[parent]["status"] == mlflow_files.FINISHED


def test_names_cannot_leave_the_folder_of_their_run(tmp_path: Path) -> None:
    events = RecordedEvents(1)
    events.start()
    events.trial(0, 27, {"../../beyond": 1, "..": 2, "": 3, "a/b": 4})
    events.line(0, 9, **{"../../../beyond": 0.5})
    mlflow_files.write(recorded_runs.history(events), "m", tmp_path / "mlflow")
    assert {"_", "a_b"} < {path.name for path in tmp_path.glob("mlflow/*/*/params/*")}
    assert not list(tmp_path.rglob("beyond"))
    assert {path.parent.name for path in tmp_path.rglob("*beyond*")} == {"params", "metrics"}


def test_longest_names_of_any_letters_are_names_of_files(tmp_path: Path) -> None:
    events = RecordedEvents(1)
    events.start()
    events.trial(0, 27, {"\u4f60" * 200: 1})
    events.line(0, 9, **{"\U00020000" * 200: 0.5})
    mlflow_files.write(recorded_runs.history(events), "m", tmp_path / "mlflow")
    for part in ("params", "metrics"):
        (name,) = {path.name for path in tmp_path.glob(f"mlflow/*/*/{part}/*") if not path.name.isascii()}
        assert len(name.encode()) <= mlflow_files.LONGEST_NAME


def test_trials_of_a_killed_run_are_not_running(tmp_path: Path) -> None:
    events = RecordedEvents(1)
    events.start()
    events.trial(0, 27, {})
    mlflow_files.write(recorded_runs.history(events), "m", tmp_path / "mlflow")
    statuses = [yaml.safe_load(path.read_text())["status"] for path in tmp_path.glob("mlflow/*/*/meta.yaml")]
    assert statuses == [mlflow_files.STATUSES["interrupted"]] * 2


def test_folder_that_is_not_empty_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("notes")
    with pytest.raises(Fatal, match="is not empty") as raised:
        mlflow_files.write(recorded_runs.history(), "m", tmp_path)
    assert raised.value.exit_code == 2
