"""Parsing of positions, the comparison with a recomputed score, and the search for an answer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorer.dead_letters.reasons import Poison, Reason
from scorer.lineage.document import DEAD_LETTER, SCORE, InputPosition, LineageAnswer, place_of
from scorer.lineage.reader import STRETCH, nearest
from scorer.lineage.recompute import Recomputation, compare_with
from scorer.settings import Settings
from tests.unit.scorer.minimal import minimal

PLACE = InputPosition("flights", 3, 17)


@pytest.fixture
def settings() -> Settings:
    return minimal(region="eu-west", input={"topics": ["flights", "late.flights"]})


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("flights/3/17", PLACE),
        ("flights[3]@17", PLACE),
        ("eu-west/flights/3/17", PLACE),
        ("/flights/3/17", PLACE),
        ("late%2Eflights/0/1", InputPosition("late.flights", 0, 1)),
        ("us-east/flights/3/17", None),  # the id of an event that was copied from another region
        ("scores/3/17", None),
        ("flights/3", None),
        ("flights/3/-1", None),
        ("flights[3]", None),
        ("flights[three]@17", None),
        ("flight-4711", None),
        ("", None),
        ("\ud800/0/1", None),
    ],
)
def test_a_position_is_distinguished_from_an_id(settings: Settings, text: str, place: InputPosition | None) -> None:
    assert place_of(text, settings) == place


SCORED = {"score": 0.5, "decision": "late"}
LETTER = {"reason": "malformed"}


@pytest.mark.parametrize(
    ("kind", "record", "poison", "score", "decision", "is_equal"),
    [
        (SCORE, SCORED, None, 0.5, "late", True),
        (SCORE, SCORED, None, 0.5 + 1e-7, "late", True),
        (SCORE, SCORED, None, 0.5 + 1e-3, "late", False),
        (SCORE, SCORED, None, 0.5, "below", False),
        (SCORE, {"score": {"a": [1.0, 2.0]}}, None, {"a": [1.0, 2.0]}, None, True),
        (SCORE, {"score": {"a": [1.0, 2.0]}}, None, {"a": [1.0]}, None, False),
        (SCORE, {"score": "hostile"}, None, 0.5, None, False),
        (SCORE, SCORED, Reason.MALFORMED, None, None, False),
        (DEAD_LETTER, LETTER, Reason.MALFORMED, None, None, True),
        (DEAD_LETTER, LETTER, Reason.SCORE_NOT_FINITE, None, None, False),
        (DEAD_LETTER, LETTER, None, 0.5, "late", False),
        (DEAD_LETTER, {"reason": "malformed", **SCORED}, None, 0.5, "late", False),
    ],
)
def test_an_answer_is_compared_with_the_current_result(
    kind: str, record: dict[str, Any], poison: Reason | None, score: Any, decision: str | None, is_equal: bool
) -> None:
    answer = LineageAnswer(kind, InputPosition("out", 0, 1), PLACE, record, "1.0.0", "sha256:")
    result = compare_with(answer, Poison(poison, "no JSON") if poison else None, score, decision, 1e-6)
    assert result == Recomputation(is_equal, score, decision, f"{poison}: no JSON" if poison else "")


@given(st.integers(0, 3 * STRETCH), st.integers(0, 200_000), st.data())
def test_the_stretch_holds_the_answer_of_answers_in_order(first: int, answer_count: int, data: st.DataObject) -> None:
    """The answer to event n is at offset first + 3 n."""
    end = first + 3 * answer_count
    number_sought = data.draw(st.integers(0, max(0, answer_count - 1)))

    def probe(offset: int) -> tuple[int, int] | None:
        number = max(0, -(-(offset - first) // 3))
        return (first + 3 * number, number) if number < answer_count else None

    low, high = nearest(first, end, probe, number_sought)
    assert first <= low <= high <= end
    assert high - low <= STRETCH
    assert not answer_count or low <= first + 3 * number_sought < high
