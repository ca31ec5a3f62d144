"""Export runs in the layout of MLflow's file store: an experiment, one run per training run, and one child run per trial.

The values that a trial reports become metrics with the budget as the step. Parameters and the metrics of the evaluation keep
their names.
"""

# The layout is that of mlflow.store.tracking.file_store: FOLDER/EXPERIMENT/RUN/ with meta.yaml, metrics, params, tags and
# artifacts. A file in `metrics` has one line `TIMESTAMP VALUE STEP` per value, a file in `params` or `tags` has a text.

import hashlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from publisher.errors import REFUSED, USAGE, Fatal
from scorer.console.training.run_history import FAILED, INTERRUPTED, RUNNING, STOPPED, RecordedRun, RecordedTrial, RunHistory

STATUSES = {RUNNING: 1, FAILED: 4, INTERRUPTED: 5, STOPPED: 5}
"""MLflow's status number by the state of a run or trial: 1 is RUNNING, 3 FINISHED, 4 FAILED, 5 KILLED."""
FINISHED = 3
OTHER = re.compile(r"[^\w. -]|\A[. ]|[. ]\Z")  # characters that are not allowed in MLflow's names or in names of files
LONGEST_NAME = 200  # bytes


@dataclass(frozen=True, slots=True)
class ExportedCounts:
    """The numbers of exported runs and trials."""

    runs: int
    trials: int


def write(history: RunHistory, name: str, folder: Path) -> ExportedCounts:
    """Write the runs as the experiment `name` to an empty or new folder.

    Raises Fatal: exit code 2 if the folder is not empty, 3 if it cannot be written.
    """
    try:
        if folder.exists() and any(folder.iterdir()):
            raise Fatal(f"{folder} is not empty", "name a new folder", USAGE)
        return _write(history, name, folder)
    except OSError as error:
        raise Fatal(
            f"{error.filename or folder} cannot be written: {error.strerror}",
            "check the disk space and the permissions",
            REFUSED,
        ) from None


def _write(history: RunHistory, name: str, folder: Path) -> ExportedCounts:
    experiment = str(int(hashlib.sha256(name.encode()).hexdigest()[:15], 16))
    place = folder.resolve() / experiment
    _yaml(
        place / "meta.yaml",
        {
            "artifact_location": place.as_uri(),
            "creation_time": 0,
            "experiment_id": experiment,
            "last_update_time": 0,
            "lifecycle_stage": "active",
            "name": name,
        },
    )
    now = time.time()
    trials = 0
    for run in history.newest_first():
        _write_run(run, place, experiment, now)
        for trial in run.trials.values():
            _write_trial(run, trial, place, experiment, now)
            trials += 1
    return ExportedCounts(len(history.runs), trials)


def _write_run(run: RecordedRun, place: Path, experiment: str, now: float) -> None:
    state = run.state(now)
    end_ms = max((attempt.last_ms for attempt in run.attempts.values()), default=run.began_ms)
    path = _new_run(
        place,
        experiment,
        _uuid(run.key),
        name=run.version or run.key,
        status=STATUSES.get(state, FINISHED),
        start_ms=run.began_ms,
        end_ms=None if state == RUNNING else end_ms,
    )
    started = run.started
    tags = {
        "scorestream.key": run.key,
        "scorestream.run": run.id,
        "scorestream.version": run.version,
        "scorestream.digest": run.digest,
        "scorestream.outcome": state,
        "scorestream.because": run.because,
        "scorestream.seconds": f"{run.seconds:.1f}",
        "scorestream.host": started.host if started else "",
    }
    _texts(path / "tags", {name: value for name, value in tags.items() if value})
    best = run.search.best if run.search else None
    facts = {"recipe": started.recipe, "seed": started.seed} if started else {}
    _texts(path / "params", facts | (dict(best.parameters) if best else {}))
    evaluated = run.evaluation
    for name, value in (evaluated.metrics if evaluated else {}).items():
        if value is not None:
            _metric(path, name, [(end_ms, value, 0)])
    for step in run.steps.values():
        if step.seconds is not None:
            _metric(path, f"seconds.{step.step}", [(end_ms, step.seconds, 0)])


def _write_trial(run: RecordedRun, trial: RecordedTrial, place: Path, experiment: str, now: float) -> None:
    name = "final" if trial.final else f"trial {trial.trial}"
    unended = STATUSES.get(run.state(now), STATUSES[INTERRUPTED])
    status = FINISHED if trial.running is None else unended
    path = _new_run(
        place,
        experiment,
        _uuid(f"{run.key}/{name}"),
        name=name,
        status=STATUSES[FAILED] if trial.failure else status,
        start_ms=run.began_ms,
        end_ms=run.began_ms + round(1_000 * trial.cost),
    )
    tags = {"mlflow.parentRunId": _uuid(run.key), "scorestream.failure": trial.failure}
    _texts(path / "tags", {name: value for name, value in tags.items() if value})
    _texts(path / "params", trial.parameters)
    for metric in dict.fromkeys(name for values in trial.points.values() for name in values):
        _metric(path, metric, [(run.began_ms, value, budget) for budget, value in trial.curve(metric)])


def _new_run(place: Path, experiment: str, uuid: str, *, name: str, status: int, start_ms: int, end_ms: int | None) -> Path:
    path = place / uuid
    for part in ("metrics", "params", "tags", "artifacts"):
        (path / part).mkdir(parents=True)
    _yaml(
        path / "meta.yaml",
        {
            "artifact_uri": (path / "artifacts").as_uri(),
            "end_time": end_ms,
            "entry_point_name": "",
            "experiment_id": experiment,
            "lifecycle_stage": "active",
            "run_id": uuid,
            "run_name": name,
            "run_uuid": uuid,
            "source_name": "",
            "source_type": 4,  # MLflow's LOCAL
            "source_version": "",
            "start_time": start_ms,
            "status": status,
            "tags": [],
            "user_id": "",
        },
    )
    (path / "tags" / "mlflow.runName").write_text(name)
    return path


def _uuid(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _texts(folder: Path, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        (folder / _file_name(name)).write_text(str(value), encoding="utf-8")


def _metric(run: Path, name: str, values: list[tuple[int, float, int]]) -> None:
    if values:
        lines = [f"{at_ms} {value!r} {step}\n" for at_ms, value, step in values]
        (run / "metrics" / _file_name(name)).write_text("".join(lines), encoding="utf-8")


def _file_name(name: str) -> str:
    shortened = OTHER.sub("_", name).encode()[:LONGEST_NAME].decode(errors="ignore")
    return OTHER.sub("_", shortened) or "_"


def _yaml(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(document)), encoding="utf-8")
