"""Batches and records as columns change nothing: what comes of a batch is the same records that its lists make."""

import json
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from model_registry.package.signature import Signature
from scorer.events.batch import Batch
from scorer.events.json.objects import JsonDecoder
from scorer.events.native.scanner import PADDING
from scorer.events.native.taker import Columns
from scorer.events.native.texts import Texts
from scorer.events.packed import PackedBatch
from scorer.loop.scoring import Scored, Scoring, Target
from scorer.scores.record import RecordEncoder, Scores
from scorer.servables.servable import Servable
from scorer.settings import Settings

pytestmark = pytest.mark.debian("cc")
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
}


class Model:
    """A loaded model whose answers follow from its one field."""

    def __init__(self, output: dict[str, Any], id_field: str | None) -> None:
        fields = [{"name": "a", "required": False, "default": 0.25}]
        inputs = [{"tensor": "x", "dtype": "float32", "fields": fields}]
        self.signature = Signature.parse(json.dumps({"inputs": inputs, **output}))
        self.decoder = JsonDecoder(self.signature, id_field, 200)

    def score(self, tensors: dict[str, NDArray[Any]]) -> Scores:
        x = tensors["x"][:, 0]
        with np.errstate(over="ignore"):
            rows = np.stack([x, x * 3, -x], axis=1).astype(np.float64)
        wide = rows.reshape(len(x), 3, 1)
        with np.errstate(over="ignore"):
            square = x * x
        return Scores(self.signature, {"y": square, "rows": rows, "classes": (x > 0).astype(np.int64), "wide": wide})


def texts(values: list[bytes | None]) -> Texts:
    bounds = np.cumsum([0, *(len(value or b"") for value in values)]).astype(np.int64)
    nulls = np.array([value is None for value in values], np.uint8)
    text = np.frombuffer(b"".join([*(value or b"" for value in values), PADDING]), np.uint8)
    return Texts(text, bounds[:-1], bounds[1:], nulls)


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


def batches(drawn: list[tuple[bytes | None, bytes | None, tuple[str, int], int]]) -> tuple[Batch, PackedBatch]:
    """The same events as lists and as columns."""
    payloads, keys, places, times = (list(column) for column in zip(*drawn, strict=True))
    count = len(drawn)
    topics, partitions = ([place[part] for place in places] for part in (0, 1))
    listed = Batch(topics, partitions, list(range(count)), keys, payloads, times, [None] * count)
    columns = Columns(
        places=PLACES,
        lanes=np.array([PLACES.index(place) for place in places], np.int32),
        offsets=np.arange(count, dtype=np.int64),
        times=np.array(times, np.int64),
        codes=np.zeros(count, np.int32),
        leader_epochs=np.array([-1, *range(1, count)], np.int32),
        values=texts(payloads),
        keys=texts(keys),
        headers=None,
        unread=[],
    )
    return listed, PackedBatch(columns, "empty")


def scored(batch: Batch, model: Model, room: int, **output: Any) -> Scored:
    encoder = RecordEncoder(model="m", version="1", digest="sha256:0", role="champion", region="r")
    servable = cast(Servable, type("Fake", (), {"loaded": model, "encoder": encoder, "label": "m:1"}))
    names = {"input": {"topics": ["in"]}, "output": {"topic": "out", **output}, "dead_letter": {"topic": "dead"}, "region": "r"}
    configured = Settings.model_validate(
        {"name": "n", "kafka": {"bootstrap_servers": "b"}, "model": {"source": "oci:./r/m"}, **names}
    )
    return Scoring(configured, Target("out", 2, room), Target("dead", 1, ROOM)).score(batch, servable, lambda: 99)


@given(st.lists(events, min_size=1, max_size=30), st.sampled_from(sorted(OUTPUTS)), st.sampled_from(["id", None]))
def test_columns_become_the_records_that_lists_become(drawn: Any, output: str, id_field: str | None) -> None:
    listed, columns = batches(drawn)
    model = Model(OUTPUTS[output], id_field)
    for room in (ROOM, 1_400):
        wanted, found = scored(listed, model, room), scored(columns, model, room)
        assert list(found.records) == list(wanted.records)
        assert (+found.outcomes, +found.reasons, found.expired) == (+wanted.outcomes, +wanted.reasons, wanted.expired)
        found.unpack()
        assert found.slots == wanted.slots


@given(st.lists(events, min_size=1, max_size=30))
def test_a_batch_of_columns_has_the_lists_of_any_other(drawn: Any) -> None:
    listed, columns = batches(drawn)
    for name in ("topics", "partitions", "offsets", "keys", "timestamps", "headers", "places", "last", "reached"):
        assert getattr(columns, name) == getattr(listed, name)
    assert list(columns.values) == listed.values
    assert columns.times().tolist() == listed.times().tolist()
    assert columns.tombstones() == listed.tombstones()
    assert columns.first_offsets() == listed.first_offsets()
    assert [epoch is None for epoch in columns.leader_epochs.values()] == [at == 0 for at in columns.last.values()]


@pytest.mark.parametrize(
    ("output", "of_output", "id_field", "is_packed"),
    [
        *((name, {}, "id", name not in ("several", "wide")) for name in OUTPUTS),
        ("number", {}, None, True),
        ("number", {"headers": ["version"]}, "id", False),
    ],
)
def test_plain_batches_are_packed(output: str, of_output: dict[str, Any], id_field: str | None, is_packed: bool) -> None:
    event = json.dumps({"a": 1.5, "id": "e"}).encode()
    _, columns = batches([(event, None, PLACES[row % 3], 5) for row in range(4)])
    assert (scored(columns, Model(OUTPUTS[output], id_field), ROOM, **of_output).packed is not None) is is_packed
