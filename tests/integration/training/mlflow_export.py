"""`python -m tests mlflow-runs`: `export --mlflow`, read by the real `mlflow` package in a virtual environment of its own.

Not in the check, because mlflow and its dependencies are 800 MB.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scorer.console.training.run_history import RecordedRun, RunHistory
from tests.support import recorded_runs
from tests.support.pinned_environment import pinned_python
from tests.support.recorded_runs import RecordedEvents
from training.runs_topic import mlflow_files

PINNED = "mlflow==3.18.0"
READ = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(sys.argv[1])
found = {}
for experiment in client.search_experiments():
    for run in client.search_runs([experiment.experiment_id], max_results=1000):
        histories = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        metrics = {name: [(each.step, each.value) for each in history] for name, history in histories.items()}
        found[run.info.run_id] = dict(
            experiment=experiment.name, name=run.info.run_name, status=run.info.status, start=run.info.start_time,
            params=run.data.params, tags=run.data.tags, metrics=metrics,
        )
print(json.dumps(found))
"""


def example() -> RunHistory:
    """Return a refused run, a failed one with a failed trial, and one that was killed."""
    failed = RecordedEvents(2)
    failed.start()
    failed.trial(0, 27, {"odd/name: <x>": "a\nb", "..": 1})
    failed.line(0, 9, **{"top 1/accuracy": 0.5})
    failed.fail_trial(0, "exit code 1", "")
    failed.fail("search", "all trials failed")
    killed = RecordedEvents(3)
    killed.start()
    killed.trials(2, 4)
    return recorded_runs.history(recorded_runs.refused(1), failed, killed)


def read(python: Path, folder: Path) -> dict[str, Any]:
    """Return all runs that MLflow reads from the folder, by id."""
    variables = {**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true"}
    completed = subprocess.run(
        [python, "-c", READ, folder.as_uri()], capture_output=True, text=True, check=False, env=variables
    )
    if completed.returncode:
        raise SystemExit(f"mlflow cannot read the export:\n{completed.stderr}")
    document: dict[str, Any] = json.loads(completed.stdout)
    return document


def differences(history: RunHistory, runs: dict[str, Any]) -> list[str]:
    """Return one line per run or trial that MLflow does not read as it was recorded."""
    lines = []
    by_key = {run["tags"].get("scorestream.key"): (id_, run) for id_, run in runs.items()}
    expected = len(history.runs) + sum(len(run.trials) for run in history.runs.values())
    if len(runs) != expected:
        lines.append(f"{len(runs)} runs instead of {expected}")
    for run in history.runs.values():
        id_, parent = by_key[run.key]
        children = {each["name"]: each for each in runs.values() if each["tags"].get("mlflow.parentRunId") == id_}
        lines += _run_differences(run, parent)
        for trial in run.trials.values():
            child = children[f"trial {trial.trial}"]
            curves = {name: trial.curve(name) for values in trial.points.values() for name in values}
            metrics = {name: [tuple(point) for point in points] for name, points in child["metrics"].items()}
            if sorted(map(str, curves.values())) != sorted(map(str, metrics.values())):
                lines.append(f"{run.key} trial {trial.trial}: metrics {metrics} instead of {curves}")
            if sorted(child["params"].values()) != sorted(map(str, trial.parameters.values())):
                lines.append(f"{run.key} trial {trial.trial}: parameters {child['params']} instead of {trial.parameters}")
    return lines


def _run_differences(run: RecordedRun, parent: dict[str, Any]) -> list[str]:
    lines = []
    evaluated = run.evaluation.metrics if run.evaluation else {}
    for name, value in evaluated.items():
        if parent["metrics"].get(name) != [[0, value]]:
            lines.append(f"{run.key}: {name} is {parent['metrics'].get(name)} instead of {value}")
    if parent["start"] != run.began_ms:
        lines.append(f"{run.key}: starts at {parent['start']} instead of {run.began_ms}")
    return lines


def main() -> int:
    """Export the example and read it with MLflow; return 1 if MLflow reads anything else."""
    python = pinned_python("mlflow", PINNED)
    history = example()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "mlflow"
        counts = mlflow_files.write(history, "flight-delay", target)
        runs = read(python, target)
    lines = differences(history, runs)
    print("\n".join([*lines, f"{PINNED} reads {counts.runs} runs and {counts.trials} trials, {len(lines)} differences"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
