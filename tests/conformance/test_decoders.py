"""Behaviour of every input format for any producer's input. A new format gets a case for each signature it supports."""

import contextlib
import gc
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_registry.package.signature import Signature
from publisher.kafka.source_position import Position
from publisher.runtime.context import Clock, Context
from scorer.dead_letters.reasons import Reason
from scorer.decoding import decoder_factory
from scorer.decoding.batch import Batch
from scorer.decoding.types import Decoded, Decoder
from scorer.models.servable import Servable
from scorer.scores.outputs import Scores
from scorer.scores.record import RecordEncoder
from scorer.settings import Settings
from scorer.settings.input import InputSettings
from scorer.worker.encode import TargetTopic
from scorer.worker.score_batch import BatchScorer
from tests.unit.scorer.decoding.formats import (
    MIXED,
    NESTED,
    NUMBERS,
    OPAQUE,
    WIDTH,
    assert_plain,
    damaged,
    mixed_events,
    nested,
    number_events,
)
from tests.unit.scorer.decoding.schema_events import settings_of, with_nested_schema, with_schema

LARGEST = 5_000
TIMELY, LATE = 2_000, 1_000  # deadlines
NOW = 1_500
Event = dict[str, Any]


@dataclass
class Case:
    """An input format with a signature. `encode` writes an event; `id_of` is the id that can be read from it."""

    settings: Settings
    signature: Signature
    encode: Callable[[Event], bytes]
    id_of: Callable[[Event], str | int | None]

    def __post_init__(self) -> None:
        self.decoder: Decoder = decoder_factory.create_decoder(self.settings, self.signature)
        self.events = number_events if self.signature in (NUMBERS, OPAQUE) else mixed_events


def elements(signature: Signature, event: Event) -> list[Any]:
    return [event.get(field.name) for field in signature.fields]


def id_field(event: Event) -> str | int | None:
    value: str | int | None = event.get("id")
    return value


def no_id(_: Event) -> None:
    return None


def json_object(signature: Signature, folder: Path) -> Case:
    if signature is NESTED:
        return nested_json_object(signature, folder)
    encode = lambda event: json.dumps(event | {"unknown": [None, {}]}).encode()  # noqa: E731
    return Case(settings_of("json"), signature, encode, id_field)


def nested_json_object(signature: Signature, _: Path) -> Case:
    encode = lambda event: json.dumps(nested(event) | {"unknown": [None, {}]}).encode()  # noqa: E731
    return Case(settings_of("json", id="meta.id"), signature, encode, id_field)


def json_array(signature: Signature, _: Path) -> Case:
    encode = lambda event: json.dumps(elements(signature, event)).encode()  # noqa: E731
    return Case(settings_of("json-array", id="header:ce_id"), signature, encode, no_id)


def json_envelope(signature: Signature, _: Path) -> Case:
    encode = lambda event: json.dumps({"id": event.get("id"), "ts": 1, "features": elements(signature, event)}).encode()  # noqa: E731
    return Case(settings_of("json-envelope"), signature, encode, id_field)


def float32(signature: Signature, _: Path) -> Case:
    """A row cannot omit `c`: its default is written."""

    def encode(event: Event) -> bytes:
        b, c = (default if event.get(name) is None else event[name] for name, default in (("b", math.nan), ("c", 1.5)))
        return np.array([event["a"], b, c, *event["vector"]], "<f4").tobytes()

    return Case(settings_of("float32", id="header:ce_id"), signature, encode, no_id)


def opaque(signature: Signature, _: Path) -> Case:
    encode = lambda event: np.array(event["vector"], "<f8").tobytes()  # noqa: E731
    return Case(settings_of("bytes", id="header:ce_id"), signature, encode, no_id)


def text_id(event: Event) -> str | None:
    return None if event.get("id") is None else str(event["id"])


def of_a_schema(format_: str) -> Callable[[Signature, Path], Case]:
    def make(signature: Signature, folder: Path) -> Case:
        if signature is NESTED:
            encode, configuration = with_nested_schema(format_, folder)
            return Case(configuration, signature, lambda event: encode(nested(event | {"id": text_id(event)})), text_id)
        encode, configuration = with_schema(format_, folder, mixed=signature is MIXED)
        return Case(configuration, signature, lambda event: encode(event | {"id": text_id(event)}), text_id)

    return make


CASES: dict[str, tuple[Callable[[Signature, Path], Case], tuple[Signature, ...]]] = {
    "json": (json_object, (NUMBERS, MIXED, NESTED)),
    "json-array": (json_array, (NUMBERS, MIXED)),
    "json-envelope": (json_envelope, (NUMBERS, MIXED)),
    "float32": (float32, (NUMBERS,)),
    "bytes": (opaque, (OPAQUE,)),
    "avro": (of_a_schema("avro"), (NUMBERS, MIXED, NESTED)),
    "protobuf": (of_a_schema("protobuf"), (NUMBERS, MIXED, NESTED)),
}
"""By `input.format`: the factory of a case, and the signatures that the format supports."""
KINDS = {id(OPAQUE): "opaque", id(NUMBERS): "numbers", id(MIXED): "mixed", id(NESTED): "nested"}
bad = st.sampled_from([None, bytes(LARGEST + 1)]) | st.binary(max_size=20)
"""Bytes that are no event in any format."""
some = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(
    scope="module",
    params=[(name, signature) for name, (_, signatures) in CASES.items() for signature in signatures],
    ids=lambda param: f"{param[0]}-{KINDS[id(param[1])]}",
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    name, signature = request.param
    return CASES[name][0](signature, tmp_path_factory.mktemp("schemas"))


def test_every_input_format_has_a_case() -> None:
    assert set(CASES) == set(get_args(InputSettings.model_fields["format"].annotation))


@some
@given(data=st.data())
def test_good_events_become_tensors_and_bad_ones_alone_are_rejected(case: Case, data: st.DataObject) -> None:
    events: list[Event | None] = data.draw(st.lists(st.none() | case.events, max_size=6))
    values = [data.draw(bad) if event is None else case.encode(event) for event in events]
    decoded = case.decoder.decode(values)
    assert_plain(decoded, case.signature, events)
    assert list(decoded.ids) == [case.id_of(event) for event in events if event is not None]
    for row, poison in decoded.rejected.items():
        value = values[row]
        assert str(poison)
        assert (poison.reason is Reason.TOMBSTONE) == (value is None)
        assert (poison.reason is Reason.OVERSIZE) == (value is not None and len(value) > LARGEST)


@some
@given(data=st.data())
def test_any_bytes_are_decoded_or_rejected_alone_as_in_a_batch(case: Case, data: st.DataObject) -> None:
    events = data.draw(st.lists(case.events, max_size=4))
    encoded = [case.encode(event) for event in events]
    values = [data.draw(st.just(value) | damaged(value) | bad) for value in encoded]
    batch = case.decoder.decode(values)
    assert sorted([*batch.rows, *batch.rejected]) == list(range(len(values)))
    assert batch.rows == sorted(batch.rows)
    for row, poison in batch.rejected.items():
        alone = case.decoder.decode([values[row]]).rejected[0]
        assert (alone.reason, str(alone)) == (poison.reason, str(poison))
    for at, row in enumerate(batch.rows):
        single = case.decoder.decode([values[row]])
        assert single.ids[0] == batch.ids[at]
        str(single.ids[0]).encode()
        for name, tensor in batch.tensors.items():
            np.testing.assert_array_equal(tensor[at : at + 1], single.tensors[name])


def answers(case: Case, batch: Batch) -> list[tuple[str, str | None, int]]:
    """Return for each event of a batch: status or dead-letter reason, the id of a score, and the event's offset."""
    encoder = RecordEncoder(model="m", version="1", digest="sha256:0", role="champion", region="eu")
    servable = SimpleNamespace(
        loaded=SimpleNamespace(
            decoder=case.decoder,
            score=lambda tensors, _: Scores(case.signature, {"y": np.zeros(len(tensors["x"]), np.float32)}),
        ),
        encoder=encoder,
        label="m:1",
    )
    scoring = BatchScorer(case.settings, TargetTopic("o", 1, 1_000_000), TargetTopic("dead", 1, 1_000_000))
    outcomes = []
    for topic, value, *_, headers in scoring.score(batch, cast(Servable, servable), Context(Clock(lambda: NOW))).records:
        if topic == "o":
            record = json.loads(value or b"")
            outcomes.append((record["status"], record["id"], record["source"]["offset"]))
        else:
            header_texts = {name: text if isinstance(text, str) else (text or b"").decode() for name, text in headers or ()}
            outcomes.append((header_texts["dead.reason"], None, int(header_texts["dead.source"].rpartition("/")[2])))
    return outcomes


@some
@given(data=st.data())
def test_every_event_is_answered_once_in_order_with_its_offset_and_its_id(case: Case, data: st.DataObject) -> None:
    """The event is scored, expired or dead-lettered; its id is its header, its field, or its position."""
    count = data.draw(st.integers(0, 6))
    offsets = [7 + 3 * at for at in range(count)]
    values: list[bytes | None] = []
    headers: list[list[tuple[str, str | bytes | None]] | None] = []
    expected: list[tuple[str, str | None, int]] = []
    for offset in offsets:
        event = data.draw(case.events)
        named, deadline = data.draw(st.booleans()), data.draw(st.sampled_from([None, TIMELY, LATE, "soon"]))
        tombstone = data.draw(st.booleans())
        event_headers: list[tuple[str, str | bytes | None]] = [("ce_id", b"ce")] if named else []
        event_headers += [("deadline", str(deadline).encode())] if deadline else []
        headers.append(event_headers or None)
        values.append(None if tombstone else case.encode(event))
        field_id = None if tombstone else case.id_of(event)
        position = str(Position(case.settings.region, "t", 0, offset))
        id_ = "ce" if named else position if field_id in (None, "") else str(field_id)
        if deadline == "soon":
            expected.append((Reason.BAD_DEADLINE, None, offset))
        elif deadline == LATE:
            expected.append(("expired", id_, offset))
        elif tombstone:
            expected.append((Reason.TOMBSTONE, None, offset))
        else:
            expected.append(("scored", id_, offset))
    batch = Batch(["t"] * count, [0] * count, offsets, [None] * count, values, [1] * count, headers)
    assert answers(case, batch) == expected


@contextlib.contextmanager
def no_garbage() -> Iterator[None]:
    """Assert that no batch, decoded batch or error created in the block needs the garbage collector to be freed."""
    gc.collect()
    gc.freeze()  # a collection of all objects of a test run takes 0.2 s: the next one covers only objects of the block
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert not [leaked for leaked in gc.garbage if isinstance(leaked, Batch | Decoded | Exception)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


def test_a_batch_with_bad_events_is_freed_without_garbage_collection(case: Case) -> None:
    wide = case.signature in (NUMBERS, OPAQUE)
    event: Event = {"id": "1", "a": 1.5, "vector": [0.5] * (WIDTH if wide else 3)}
    good = case.encode(event if wide else event | {"count": 2, "word": "w"})
    values = [None, good, bytes(LARGEST + 1), b"", b"\xff" * 20, b"{", b"[[[", b"{}", b"[]", good[:-1], good]
    values += [good.replace(b"1.5", replacement) for replacement in (b'"x"', b"NaN", b"null", b"1e999")]
    count = len(values)
    headers: list[list[tuple[str, str | bytes | None]] | None] = [[("deadline", b"soon")], *[None] * (count - 1)]
    case.decoder.decode(values)
    with no_garbage():
        case.decoder.decode(values)
    with no_garbage():
        answers(case, Batch(["t"] * count, [0] * count, list(range(count)), [None] * count, values, [1] * count, headers))
