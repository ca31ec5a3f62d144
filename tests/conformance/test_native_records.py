"""A batch of columns becomes the same records as the batch of lists."""

import json
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from model_registry.channels.channel import Resolution
from model_registry.package.signature_schema import parse_signature
from publisher.runtime.context import Clock, Context
from scorer.decoding.batch import Batch, Headers
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.decoding.float32 import Float32Decoder
from scorer.decoding.json.decoder import JsonDecoder
from scorer.decoding.json.passthrough import JsonPassthrough
from scorer.decoding.passthrough_fields import PassthroughDecoder
from scorer.decoding.record_metadata import RecordMetadata
from scorer.decoding.types import Decoded, Decoder
from scorer.models.loaded_model import LoadedModel
from scorer.models.servable import Servable
from scorer.native.byte_columns import AsciiColumn
from scorer.native.fetch import HeaderColumns, MessageColumns
from scorer.scores import columnar_records
from scorer.scores.outputs import Scores
from scorer.scores.record import RecordEncoder
from scorer.settings import Settings
from scorer.settings.carry import CarriedField
from scorer.worker.canary_routing import Arms
from scorer.worker.encode import TargetTopic
from scorer.worker.score_batch import BatchScorer, ScoredBatch
from tests.unit.scorer.decoding.formats import texts

pytestmark = pytest.mark.debian("cc")


@pytest.fixture(autouse=True, scope="module")
def _small_batches_are_packed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar_records, "MIN_EVENTS", 1)
        yield


PLACES = [("in", 0), ("in", 3), ('t"é', 2)]
ROOM = 1_000_000
OUTPUTS: dict[str, dict[str, Any]] = {
    "number": {"output": {"tensor": "y"}},
    "decision": {"output": {"tensor": "y"}, "decision": {"threshold": 0.5, "at_or_above": 'l"ate', "below": "on time"}},
    "row": {"output": {"tensor": "rows"}},
    "labels": {"output": {"tensor": "rows"}, "labels": ["a", "b", "c"]},
    "class": {"output": {"tensor": "classes"}},
    "several": {"output": [{"tensor": "y", "name": "one"}, {"tensor": "rows", "name": "three"}]},
    "wide": {"output": {"tensor": "wide"}},
    "top": {"output": {"tensor": "rows", "top": 2}, "labels": ["a", 'b"', "c"]},
    "argmax": {
        "output": {"tensor": "rows"},
        "labels": ["a", "b", "c"],
        "decision": {"argmax": True, "threshold": 0.5, "below": "none"},
    },
    "words": {"output": {"tensor": "words"}},
}


CARRY = CarriedField.read("id"), CarriedField.read({"path": "a", "type": "double"})


class Model:
    """A loaded model that computes its answers from its one field; events have the fields of `carry`."""

    decoder: Decoder

    def __init__(
        self, output: dict[str, Any], id_field: str | None, *, scans: bool = True, carry: tuple[CarriedField, ...] = ()
    ) -> None:
        self.carry = carry
        fields = [{"name": "a", "required": False, "default": 0.25}]
        inputs = [{"tensor": "x", "dtype": "float32", "fields": fields}]
        self.signature = parse_signature(json.dumps({"inputs": inputs, **output}))
        self.factor = 1.0
        self.model = SimpleNamespace(signature=lambda: self.signature)
        self.decoder = JsonDecoder(self.signature, id_field, 200, min_events=1 if scans else None)
        if carry:
            self.decoder = PassthroughDecoder(self.decoder, JsonPassthrough([field.path for field in carry]), carry)

    def score(self, tensors: dict[str, NDArray[Any]], _: Any = None) -> Scores:
        x = tensors["x"][:, 0] * self.factor
        with np.errstate(over="ignore"):
            rows = np.stack([x, x * 3, -x], axis=1).astype(np.float64)
        wide = rows.reshape(len(x), 3, 1)
        with np.errstate(over="ignore"):
            square = x * x
        more = {"classes": (x > 0).astype(np.int64), "words": np.array([f"{number:g}, é" for number in x], object)}
        return Scores(self.signature, {"y": square, "rows": rows, "wide": wide, **more})


plain = st.builds(
    lambda a, name: json.dumps({"a": a, "id": name}).encode(), st.floats(-1e6, 1e6, width=32), st.text("abc-1", max_size=5)
)
values = st.one_of(
    *[plain] * 6,
    st.sampled_from(
        [None, b"", b"{", b'{"a":1}', b'{"id":7}', b'{"a":1e30,"id":"big"}', b'{"a":1,"id":"\xc3\xa9"}', b"x" * 300]
    ),
)
events = st.tuples(values, st.none() | st.binary(max_size=6), st.sampled_from(PLACES), st.integers(0, 2**40))


header_values: st.SearchStrategy[Any] = st.sampled_from(
    [b"100", b"98", b"soon", b"", None, b"e-1", b'a"b', b"\xff", b"r/in/0/5"]
)
header_names = st.lists(st.sampled_from(["ce_id", "deadline", "x-origin", "x-copied-to", "traceparent", "é", ""]), max_size=4)


@st.composite
def uniform(draw: st.DrawFn, count: int) -> list[Headers]:
    """Draw headers with the same names in every event, mostly with usual values."""
    names, odd = draw(header_names), draw(st.booleans())
    usual = {"deadline": b"100", "ce_id": b"e-7"}
    each: list[Headers] = [
        [(name, draw(header_values) if odd else usual.get(name, b"x")) for name in names] for _ in range(count)
    ]
    return each if names else [None] * count


def mixed(count: int) -> st.SearchStrategy[list[Headers]]:
    headers: st.SearchStrategy[Headers] = st.lists(
        st.tuples(st.sampled_from(["ce_id", "deadline", "other"]), header_values), max_size=3
    ).map(lambda pairs: pairs or None)
    return st.lists(headers, min_size=count, max_size=count)


@st.composite
def batches_drawn(draw: st.DrawFn) -> "tuple[Batch, ColumnarBatch]":
    drawn = draw(st.lists(events, min_size=1, max_size=30))
    none: list[Headers] = [None] * len(drawn)
    return batches(drawn, draw(st.just(none) | uniform(len(drawn)) | mixed(len(drawn))))


def header_columns(headers: list[Headers]) -> HeaderColumns | None:
    all_pairs = [pair for pairs in headers for pair in pairs or []]
    values = texts([value if value is None else bytes(value) for _, value in all_pairs])  # type: ignore[arg-type]
    counts = np.array([len(pairs or []) for pairs in headers], np.int64)
    return HeaderColumns(counts, texts([name.encode() for name, _ in all_pairs]), values) if all_pairs else None


def batches(
    drawn: list[tuple[bytes | None, bytes | None, tuple[str, int], int]], headers: list[Headers]
) -> tuple[Batch, ColumnarBatch]:
    """Return the same events as lists and as columns."""
    payloads, keys, places, times = (list(column) for column in zip(*drawn, strict=True))
    count = len(drawn)
    topics, partitions = ([place[part] for place in places] for part in (0, 1))
    listed = Batch(topics, partitions, list(range(count)), keys, payloads, times, headers)
    columns = MessageColumns(
        places=PLACES,
        lanes=np.array([PLACES.index(place) for place in places], np.int32),
        offsets=np.arange(count, dtype=np.int64),
        times=np.array(times, np.int64),
        codes=np.zeros(count, np.int32),
        leader_epochs=np.array([-1, *range(1, count)], np.int32),
        values=texts(payloads),
        keys=texts(keys),
        headers=header_columns(headers),
    )
    return listed, ColumnarBatch(columns, "empty")


def servable_of(model: Model, role: str = "champion") -> Servable:
    encoder = RecordEncoder(model.carry, model="m", version="1", digest="sha256:0", role=role, region="r")
    return Servable(cast(LoadedModel, model), encoder, Resolution("sha256:0", "1", 7))


def scored(batch: Batch, model: Model, room: int, arms: Arms | None = None, **output: Any) -> ScoredBatch:
    names = {"input": {"topics": ["in"]}, "output": {"topic": "out", **output}, "dead_letter": {"topic": "dead"}, "region": "r"}
    configured = Settings.model_validate(
        {"name": "n", "kafka": {"bootstrap_servers": "b"}, "model": {"source": "oci:./r/m"}, **names}
    )
    return BatchScorer(configured, TargetTopic("out", 2, room), TargetTopic("dead", 1, ROOM)).score(
        batch, servable_of(model), Context(Clock(lambda: 99)), arms=arms
    )


@given(batches_drawn(), st.sampled_from(sorted(OUTPUTS)), st.sampled_from(["id", None]), st.booleans(), st.booleans())
def test_columns_and_lists_become_the_same_records(
    drawn: tuple[Batch, ColumnarBatch], output: str, id_field: str | None, scans: bool, carries: bool
) -> None:
    listed, columns = drawn
    model = Model(OUTPUTS[output], id_field, scans=scans, carry=CARRY if carries else ())
    for room in (ROOM, 1_400):
        expected, result = scored(listed, model, room), scored(columns, model, room)
        assert list(result.records) == list(expected.records)
        assert (+result.outcomes, +result.reasons, result.expired) == (+expected.outcomes, +expected.reasons, expected.expired)
        assert result.editable().slots == expected.slots


@given(batches_drawn(), st.sampled_from(sorted(OUTPUTS)), st.sampled_from(["id", None]), st.booleans(), st.integers(0, 2**30))
def test_columns_and_lists_of_two_versions_become_the_same_records(
    drawn: tuple[Batch, ColumnarBatch], output: str, id_field: str | None, carries: bool, keys: int
) -> None:
    listed, columns = drawn
    model, candidate = (Model(OUTPUTS[output], id_field, carry=CARRY if carries else ()) for _ in range(2))
    candidate.factor = 3.0
    arms = Arms(np.array([bool(keys >> row & 1) for row in range(len(listed))]), servable_of(candidate, "canary"), alike=True)
    expected, result = scored(listed, model, ROOM, arms), scored(columns, model, ROOM, arms)
    assert list(result.records) == list(expected.records)
    for name in ("requested", "failed", "fallbacks", "expired"):
        assert getattr(result, name) == getattr(expected, name)
    assert (+result.outcomes, +result.reasons) == (+expected.outcomes, +expected.reasons)


class ColumnOfIds:
    """A decoder that returns the ids of another one as one column if they are plain."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def decode(self, values: Sequence[bytes | None], parts: RecordMetadata | None = None) -> Decoded:
        decoded = self._decoder.decode(values, parts)
        named = [id_.encode() if isinstance(id_, str) else None for id_ in decoded.ids]
        if None not in named:
            column = texts(named)
            decoded.ids = AsciiColumn.cut(column.text, column.starts, column.ends) or decoded.ids
        return decoded


@given(batches_drawn(), st.sampled_from(sorted(OUTPUTS)))
def test_a_column_of_ids_and_a_list_of_ids_become_the_same_records(drawn: tuple[Batch, ColumnarBatch], output: str) -> None:
    listed, columns = drawn
    model, joining = (Model(OUTPUTS[output], "id") for _ in range(2))
    joining.decoder = ColumnOfIds(joining.decoder)
    assert list(scored(columns, joining, ROOM).records) == list(scored(listed, model, ROOM).records)


def test_a_plain_batch_of_two_versions_is_packed() -> None:
    event = json.dumps({"a": 1.5, "id": "e"}).encode()
    _, columns = batches([(event, None, PLACES[row % 3], 5) for row in range(4)], [None] * 4)
    model = Model(OUTPUTS["decision"], "id")
    result = scored(columns, model, ROOM, Arms(np.arange(4) % 2 == 0, servable_of(model, "canary"), alike=True))
    assert result.packed is not None
    assert [json.loads(record[1] or b"")["arm"] for record in result.records] == ["canary", "champion"] * 2


@given(batches_drawn())
def test_a_batch_of_columns_has_the_same_lists(drawn: tuple[Batch, ColumnarBatch]) -> None:
    listed, columns = drawn
    for name in ("topics", "partitions", "offsets", "keys", "timestamps", "headers", "places", "last", "reached"):
        assert getattr(columns, name) == getattr(listed, name)
    assert list(columns.values) == listed.values
    assert columns.times().tolist() == listed.times().tolist()
    assert columns.tombstones() == listed.tombstones()
    assert columns.first_offsets() == listed.first_offsets()
    assert [epoch is None for epoch in columns.leader_epochs.values()] == [at == 0 for at in columns.last.values()]


@given(
    st.lists(st.sampled_from([bytes(8), b"\0\0\x80?" * 2, b"\0\0\xc0\x7f" * 2, b"", b"1234567", None]), min_size=1, max_size=9)
)
def test_rows_of_float32_are_read_from_one_buffer_as_from_many(values: list[bytes | None]) -> None:
    inputs = [{"tensor": "x", "dtype": "float32", "fields": ["a", "b"]}]
    decoder = Float32Decoder(parse_signature(json.dumps({"inputs": inputs, "output": {"tensor": "y"}})), 100)
    expected, decoded = decoder.decode(values), decoder.decode(texts(values))
    assert decoded.rows == expected.rows
    assert decoded.tensors["x"].tobytes() == expected.tensors["x"].tobytes()
    assert {row: str(poison) for row, poison in decoded.rejected.items()} == {
        row: str(poison) for row, poison in expected.rejected.items()
    }


PLAIN_HEADERS: Headers = [("ce_id", b"e-1"), ("deadline", b"100"), ("traceparent", b"00-1")]


@pytest.mark.parametrize(
    ("output", "of_output", "id_field", "headers", "is_packed"),
    [
        *((name, {}, "id", None, name not in ("several", "wide", "top", "words")) for name in OUTPUTS),
        ("number", {}, None, None, True),
        ("number", {"headers": ["version"]}, "id", None, False),
        ("number", {}, "id", PLAIN_HEADERS, True),
        ("number", {}, None, [("x-origin", b"r/in/0/5")], False),
        ("number", {}, None, [("deadline", b"98")], False),
    ],
)
def test_plain_batches_are_packed(
    output: str, of_output: dict[str, Any], id_field: str | None, headers: Headers, is_packed: bool
) -> None:
    event = json.dumps({"a": 1.5, "id": "e"}).encode()
    _, columns = batches([(event, None, PLACES[row % 3], 5) for row in range(4)], [headers] * 4)
    for carry in ((), CARRY):
        model = Model(OUTPUTS[output], id_field, carry=carry)
        assert (scored(columns, model, ROOM, **of_output).packed is not None) is is_packed
