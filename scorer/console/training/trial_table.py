"""The table of a run's trials: parameters, score, budget and cost of each trial, in a requested order. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from scorer.console.training.documents import Parameters, SearchDocument
from scorer.console.training.run_history import RecordedRun

ROWS = 256  # trials that are listed
COLUMNS = 16  # parameters that are listed
TRIAL = "trial"
SCORE = "score"
BUDGET = "trained to"
SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A trial of the hyperparameter search, as a row of the table.

    Attributes:
        score: The value of the metric at the largest budget; None if it is unknown.
        seconds: The training time; None if it is unknown.
        state: `selected`, `failed`, `training`, or empty.
        parameters: The values of the table's parameters as texts.
    """

    trial: int
    score: float | None
    budget: int
    seconds: float | None
    state: str
    parameters: Sequence[str]
    failure: str = ""


@dataclass(frozen=True, slots=True)
class TrialTable:
    """The trials of a run.

    Attributes:
        metric: The name of the metric by which the trials are scored.
        names: The names of the parameters.
        sort: The name of the column by which the rows are sorted.
        left_out: The number of trials that are not listed.
    """

    metric: str
    names: Sequence[str]
    rows: Sequence[TrialRow]
    sort: str
    descending: bool
    left_out: int

    @property
    def columns(self) -> list[str]:
        """The names of the columns by which the table can be sorted."""
        return [TRIAL, SCORE, BUDGET, SECONDS, *self.names]


def trial_table(
    recorded: RecordedRun | None, search: SearchDocument | None, metric: str, sort: str, *, descending: bool
) -> TrialTable | None:
    """Return the trials of a run; None if there are none. The records of the run take precedence over the result of its search.

    `sort` names a column (see `TrialTable.columns`). For other names the rows are sorted by trial.
    """
    best = search.best.trial if search and search.best else None
    if recorded and any(not final for final, _ in recorded.trials):
        values = _recorded(recorded, metric, best)
    elif search and search.trials:
        values = _searched(search, best)
    else:
        return None
    names = list(dict.fromkeys(name for parameters, _ in values for name in parameters))[:COLUMNS]
    rows = [
        TrialRow(
            row.trial, row.score, row.budget, row.seconds, row.state, [_text(parameters, name) for name in names], row.failure
        )
        for parameters, row in values
    ]
    column = sort if sort in (SCORE, BUDGET, SECONDS, *names) else TRIAL
    rows.sort(key=lambda row: row.trial)
    rows.sort(key=lambda row: _order(_cell(row, column, names), descending=descending), reverse=descending)
    return TrialTable(metric, names, rows[:ROWS], column, descending, max(0, len(rows) - ROWS))


def _recorded(recorded: RecordedRun, metric: str, best: int | None) -> list[tuple[Parameters, TrialRow]]:
    rows = []
    for trial in recorded.trials.values():
        if trial.final:
            continue
        state = "selected" if trial.trial == best else ""
        if trial.failure:
            state = "failed"
        elif trial.running is not None and recorded.ended is None:
            state = "training"
        curve = trial.curve(metric)
        score = curve[-1][1] if curve else None
        row = TrialRow(trial.trial, score, trial.budget, trial.cost if trial.seconds else None, state, (), trial.failure)
        rows.append((trial.parameters, row))
    return rows


def _searched(search: SearchDocument, best: int | None) -> list[tuple[Parameters, TrialRow]]:
    scores: dict[int, tuple[int, float | None]] = {}
    for rung in sorted(search.rungs, key=lambda each: each.budget):
        scores |= {one.trial: (rung.budget, one.score) for one in rung.trials}
    rows = []
    for trial in search.trials:
        budget, score = scores.get(trial.trial, (0, None))
        state = "selected" if trial.trial == best else ""
        rows.append((trial.parameters, TrialRow(trial.trial, score, budget, None, state, ())))
    return rows


def _text(parameters: Parameters, name: str) -> str:
    value = parameters.get(name, "")
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _cell(row: TrialRow, column: str, names: Sequence[str]) -> float | str | None:
    if column in (TRIAL, SCORE, BUDGET, SECONDS):
        return {TRIAL: row.trial, SCORE: row.score, BUDGET: row.budget, SECONDS: row.seconds}[column]
    return row.parameters[names.index(column)]


def _order(cell: float | str | None, *, descending: bool) -> tuple[bool, float, str]:
    """Return a sort key: numbers before texts, and missing values last in either direction."""
    if cell is None or cell == "":
        return not descending, 0.0, ""
    try:
        return descending, float(cell), ""
    except ValueError:
        return descending, float("inf"), str(cell)
