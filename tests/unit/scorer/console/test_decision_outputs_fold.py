"""The console uses the decision output of each version, once the registry has returned it."""

from msgspec.structs import replace

from scorer.console import views
from scorer.console.state import ConsoleState
from scorer.evaluation.decision_output import UNKNOWN
from tests.unit.scorer.console import console_records

SCORE = {"amount": 700.0, "risk": 0.25}


def test_histogram_uses_the_decision_output() -> None:
    """Scores read before the registry responds count too, since no later score may follow."""
    state, record = ConsoleState(), replace(console_records.score(SCORE), digest="sha256:a", id="e1")
    state.add_score(record)
    assert state.outputs.wanted == {"sha256:a"}
    assert not state.scores.windows
    state.add_output("sha256:a", "risk")
    state.add_score(record)
    assert list(state.scores.windows["1.0.0"].numbers) == [0.25, 0.25]
    assert [score for score, *_ in state.labelled.answers.values()] == [0.25]
    assert not state.outputs.wanted
    assert not state.outputs.waiting


def test_scores_without_a_known_output_are_counted_with_the_reason() -> None:
    state, record = ConsoleState(), replace(console_records.score(SCORE), digest="sha256:" + "a" * 64)
    state.add_score(record)
    state.add_output(record.digest, None)
    assert state.scores.windows["1.0.0"].seen == 1
    assert views.label_notes(state, 0.0) == [("scores of sha256:aaaaaaaaaaaa", 1, UNKNOWN)]


def test_score_of_one_output_needs_no_lookup() -> None:
    state = ConsoleState()
    state.add_score(console_records.score({"risk": 0.25}))
    state.add_score(console_records.score([0.1, 0.9]))
    assert list(state.scores.windows["1.0.0"].numbers) == [0.25, 0.9]
    assert not state.outputs.wanted
