"""The pipeline's pure functions: halving rows after a failure, and answers without a model."""

from collections.abc import Callable

import numpy as np
import pytest

from publisher.errors import Aborted, Fatal, Retriable
from publisher.runtime.context import Context
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.types import Decoded
from scorer.worker.encode import EncodedRows
from scorer.worker.pipeline import HalvedRows, ScoredRows, constant_answers, score_in_halves, total_seconds

ROWS = list(range(16))


def to_poison(error: Exception) -> Poison:
    return Poison(Reason.INTERNAL_ERROR, str(error))


def scored_rows(result: HalvedRows) -> list[int]:
    return [row for part in result.scored for encoded in part.encoded for row in encoded.rows]


def fails_on(*failing: int, error: type[Exception] = ValueError) -> Callable[[list[int]], ScoredRows]:
    """Return a pipeline that raises over spans with one of these rows."""

    def score(rows: list[int]) -> ScoredRows:
        if failing_rows := sorted(set(rows) & set(failing)):
            raise error(f"row {failing_rows[0]}")
        return ScoredRows((EncodedRows(rows, [], "scored"),), seconds={"decode": 1.0})

    return score


@pytest.mark.parametrize("failing", [(), (0,), (15,), (3, 4), (0, 7, 8, 15), tuple(ROWS)])
def test_halving_rejects_only_the_failing_rows_and_keeps_the_order(failing: tuple[int, ...]) -> None:
    result = score_in_halves(ROWS, fails_on(*failing), to_poison, Context())
    assert scored_rows(result) == [row for row in ROWS if row not in failing]
    assert {row: str(poison) for row, poison in result.rejected.items()} == {row: f"row {row}" for row in failing}
    assert (result.interruption, list(result.unanswered)) == (None, [])


@pytest.mark.parametrize("error", [Retriable, Aborted, Fatal])
def test_an_infrastructure_error_rejects_no_row_and_ends_the_scoring(error: type[Exception]) -> None:
    def score(rows: list[int]) -> ScoredRows:
        if rows == ROWS:
            raise ValueError("halve")
        return fails_on(8, error=error)(rows)

    result = score_in_halves(ROWS, score, to_poison, Context())
    assert isinstance(result.interruption, error)
    assert (scored_rows(result), sorted(result.unanswered), result.rejected) == (ROWS[:8], ROWS[8:], {})


def test_a_span_is_rejected_whole_after_the_limit_of_failures_without_a_success() -> None:
    spans: list[list[int]] = []

    def score(rows: list[int]) -> ScoredRows:
        spans.append(rows)
        raise ValueError("broken")

    result = score_in_halves(ROWS, score, to_poison, Context(), hopeless=2)
    assert sorted(result.rejected) == ROWS
    assert spans == [ROWS, ROWS[:8], ROWS[:4], ROWS[:2], ROWS[:1], ROWS[1:2], ROWS[2:4], ROWS[4:8], ROWS[8:]]


def test_a_success_before_the_limit_keeps_on_halving() -> None:
    result = score_in_halves(ROWS, fails_on(*ROWS[1:]), to_poison, Context(), hopeless=2)
    assert scored_rows(result) == [0]
    assert {str(poison) for poison in result.rejected.values()} == {f"row {row}" for row in ROWS[1:]}


def test_an_error_that_to_poison_raises_ends_the_scoring() -> None:
    def raise_fatal(error: Exception) -> Poison:
        raise Fatal("the model is broken") from error

    with pytest.raises(Fatal, match="the model is broken"):
        score_in_halves(ROWS, fails_on(5), raise_fatal, Context())


def test_liveness_is_reported_before_each_span() -> None:
    beats: list[None] = []
    score_in_halves([0, 1], fails_on(0), to_poison, Context(beat=lambda: beats.append(None)))
    assert len(beats) == 3


def test_no_rows_are_one_empty_span() -> None:
    result = score_in_halves([], fails_on(), to_poison, Context())
    assert (scored_rows(result), result.rejected, result.unanswered) == ([], {}, ())


def test_stage_times_are_added_up_over_the_spans() -> None:
    result = score_in_halves(ROWS, fails_on(0), to_poison, Context())
    assert total_seconds(result.scored) == {"decode": float(len(result.scored))}


def test_rows_that_could_not_be_decoded_get_a_constant_answer_without_id_and_carried_fields() -> None:
    decoded = Decoded([2, 5], ["a", "b"], {"x": np.zeros((2, 1))}, {3: Poison(Reason.NOT_UTF8, "")}, [("x",), ("y",)])
    answers = constant_answers([2, 3, 5], "expired", decoded)
    assert answers.rows == [2, 3, 5]
    assert list(answers.ids) == ["a", None, "b"]
    assert list(answers.carried or []) == [("x",), None, ("y",)]
    assert (answers.answer.status, list(answers.answer.scores), list(answers.answer.decisions)) == (
        "expired",
        [b"null"] * 3,
        [None] * 3,
    )


def test_a_constant_answer_carries_nothing_if_no_fields_are_configured() -> None:
    assert constant_answers([1], "fallback", Decoded([1], [7], {}, {})).carried is None


def test_an_error_of_the_check_ends_the_search_for_failing_events() -> None:
    spans: list[list[int]] = []

    def stop_after_two_spans() -> None:
        if len(spans) == 2:
            raise Aborted("a stop was requested")

    def score(rows: list[int]) -> ScoredRows:
        spans.append(rows)
        raise ValueError

    with pytest.raises(Aborted):
        score_in_halves(ROWS, score, to_poison, Context(raise_if_cancelled=stop_after_two_spans))
