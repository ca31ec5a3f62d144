"""The table of trials: from records or from a search, in any order."""

import pytest

from scorer.console.training.documents import SearchDocument, read
from scorer.console.training.run_history import RecordedRun
from scorer.console.training.trial_table import ROWS, trial_table
from tests.support import recorded_runs, trained
from tests.support.recorded_runs import RecordedEvents


def recorded(trials: int = 6) -> RecordedRun:
    events = RecordedEvents(1)
    events.start()
    events.trials(trials, 2)
    events.trial(trials, 27, {"learning_rate": 1.0})
    events.fail_trial(trials, "exit code 1", "")
    (run,) = recorded_runs.history(events).runs.values()
    return run


@pytest.mark.parametrize(
    ("sort", "ascending"),
    [
        ("", [0, 1, 2, 3, 4, 5, 6]),
        ("score", [5, 0, 4, 1, 3, 2, 6]),
        ("seconds", [6, 0, 1, 2, 3, 4, 5]),
        ("num_leaves", [0, 3, 1, 4, 2, 5, 6]),
        ("kind", [0, 2, 4, 1, 3, 5, 6]),
    ],
)
def test_trials_are_sorted_and_missing_values_come_last(sort: str, ascending: list[int]) -> None:
    table = trial_table(recorded(), None, "auc", sort, descending=False)
    assert table is not None
    assert [row.trial for row in table.rows] == ascending
    descending = trial_table(recorded(), None, "auc", sort, descending=True)
    assert descending is not None
    if sort in ("score", "num_leaves", "kind"):
        assert descending.rows[-1].trial == 6  # has no value in this column
        assert descending.rows[0].trial in (2, 5, 1)


def test_failed_trial_has_its_reason_and_the_selected_one_is_marked() -> None:
    search = read(trained.search(6), SearchDocument)
    table = trial_table(recorded(), search, "auc", "", descending=False)
    assert table is not None
    assert search.best is not None
    states = {row.trial: row.state for row in table.rows}
    assert (states[search.best.trial], states[6]) == ("selected", "failed")
    assert table.rows[6].failure == "exit code 1"
    assert table.columns == ["trial", "score", "trained to", "seconds", "learning_rate", "num_leaves", "kind"]


def test_without_records_the_trials_are_those_of_the_search() -> None:
    table = trial_table(None, read(trained.search(16), SearchDocument), "auc", "score", descending=True)
    assert table is not None
    assert (len(table.rows), table.rows[0].budget >= 27, table.names[0]) == (16, True, "num_leaves")
    assert trial_table(None, None, "auc", "", descending=False) is None


def test_trials_beyond_the_limit_are_counted() -> None:
    table = trial_table(recorded(ROWS + 10), None, "auc", "no column", descending=False)
    assert table is not None
    assert (len(table.rows), table.left_out, table.sort) == (ROWS, 11, "trial")
