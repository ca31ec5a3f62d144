"""The answers of two versions compared with a plain recomputation, and the verdict of a comparison."""

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from model_registry.package.signature_schema import parse_signature
from publisher.errors import Retriable
from publisher.kafka.topics import Bounds
from scorer.backends.base import InferenceFailed
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.record_metadata import ListedMetadata
from scorer.decoding.types import Decoded
from scorer.evaluation import score_differences as folding
from scorer.evaluation.compare_versions import ComparisonRun
from scorer.evaluation.comparison_report import Limits, build_report
from scorer.evaluation.score_differences import LARGEST, Differences
from scorer.evaluation.score_events import EventAnswers, answers
from scorer.models.loaded_model import LoadedModel
from scorer.scores.outputs import Scores

PLACE = ("events", 0)
USUAL = Limits()
MALFORMED = Poison(Reason.MALFORMED, "no JSON")


class Doubling:
    """A version that doubles the number of an event, and raises for batches with a number in `errors`.

    The decision is big for numbers of 10 and more.
    """

    def __init__(self, errors: dict[int, Exception]) -> None:
        self.errors = errors
        self.decoder = self

    def decode(self, values: Sequence[bytes | None], _: object) -> Decoded:
        rows = [row for row, value in enumerate(values) if value is not None]
        column = np.array([float(values[row] or b"") for row in rows])
        return Decoded(rows, [None] * len(rows), {"x": column}, {r: MALFORMED for r, v in enumerate(values) if v is None})

    def score(self, tensors: dict[str, Any]) -> Any:
        column = tensors["x"]
        for number, error in self.errors.items():
            if number in column:
                raise error
        doubled = np.where(column == 13.0, np.inf, column * 2)
        return SimpleNamespace(
            encoded=lambda: [b"%g" % number for number in doubled],
            decisions=lambda: ["big" if number >= 20 else "small" for number in doubled],
            finite=lambda: np.isfinite(doubled),
            columns={None: doubled},
            decided_output=None,
            decided_on=lambda: doubled,
        )

    def check_control_row(self) -> None:
        """Accept that the version works."""


def answers_of(count: int, errors: dict[int, Exception]) -> EventAnswers:
    values = [None if number % 7 == 6 else b"%d" % number for number in range(count)]
    return answers(cast(LoadedModel, Doubling(errors)), values, ListedMetadata.empty(count))


@examples(max_examples=50)
@given(st.integers(1, 60), st.sets(st.integers(0, 59)))
def test_every_event_has_its_answer_or_its_reason(count: int, failing: set[int]) -> None:
    results = answers_of(count, {number: InferenceFailed("no") for number in failing})
    for number in range(count):
        if number % 7 == 6:
            expected: str | None = Reason.MALFORMED
        elif number in failing:
            expected = Reason.INFERENCE_FAILED
        else:
            expected = Reason.SCORE_NOT_FINITE if number == 13 else None
        poison = results.rejected.get(number)
        assert (poison and poison.reason) == expected
        assert bool(results.scored()[number]) == (expected is None)
        if expected is None:
            assert (results.numbers[number], results.scores[number]) == (2.0 * number, b"%g" % (2 * number))
            assert results.decisions[number] == ("big" if number >= 10 else "small")


def test_an_unavailable_server_rejects_no_event() -> None:
    with pytest.raises(Retriable):
        answers_of(5, {3: Retriable("unavailable")})


def answers_with(scores: Sequence[Any]) -> EventAnswers:
    """Return answers with these scores, None for a dead letter. Numbers of 0.5 and more decide yes."""
    results = EventAnswers(len(scores))
    for row, score in enumerate(scores):
        if score is None:
            results.rejected[row] = MALFORMED
            continue
        results.scores[row] = orjson.dumps(score)
        if isinstance(score, float):
            results.numbers[row] = score
            results.decisions[row] = "yes" if score >= 0.5 else "no"
    return results


def folded(pairs: Sequence[tuple[Any, Any]], size: int = 1_000) -> Differences:
    fold = Differences()
    for start in range(0, len(pairs), size):
        chunk = pairs[start : start + size]
        offsets = list(range(start, start + len(chunk)))
        fold.add(
            PLACE,
            offsets,
            [b"%d" % offset for offset in offsets],
            answers_with([a for a, _ in chunk]),
            answers_with([b for _, b in chunk]),
        )
    return fold


single_scores = st.none() | st.floats(0.0, 1.0, width=32)


@examples(max_examples=60)
@given(st.lists(st.tuples(single_scores, single_scores), max_size=80), st.integers(1, 30))
def test_counts_are_those_of_a_plain_recomputation(pairs: list[tuple[float | None, float | None]], size: int) -> None:
    fold = folded(pairs, size)
    scored_by_both = [(a, b, at) for at, (a, b) in enumerate(pairs) if a is not None and b is not None]
    assert (fold.events, fold.both) == (len(pairs), len(scored_by_both))
    assert fold.dead == {"champion": sum(a is None for a, _ in pairs), "candidate": sum(b is None for _, b in pairs)}
    assert fold.newly.total() == sum(a is not None and b is None for a, b in pairs)
    assert fold.cured == sum(a is None and b is not None for a, b in pairs)
    assert fold.flips == Counter(("yes" if a >= 0.5 else "no", "yes" if b >= 0.5 else "no") for a, b, _ in scored_by_both)
    sizes = sorted((abs(a - b) for a, b, _ in scored_by_both if a != b), reverse=True)
    assert [difference.size for difference in fold.largest()] == sizes[:LARGEST]
    for difference in fold.largest():
        champion, candidate = pairs[difference.event.offset][:2]
        assert champion is not None
        assert candidate is not None
        assert abs(champion - candidate) == difference.size
    assert fold.changed == len(sizes)
    assert fold.total == pytest.approx(sum(sizes))


@pytest.mark.parametrize(
    ("before", "after", "size"),
    [
        ([1.0, [2.0, 3.0]], [1.0, [2.5, 3.0]], 0.5),
        ({"a": 1.0, "b": "x"}, {"a": 1.25, "b": "x"}, 0.25),
        ([{"label": "cat", "score": 0.9}], [{"label": "dog", "score": 0.9}], np.inf),
        ([1.0], [1.0, 2.0], np.inf),
        ("good", "bad", np.inf),
        (True, False, np.inf),
        ({"a": 1.0}, {"b": 1.0}, np.inf),
        (3, 5, 2.0),
    ],
)
def test_scores_of_any_shape_are_compared_place_by_place(before: Any, after: Any, size: float) -> None:
    (difference,) = folded([(before, after), (before, before)]).largest()
    assert (difference.size, difference.event.offset) == (size, 0)


def test_the_sample_is_bounded_and_the_same_for_any_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "SAMPLE", 500)
    generator = np.random.default_rng(3)
    pairs = [(float(a), float(b)) for a, b in generator.random((5_000, 2))]
    in_one_batch, in_small_batches = folded(pairs, 5_000), folded(pairs, 37)
    assert in_one_batch.drift() == in_small_batches.drift()
    assert 200 < in_one_batch._pairs.pairs().shape[1] <= 500
    psi, ks = in_one_batch.drift()
    assert 0.0 <= (psi if psi is not None else 1.0) < 0.1
    assert 0.0 < (ks or 0.0) < 0.15


def test_drift_is_that_of_decisions_if_scores_are_no_numbers() -> None:
    fold, without_decisions = Differences(), folded([("a", "b")])
    champion, candidate = answers_with([[1.0]] * 100), answers_with([[1.0]] * 100)
    champion.decisions = [*["yes"] * 50, *["no"] * 50]
    candidate.decisions = [*["yes"] * 90, *["no"] * 10]
    fold.add(PLACE, range(100), [b""] * 100, champion, candidate)
    psi, ks = fold.drift()
    assert (psi or 0.0) > 0.25
    assert ks is None
    assert without_decisions.drift() == (None, None)


def test_rules_and_the_verdict() -> None:
    equal_pairs = [(n / 1_000, n / 1_000) for n in range(1_000)]

    def verdict_of(pairs: Sequence[tuple[Any, Any]], limits: Limits = USUAL, seconds: float = 1.0) -> tuple[bool, list[str]]:
        compared = ComparisonRun(folded(pairs), {"champion": 1.0, "candidate": seconds}, {PLACE: Bounds(0, len(pairs))})
        report = build_report("champion", "candidate", compared, limits)
        orjson.dumps(report.to_dict())
        return report.passed, [rule.name for rule in report.rules if rule.beyond]

    assert verdict_of(equal_pairs) == (True, [])
    assert verdict_of([]) == (False, [])
    assert verdict_of([(0.5, None)] * 10) == (False, [])  # no event was scored by both versions
    assert verdict_of([*equal_pairs, *[(0.5, None)] * 6]) == (False, ["errors"])
    assert verdict_of([*equal_pairs, *[(None, None)] * 500]) == (True, [])
    assert verdict_of([*equal_pairs, *[(0.49, 0.51)] * 60]) == (False, ["flips"])
    assert verdict_of([(a, a / 2) for a, _ in equal_pairs], Limits(flips=1.0)) == (False, ["psi"])
    assert verdict_of(equal_pairs, seconds=9.0) == (True, [])
    assert verdict_of(equal_pairs, Limits(cost=1.5), seconds=9.0) == (False, ["cost"])
    assert verdict_of([([1.0], [2.0])] * 10) == (True, [])  # neither numbers nor decisions: errors alone


TWO_OUTPUTS = parse_signature(
    orjson.dumps(
        {
            "inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a"]}],
            "output": [{"name": "amount", "tensor": "z"}, {"name": "risk", "tensor": "y"}],
            "decision": {"threshold": 0.5, "at_or_above": "high", "below": "low", "output": "risk"},
        }
    )
)


class TwoOutputVersion(Doubling):
    """A version whose `risk` is a hundredth of an event's number to a power, and whose `amount` is `amount`."""

    def __init__(self, power: float, amount: float) -> None:
        super().__init__({})
        self._power, self._amount = power, amount

    def score(self, tensors: dict[str, Any]) -> Any:
        risk = (tensors["x"] / 100) ** self._power
        return Scores(TWO_OUTPUTS, {"y": risk.reshape(-1, 1), "z": np.full((len(risk), 1), self._amount)})


def answers_of_two_outputs(power: float, amount: float) -> EventAnswers:
    values = [b"%d" % number for number in range(100)]
    return answers(cast(LoadedModel, TwoOutputVersion(power, amount)), values, ListedMetadata.empty(100))


def test_the_deciding_output_is_compared_as_a_distribution() -> None:
    champion, candidate = answers_of_two_outputs(1.0, 5.0), answers_of_two_outputs(8.0, 5.0)
    assert champion.numbers.tolist() == (np.arange(100) / 100).tolist()
    fold = Differences()
    fold.add(PLACE, list(range(100)), [b""] * 100, champion, candidate)
    psi, ks = fold.drift()
    assert psi is not None
    assert psi > 1.0
    assert ks is not None


def test_a_difference_in_an_output_that_does_not_decide_is_a_difference() -> None:
    fold = Differences()
    fold.add(PLACE, list(range(100)), [b""] * 100, answers_of_two_outputs(1.0, 5.0), answers_of_two_outputs(1.0, 7.0))
    assert (fold.changed, fold.total, fold.flipped()) == (100, 200.0, 0)
    assert fold.drift()[1] == 0.0
