"""Decoding of score records and dead letters, the lag of a reader, the decision sample, and the rules of margins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.kafka.source_position import Position
from scorer.dead_letters.headers import dead_headers
from scorer.evaluation import drift
from scorer.rollout.canary_analysis import answer_records
from scorer.rollout.canary_analysis.decision_sample import MAX_PAIRS, DecisionSample
from scorer.rollout.canary_analysis.paired_metrics import PairDifference, PairDifferences, VersionAnswer
from scorer.rollout.canary_analysis.topic_tail import ReadLag
from scorer.scores.record import RecordEncoder
from tests.unit.scorer.decoding.formats import scattered

ENCODER = RecordEncoder(model="m", version="1.0.0", digest="sha256:a", role="champion", region="r")
FALLBACK = ENCODER.acting(role="champion", arm="canary", revision=3, fallback="away")


def encoded(encoder: RecordEncoder, count: int = 3, status: str = "scored") -> list[bytes]:
    numbers = list(range(count))
    places = [("events", n % 2) for n in numbers]
    scores, decisions = [b"0.5", b"[1,2]", b"null"] * count, ["late", None, "on\ntime"] * count
    ids = [f"e\n{n}" for n in numbers]
    return encoder.encode(ids, scores[:count], decisions[:count], places, numbers, [7] * count, status, 9)


def test_records_are_decoded_as_they_were_encoded() -> None:
    values, rows = encoded(FALLBACK), np.arange(3)
    groups = {
        lane: (at.tolist(), offsets.tolist()) for lane, (at, offsets) in answer_records.group_by_partition(values, rows).items()
    }
    assert groups == {("events", 0): ([0, 2], [0, 2]), ("events", 1): ([1], [1])}
    assert answer_records.in_json(values, rows, bytes) is values
    assert answer_records.in_json(values, rows[1:], bytes.upper) == [values[0], values[1].upper(), values[2].upper()]
    first, second, third = answer_records.answers_at(values, rows)
    assert first == VersionAnswer("sha256:a", "scored", 7, "e\n0", 0.5, "late", "away")
    assert (second.score, third.score, third.decision) == ([1, 2], None, "on\ntime")


@given(places=st.lists(st.tuples(st.sampled_from(["a", "b\n"]), st.integers(0, 1)), min_size=1, max_size=8))
def test_records_may_lie_in_any_order_and_with_gaps(places: list[tuple[str, int]]) -> None:
    numbers = list(range(len(places)))
    scores, decisions, ids = [b"0.5"] * len(places), [None] * len(places), list(map(str, numbers))
    values = ENCODER.encode(ids, scores, decisions, places, numbers, [7] * len(places), "scored", 9)
    rows = np.array(numbers)
    column = scattered(values)
    groups, expected = (answer_records.group_by_partition(records, rows) for records in (column, values))
    assert {lane: (at.tolist(), offsets.tolist()) for lane, (at, offsets) in groups.items()} == {
        lane: (at.tolist(), offsets.tolist()) for lane, (at, offsets) in expected.items()
    }
    assert answer_records.answers_at(column, rows) == answer_records.answers_at(values, rows)


def test_a_dead_letter_is_an_answer_among_records() -> None:
    source = Position("r", "events", 1, 8)
    headers = dead_headers(
        [("x", b"1")], reason="malformed", error="", source=source, model="m:1@sha256:b", at_ms=1, arm="canary"
    )
    letter = answer_records.read_dead_letter(headers)
    assert letter == (("events", 1), 8, VersionAnswer("sha256:b", "dead_lettered", fallback="malformed"))
    assert answer_records.read_dead_letter([("dead.source", b"nowhere")]) is None
    value = encoded(ENCODER, 1)[0]
    assert [answer.digest for answer in answer_records.answers([value, letter[2], value])] == [
        "sha256:a",
        "sha256:b",
        "sha256:a",
    ]


TWICE = b"\n".join(encoded(ENCODER, 1) * 2)


@pytest.mark.parametrize("invalid", [None, b"{", b"7", b'{"source":{"topic":"t"}}', TWICE])
def test_a_record_that_is_no_score_is_named(invalid: bytes | None) -> None:
    with pytest.raises(answer_records.UnreadableAnswer) as raised:
        answer_records.group_by_partition([encoded(ENCODER, 1)[0], invalid], np.arange(2))
    assert raised.value.row == 1


def test_lag_is_the_age_of_the_ends_that_are_reached() -> None:
    a, b = ("t", 0), ("t", 1)
    lag = ReadLag(100.0, {a: 5, b: 0})
    assert lag.lag_seconds(101.0, {a: 4}) == 1.0
    lag.record_ends(102.0, {a: 9, b: 0})
    assert lag.lag_seconds(103.0, {a: 4}) == 3.0
    assert lag.lag_seconds(103.0, {a: 8}) == 3.0
    assert lag.lag_seconds(104.0, {a: 9}) == 2.0
    lag.record_ends(105.0, {a: 9, b: 0})
    assert lag.lag_seconds(105.5, {a: 9}) == 0.5


def test_a_sample_is_the_same_in_any_order_and_counts_every_flip() -> None:
    sample, backwards = DecisionSample(), DecisionSample()
    assert sample.drift() == (None, None)
    rng = np.random.default_rng(1)
    scores = np.stack([rng.random(3 * MAX_PAIRS), rng.random(3 * MAX_PAIRS) ** 2], axis=1)
    rows = np.arange(len(scores))
    for filled, order in ((sample, rows), (backwards, rows[::-1])):
        for start in range(0, len(order), 7_000):
            chunk = order[start : start + 7_000]
            kinds = [PairDifference(0, 1, ("yes", "no"))]
            filled.add(("t", 0), chunk, PairDifferences(kinds, np.zeros(len(chunk), np.intp), scores[chunk].T))
            filled.drift()
    assert sample.drift() == backwards.drift()
    all_pairs = drift.psi_without_bias(*scores.T), drift.ks(*scores.T)
    assert sample.drift() == pytest.approx(all_pairs, abs=0.05)
    assert sample.flips == {("yes", "no"): 3 * MAX_PAIRS}
    without_scores = DecisionSample()
    kinds = [PairDifference(0, int(n % 2), ("yes", "no" if n % 2 else "yes")) for n in range(2)]
    without_scores.add(("t", 0), np.arange(100), PairDifferences(kinds, np.arange(100) % 2, np.full((2, 100), np.nan)))
    psi, ks = without_scores.drift()
    assert psi is not None
    assert psi > 0.25
    assert ks is None
