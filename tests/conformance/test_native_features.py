"""Feature records of a batch: equal for columns and lists, one for each score, in the order of the events."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.runtime.context import Clock, Context
from publisher.transactions.session import Record
from scorer.decoding.batch import Batch
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.features.logged_inputs import select_logged
from scorer.features.read import FeatureRecord, decode_json
from scorer.features.record_encoder import JsonFeatureEncoder
from scorer.models.servable import Servable
from scorer.native.produce_records import ColumnarRecords
from scorer.settings import Settings
from scorer.worker.canary_routing import Arms
from scorer.worker.encode import TargetTopic
from scorer.worker.score_batch import BatchScorer, ScoredBatch
from tests.conformance.test_native_records import OUTPUTS, PLACES, ROOM, Model, batches, batches_drawn, servable_of

pytestmark = pytest.mark.debian("cc")


def logging(model: Model, role: str = "champion") -> Servable:
    return replace(servable_of(model, role), features=JsonFeatureEncoder(select_logged(model.signature, "all")))


def scored(
    batch: Batch,
    model: Model,
    arms: Arms | None = None,
    features: Mapping[str, Any] | None = None,
    room: int = ROOM,
    output_room: int = ROOM,
    encoder: JsonFeatureEncoder | None = None,
) -> ScoredBatch:
    configured = Settings.model_validate(
        {
            "name": "n",
            "kafka": {"bootstrap_servers": "b"},
            "model": {"source": "oci:./r/m"},
            "input": {"topics": ["in"]},
            "output": {"topic": "out"},
            "dead_letter": {"topic": "dead"},
            "features": {"topic": "log", **(features or {})},
            "region": "r",
        }
    )
    scorer = BatchScorer(
        configured, TargetTopic("out", 2, output_room), TargetTopic("dead", 1, ROOM), TargetTopic("log", 3, room)
    )
    servable = replace(servable_of(model), features=encoder) if encoder else logging(model)
    return scorer.score(batch, servable, Context(Clock(lambda: 99)), arms=arms)


def records_of(result: ScoredBatch) -> list[tuple[int, Record]]:
    return [(row, record) for part in result.features for row, record in zip(part.rows.tolist(), part.records, strict=True)]


def decoded(record: Record) -> FeatureRecord:
    return decode_json(record[1])


@given(
    batches_drawn(), st.sampled_from(["number", "words"]), st.sampled_from(["id", None]), st.sampled_from([1.0, 0.5]), st.data()
)
def test_each_score_has_one_feature_record_whether_the_batch_is_lists_or_columns(
    drawn: tuple[Batch, ColumnarBatch], output: str, id_field: str | None, sample: float, data: st.DataObject
) -> None:
    listed, columns = drawn
    model, candidate = Model(OUTPUTS[output], id_field), Model(OUTPUTS[output], id_field)
    canary = np.array(data.draw(st.lists(st.booleans(), min_size=len(listed), max_size=len(listed))))
    alike = data.draw(st.booleans())
    arms = Arms(canary, logging(candidate, "canary"), alike=alike) if data.draw(st.booleans()) else None
    expected, result = (scored(batch, model, arms, {"sample": sample}) for batch in (listed, columns))
    records = records_of(result)
    assert records == records_of(expected)
    rows = [row for row, _ in records]
    assert rows == sorted(set(rows))
    answers = {
        row: decode_score(slot) for row, slot in enumerate(result.editable().slots) if slot is not None and slot[0] == "out"
    }
    if sample == 1:
        assert set(rows) == {row for row, score in answers.items() if score["status"] == "scored"}
    for row, (topic, _, key, partition, time, headers) in records:
        features, score = decoded(records[rows.index(row)][1]), answers[row]
        assert (topic, key, time, headers) == ("log", listed.keys[row], listed.timestamps[row], None)
        assert partition == listed.partitions[row] % 3
        assert features.position == (*listed.places[row], listed.offsets[row])
        for name in ("id", "event_ms", "scored_ms", "version", "digest", "role", "revision"):
            assert getattr(features, name) == score[name], name


def decode_score(record: Record) -> dict[str, Any]:
    score: dict[str, Any] = orjson.loads(record[1] or b"")
    return score


def plain_batches(count: int, value: bytes = b'{"a":%d,"id":"e"}') -> tuple[Batch, ColumnarBatch]:
    drawn: list[tuple[bytes | None, bytes | None, tuple[str, int], int]] = [
        (value % row if b"%d" in value else value, b"k%d" % (row % 7), PLACES[row % 3], 5) for row in range(count)
    ]
    return batches(drawn, [None] * count)


def test_the_records_of_a_plain_batch_are_columns() -> None:
    listed, columns = plain_batches(300)
    (part,) = scored(columns, Model(OUTPUTS["number"], "id")).features
    assert isinstance(part.records, ColumnarRecords)
    assert [decoded(record).inputs for record in part.records] == [{"a": row} for row in range(300)]
    assert scored(listed, Model(OUTPUTS["number"], "id")).packed is None


def test_a_sample_selects_keys_and_grows_with_its_share() -> None:
    _, columns = plain_batches(300)
    chosen = [
        {record[2] for _, record in records_of(scored(columns, Model(OUTPUTS["number"], "id"), None, {"sample": share}))}
        for share in (0.2, 0.6, 1.0)
    ]
    assert chosen[0] < chosen[1] < chosen[2] == {b"k%d" % row for row in range(7)}
    rows = {row for row, _ in records_of(scored(columns, Model(OUTPUTS["number"], "id"), None, {"sample": 0.6}))}
    assert rows == {row for row in range(300) if b"k%d" % (row % 7) in chosen[1]}, "all events of a key, or none"


def test_a_feature_record_that_is_too_large_is_omitted_and_counted() -> None:
    _, columns = plain_batches(5)
    result = scored(columns, Model(OUTPUTS["number"], "id"), room=1_100)
    assert (result.features, dict(result.dropped_features)) == ([], {"oversize": 5})
    assert result.outcomes["scored"] == 5


def test_an_event_whose_score_is_too_large_has_a_dead_letter_and_no_feature_record() -> None:
    _, columns = plain_batches(5)
    result = scored(columns, Model(OUTPUTS["number"], "id"), output_room=1_100)
    assert (result.features, result.outcomes["dead"]) == ([], 5)


def test_a_halved_batch_has_the_feature_records_of_its_scores() -> None:
    class Failing(Model):
        """A model that fails for each batch with the value 7."""

        def score(self, tensors: dict[str, Any], alive: Any = None) -> Any:
            if 7 in tensors["x"]:
                raise ValueError("no")
            return super().score(tensors, alive)

    _, columns = plain_batches(20)
    result = scored(columns, Failing(OUTPUTS["number"], "id"))
    assert [row for row, _ in records_of(result)] == [row for row in range(20) if row != 7]
    assert result.outcomes["dead"] == 1


def test_a_tensor_that_cannot_be_encoded_costs_the_feature_record_alone(caplog: pytest.LogCaptureFixture) -> None:
    _, columns = plain_batches(5)
    model = Model(OUTPUTS["number"], "id")
    logged = [replace(tensor, tensor="unknown") for tensor in select_logged(model.signature, "all")]
    result = scored(columns, model, encoder=JsonFeatureEncoder(logged))
    assert (result.outcomes["scored"], dict(result.dropped_features)) == (5, {"encoding-failed": 5})
    assert "could not be encoded" in caplog.text
