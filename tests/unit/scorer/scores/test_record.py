"""Score records: column-wise encoding has the same result as plain encoding of each record."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from publisher.kafka.source_position import parse
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.dead_letters.headers import dead_headers
from scorer.scores.outputs import Scores, score_column
from scorer.scores.record import RecordEncoder

SINGLE_OUTPUT = {"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a"]}], "output": {"tensor": "y"}}
texts = st.text(max_size=8)


def signature(**changes: Any) -> Signature:
    return parse_signature(json.dumps(SINGLE_OUTPUT | changes))


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_scores_are_written_shortest_and_read_back_exactly(values: list[float]) -> None:
    column = np.array(values, np.float32)
    parsed = np.array([json.loads(part) for part in score_column(column)], np.float32)
    np.testing.assert_array_equal(parsed, column)
    rows = np.stack([column, column], axis=1)
    np.testing.assert_array_equal(np.array([json.loads(part) for part in score_column(rows)], np.float32), rows)


@given(
    rows=st.lists(
        st.tuples(
            texts,
            st.floats(0, 1, width=32),
            st.sampled_from([None, "late", 'on "time", maybe']),
            st.integers(0, 10),
            st.integers(0, 2**40),
            st.integers(0, 2**41),
        ),
        max_size=20,
    ),
    region=texts,
    topic=st.text(min_size=1, max_size=8),
    scored=st.integers(0, 2**41),
)
def test_a_record_has_the_fields_of_the_contract(rows: list[tuple[Any, ...]], region: str, topic: str, scored: int) -> None:
    encoder = RecordEncoder(model="m,1", version="1.0.0", digest="sha256:0", role="champion", region=region)
    ids, scores, decisions, partitions, offsets, times = ([row[i] for row in rows] for i in range(6))
    places = [(topic, partition) for partition in partitions]
    encoded = [b"%r" % score for score in scores]
    records = encoder.encode(ids, encoded, decisions, places, offsets, times, "scored", scored)
    common_fields = {**encoder.provenance, "status": "scored", "scored_ms": scored, "revision": 0}
    assert [json.loads(record) for record in records] == [
        {
            "id": row[0],
            "score": row[1],
            "decision": row[2],
            "source": {"topic": topic, "partition": row[3], "offset": row[4]},
            "event_ms": row[5],
            **common_fields,
        }
        for row in rows
    ]


def test_headers_are_copied_from_the_record() -> None:
    encoder = RecordEncoder(model="m", version="1", digest="sha256:0", role="champion", region="eu")
    rows = encoder.headers(["decision", "version", "id", "status"], ["a", "b"], ["late", None], "scored")
    assert [dict(row) for row in rows] == [
        {"version": b"1", "status": b"scored", "id": b"a", "decision": b"late"},
        {"version": b"1", "status": b"scored", "id": b"b"},
    ]


RULE = {"threshold": 0.6, "at_or_above": "yes", "below": "no"}
TWO_OUTPUTS = [{"name": "p", "tensor": "y", "index": 0}, {"name": "n", "tensor": "z"}]


@pytest.mark.parametrize(
    ("changes", "encoded", "decisions"),
    [
        ({"output": {"tensor": "y", "index": 1}, "decision": RULE}, [0.75, 0.125], ["yes", "no"]),
        ({"labels": ["a", "b"]}, [[0.25, 0.75], [0.5, 0.125]], ["b", "a"]),
        ({"output": TWO_OUTPUTS}, [{"p": 0.25, "n": 1}, {"p": 0.5, "n": 2}], [None, None]),
    ],
    ids=["one column", "several classes", "several outputs"],
)
def test_a_score_has_the_outputs_of_the_signature(changes: dict[str, Any], encoded: list[Any], decisions: list[Any]) -> None:
    outputs: dict[str, Any] = {"y": np.array([[0.25, 0.75], [0.5, 0.125]], np.float32), "z": np.array([1, 2], np.int64)}
    scores = Scores(signature(**changes), outputs)
    assert [json.loads(row) for row in scores.encoded()] == encoded
    assert scores.decisions() == decisions


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_row_with_a_number_that_is_not_finite_is_reported(number: float) -> None:
    outputs = {"y": np.array([[0.25, 1.0], [0.5, number]], np.float32)}
    assert Scores(signature(), outputs).finite().tolist() == [True, False]


@given(owner=texts, revision=st.integers(0, 2**31), version=texts, digest=texts)
def test_offset_metadata_is_decoded_as_encoded(owner: str, revision: int, version: str, digest: str) -> None:
    mark = OffsetMetadata(owner, revision, version, digest)
    assert OffsetMetadata.decode(mark.encode()) == mark


@given(st.text(max_size=30) | st.none())
def test_metadata_of_other_programs_is_ignored(text: str | None) -> None:
    assert isinstance(OffsetMetadata.decode(text), OffsetMetadata)
    assert (
        OffsetMetadata.decode("other metadata") == OffsetMetadata.decode(None) == OffsetMetadata.decode("") == OffsetMetadata()
    )


def test_the_error_of_a_dead_letter_is_cut() -> None:
    headers = dead_headers(
        [], reason="r", error="é" * 2_000, source=parse("eu/flights/3/7"), model="m:1@d", at_ms=5, arm="champion"
    )
    assert 0 < len(dict(headers)["dead.error"] or "") <= 1_000
