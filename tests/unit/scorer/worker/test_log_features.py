"""The feature records of a batch: one for each score, with the inputs and the version of that score."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.package.signature import InputField
from publisher.runtime.context import Clock, Context
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.decoding.types import Decoded
from scorer.features.logged_inputs import LoggedTensor
from scorer.features.read import FeatureRecord, decode_json
from scorer.features.record_builder import MAX_FAILURES, FeatureRecordBuilder, ScoredEvents
from scorer.features.record_encoder import AnsweringVersions, EventColumns, JsonFeatureEncoder
from scorer.models.servable import Servable
from scorer.native.byte_columns import ByteColumn
from scorer.native.feature_rows import column_of
from scorer.native.fetch import MessageColumns
from scorer.native.produce_records import RecordPiece
from scorer.settings import Settings
from scorer.worker.canary_routing import Arms
from scorer.worker.encode import TargetTopic
from scorer.worker.score_batch import BatchScorer, ScoredBatch
from tests.unit.scorer.worker.test_canary_scoring import Version, values_of
from tests.unit.scorer.worker.test_score_batch import RAISED, STAGES, batch, settings

LOGGED = [LoggedTensor("n", "int64", (InputField("n", "int64"),))]


class LoggedVersion(Version):
    """A version whose events are their own inputs, and whose feature records name its role."""

    revision = 7
    features = JsonFeatureEncoder(LOGGED)

    def __init__(self, role: str, errors: dict[bytes, tuple[str, Exception]], nan: Sequence[bytes] = ()) -> None:
        super().__init__(role, errors, nan)
        self.provenance = dict.fromkeys(("model", "version", "digest", "region"), "x") | {"role": role}

    def in_place_of_canary(self, reason: str) -> "LoggedVersion":
        fallback_version = LoggedVersion(self.role, self.errors, self.nan)
        fallback_version.fallback_reason = reason
        return fallback_version

    def decode(self, values: Sequence[bytes | None], metadata: object) -> Decoded:
        decoded = super().decode(values, metadata)
        decoded.tensors["n"] = np.array([[int(value or 0)] for value in values], np.int64).reshape(len(values), 1)
        return decoded


def logging_scorer(log: TargetTopic, sample: float = 1.0, **model: Any) -> BatchScorer:
    base = settings(**model).model_dump(mode="json", exclude_unset=True)
    features = Settings.model_validate(base | {"features": {"topic": log.topic, "sample": sample}})
    return BatchScorer(features, TargetTopic("out", 1, 1_000_000), TargetTopic("dead", 1, 1_000_000), log)


def logged_records(result: ScoredBatch) -> list[FeatureRecord]:
    return [decode_json(record[1]) for part in result.features for record in part.records]


@given(
    rows=st.lists(
        st.tuples(
            st.booleans(),
            st.none() | st.sampled_from((*STAGES, "nan")),
            st.none() | st.sampled_from((*STAGES, "nan")),
        ),
        max_size=40,
    ),
    sample=st.sampled_from([1.0, 0.5]),
)
def test_each_score_has_one_feature_record_with_its_inputs_and_its_version(
    rows: list[tuple[bool, str | None, str | None]], sample: float
) -> None:
    """Each row states whether the event is the canary's, and the stages at which the candidate and the champion fail."""
    values = values_of(len(rows))

    def version(role: str, stages: list[str | None]) -> LoggedVersion:
        failing = dict(zip(values, stages, strict=True))
        errors = {value: (at, RAISED[at]("no")) for value, at in failing.items() if at in RAISED}
        return LoggedVersion(role, errors, [value for value, at in failing.items() if at == "nan"])

    champion = version("champion", [champion_stage for _, _, champion_stage in rows])
    candidate = version("canary", [candidate_stage for _, candidate_stage, _ in rows])
    scoring = logging_scorer(TargetTopic("log", 3, 1_000_000), sample)
    events = batch(values)
    arms = Arms(np.array([in_canary for in_canary, *_ in rows], bool), cast(Servable, candidate))
    result = scoring.score(events, cast(Servable, champion), Context(Clock(lambda: 5)), arms=arms)
    scores = {
        row: (record[1] or b"").split(b":")[0].decode()
        for row, record in enumerate(result.slots)
        if record is not None and record[0] == "out"
    }
    records = logged_records(result)
    logged = {record.source.offset: record.role for record in records}
    assert [record.source.offset for record in records] == sorted(logged)
    assert all(record.inputs == {"n": record.source.offset} and record.scored_ms == 5 for record in records)
    if sample == 1.0:
        assert logged == scores
    else:
        assert logged.items() <= scores.items()
        assert scoring.pipeline.features is not None
        assert scoring.pipeline.features.sample is not None
        selected = np.flatnonzero(scoring.pipeline.features.sample.select(events)).tolist() if rows else []
        assert logged.keys() == scores.keys() & set(selected)


def test_answers_of_no_model_have_no_feature_record() -> None:
    values = values_of(4)
    model = {"source": "oci:./r", "backend": "open-inference", "fallback": {"score": -1, "decision": "review"}}
    version = cast(Servable, LoggedVersion("champion", {}))
    fallback = logging_scorer(TargetTopic("log", 1, 1_000_000), model=model).fall_back(batch(values), version)
    assert (fallback.outcomes["fallback"], fallback.features) == (4, [])
    scoring = logging_scorer(TargetTopic("log", 1, 1_000_000))
    assert scoring.give_up(batch(values), version, Context(), "was killed").features == []
    deadlines = [[("deadline", b"1")], None, None, None]
    expired = scoring.score(batch(values, deadlines), version, Context(Clock(lambda: 5)))
    assert expired.outcomes["expired"] == 1
    assert [record.source.offset for record in logged_records(expired)] == [1, 2, 3]


@pytest.mark.parametrize("room", [0, 100_000])
def test_a_feature_record_that_is_too_large_is_left_out_and_counted(room: int) -> None:
    scoring = logging_scorer(TargetTopic("log", 1, room))
    result = scoring.score(batch(values_of(3)), cast(Servable, LoggedVersion("champion", {})))
    assert result.outcomes["scored"] == 3
    assert (len(logged_records(result)), result.dropped_features["oversize"]) == ((3, 0) if room else (0, 3))


def texts_scored(texts: list[str]) -> tuple[ScoredEvents, JsonFeatureEncoder]:
    """Return scored events whose only input is a text, and the encoder of their records."""
    count = len(texts)
    events = batch([b"1"] * count)
    tensor = np.array(texts, object).reshape(count, 1)
    answers = AnsweringVersions.single(cast(Any, LoggedVersion("champion", {})), count)
    ids = column_of([b"%d" % number for number in range(count)])
    encoder = JsonFeatureEncoder([LoggedTensor("t", "string", (InputField("t", "string"),))])
    return ScoredEvents(events, np.arange(count), ids, {"t": tensor}, answers, 5), encoder


@pytest.mark.parametrize("unencodable", [{0}, {6}, {2, 3, 9}, set(range(10))])
def test_an_event_that_cannot_be_encoded_leaves_out_only_its_own_record(unencodable: set[int]) -> None:
    scored_events, encoder = texts_scored(["\ud800" if row in unencodable else f"text {row}" for row in range(10)])
    feature_records = FeatureRecordBuilder("log", 1, 1_000).build(scored_events, encoder)
    encodable_rows = [row for row in range(10) if row not in unencodable]
    assert feature_records.rows.tolist() == encodable_rows
    assert [decode_json(record[1]).inputs for record in feature_records.records] == [
        {"t": f"text {row}"} for row in encodable_rows
    ]
    assert feature_records.dropped == {"encoding-failed": len(unencodable)}


def test_a_large_batch_of_unencodable_events_is_left_out_with_few_attempts() -> None:
    count = 4_096
    scored_events, encoder = texts_scored(["\ud800"] * count)
    attempts = CountedAttempts(encoder.logged)
    feature_records = FeatureRecordBuilder("log", 1, 1_000).build(scored_events, attempts)
    assert (len(feature_records.records), feature_records.dropped) == (0, {"encoding-failed": count})
    assert attempts.count < 2 * MAX_FAILURES


def test_repeated_failures_of_encoding_are_logged_with_equal_texts(caplog: pytest.LogCaptureFixture) -> None:
    for texts in (["\ud800"], ["a", "\ud800", "\ud800"]):
        scored_events, encoder = texts_scored(texts)
        FeatureRecordBuilder("log", 1, 1_000).build(scored_events, encoder)
    assert len(caplog.records) == 3
    assert len({record.getMessage() for record in caplog.records}) == 1  # the log suppresses equal texts


class CountedAttempts(JsonFeatureEncoder):
    """An encoder that counts its calls."""

    count = 0

    def pieces(self, *arguments: Any) -> list[RecordPiece]:
        self.count += 1
        return super().pieces(*arguments)


class LazyEncoder(JsonFeatureEncoder):
    """An encoder whose columnar records cannot be converted to single records, because memory is exhausted."""

    def pieces(self, events: EventColumns, *_: Any) -> list[RecordPiece]:
        ends = np.full(len(events), 1 << 60)  # more than any system has
        return [RecordPiece(ByteColumn(np.zeros(1, np.uint8), np.zeros(len(events), np.int64), ends))]


@pytest.mark.debian("cc")
def test_feature_records_that_cannot_be_created_are_left_out_and_counted() -> None:
    columns = MessageColumns(
        [("in", 0)],
        np.zeros(2, np.int32),
        np.arange(2),
        np.arange(2),
        np.zeros(2, np.int32),
        np.zeros(2, np.int32),
        column_of([b"1", b"2"]),
        column_of([b"k", b"l"]),
        None,
    )
    events = ColumnarBatch(columns, "events")
    rows = np.arange(2)
    encoder = cast(Any, Version("champion", {}))
    answers = AnsweringVersions.single(encoder, 2)
    scored_events = ScoredEvents(events, rows, column_of([b"a", b"b"]), {}, answers, 5)
    records = FeatureRecordBuilder("log", 1, 1_000).build(scored_events, LazyEncoder([]))
    assert (len(records.records), records.dropped) == (0, {"encoding-failed": 2})
