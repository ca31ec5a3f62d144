"""Of several named outputs the console draws the one that the version decides on, once the registry has named it."""

from msgspec.structs import replace

from scorer.console.outputs import OutputsFold
from scorer.console.state import State
from tests.unit.scorer.console import told

SCORE = {"amount": 700.0, "risk": 0.25}


def test_the_histogram_has_the_output_that_decides_and_not_the_largest() -> None:
    state, record = State(), replace(told.score(SCORE), digest="sha256:a")
    assert state.outputs.decided(record).number is None
    assert state.outputs.wanted == {"sha256:a"}
    state.outputs.found("sha256:a", "risk")
    state.scores.hear(state.outputs.decided(record))
    assert list(state.scores.windows["1.0.0"].numbers) == [0.25]
    assert not state.outputs.wanted


def test_a_score_of_one_output_asks_nothing() -> None:
    fold = OutputsFold()
    assert fold.decided(told.score({"risk": 0.25})).number == 0.25
    assert fold.decided(told.score([0.1, 0.9])).number == 0.9
    assert not fold.wanted
