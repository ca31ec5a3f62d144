"""Avro and Protobuf: fixed layout and library say the same, and the same as a plain decoder."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scorer.events.schemas.decoder import SchemaDecoder
from tests.unit.scorer.events.formats import NUMBERS, WIDTH, assert_plain, assert_same, damaged, floats, number_events
from tests.unit.scorer.events.schema_events import PROTO, Encode, avro_encoder, configured, proto_encoder
from tests.unit.scorer.events.test_json import SIGNATURE, good_events
from tests.unit.scorer.events.test_json import plain as plain_mixed


def nullable(type_: str) -> dict[str, Any]:
    return {"type": ["null", type_], "default": None}


AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "more", "type": {"type": "record", "name": "More", "fields": [{"name": "a", "type": "double"}]}},
        {"name": "a", "type": "float"},
        {"name": "b", **nullable("double")},
        {"name": "c", **nullable("float")},
        {"name": "vector", "type": {"type": "array", "items": "float"}},
    ],
}
MIXED_AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "a", "type": "double"},
        {"name": "b", **nullable("double")},
        {"name": "c", **nullable("double")},
        {"name": "count", "type": "int"},
        {"name": "size", **nullable("long")},
        {"name": "word", "type": "string"},
        {"name": "other", **nullable("string")},
        {"name": "flag", **nullable("boolean")},
        {"name": "vector", "type": {"type": "array", "items": "double"}},
        {"name": "id", "type": ["null", "string"], "default": None},
    ],
}
MIXED_PROTO = """syntax = "proto3";
message Event {
  double a = 1; optional double b = 2; optional double c = 3; sint32 count = 4; optional int64 size = 5; string word = 6;
  optional string other = 7; optional bool flag = 8; repeated double vector = 9; optional string id = 10;
}
"""


@pytest.fixture(scope="module", params=["avro", "protobuf"])
def numbers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Encode, SchemaDecoder, SchemaDecoder]:
    """An encoder; a decoder with a fixed layout, and the same without."""
    if request.param == "avro":
        text, encode, more = json.dumps(AVRO), avro_encoder(AVRO), {}
    else:
        text, encode, more = PROTO, proto_encoder(PROTO, at=1_700_000_000_000, opaque=b"\xff\0"), {"message": "Event"}
    configuration = configured(tmp_path_factory.mktemp("schemas"), request.param, text, **more)
    return encode, SchemaDecoder(NUMBERS, configuration), without_layout(SchemaDecoder(NUMBERS, configuration))


@pytest.fixture(scope="module", params=["avro", "protobuf"])
def mixed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Encode, SchemaDecoder, SchemaDecoder]:
    """The same for a signature of many dtypes."""
    text = json.dumps(MIXED_AVRO) if request.param == "avro" else MIXED_PROTO
    encode = avro_encoder(MIXED_AVRO) if request.param == "avro" else proto_encoder(MIXED_PROTO)
    configuration = configured(tmp_path_factory.mktemp("schemas"), request.param, text)
    return encode, SchemaDecoder(SIGNATURE, configuration), without_layout(SchemaDecoder(SIGNATURE, configuration))


def without_layout(decoder: SchemaDecoder) -> SchemaDecoder:
    for reader in decoder._readers.values():
        assert reader.layout is not None
        reader.layout = None
    return decoder


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(number_events, max_size=5), tombstones=st.integers(0, 2), random=st.randoms())
def test_numbers_agree_with_a_plain_decoder(
    numbers: tuple[Encode, SchemaDecoder, SchemaDecoder], events: list[dict[str, Any]], tombstones: int, random: Any
) -> None:
    encode, *decoders = numbers
    batch: list[dict[str, Any] | None] = [*events, *[None] * tombstones]
    random.shuffle(batch)
    for decoder in decoders:
        decoded = decoder.decode([None if event is None else encode(event) for event in batch])
        assert_plain(decoded, NUMBERS, batch)
        assert decoded.ids == [event["id"] for event in batch if event is not None]


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(number_events, min_size=1, max_size=3), data=st.data())
def test_the_layout_and_the_library_say_the_same_of_damaged_events(
    numbers: tuple[Encode, SchemaDecoder, SchemaDecoder], events: list[dict[str, Any]], data: st.DataObject
) -> None:
    encode, fast, slow = numbers
    values = [encode(event) for event in events]
    values[-1] = data.draw(damaged(values[-1]))
    assert_same(fast.decode(values), slow.decode(values), len(values))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(good_events, max_size=4), noise=st.lists(st.binary(max_size=20), max_size=3))
def test_every_dtype_agrees_with_a_plain_decoder(
    mixed: tuple[Encode, SchemaDecoder, SchemaDecoder], events: list[dict[str, Any]], noise: list[bytes]
) -> None:
    encode, decoder, _ = mixed
    events = [{**event, "id": str(event["id"])} if event.get("id") is not None else event for event in events]
    events = [{name: value for name, value in event.items() if name != "unknown"} for event in events]
    decoded = decoder.decode([*(encode(event) for event in events), *noise])
    assert decoded.rows[: len(events)] == list(range(len(events)))
    assert sorted([*decoded.rows, *decoded.rejected]) == list(range(len(events) + len(noise)))
    assert decoded.ids[: len(events)] == [event.get("id") for event in events]
    for at, event in enumerate(events):
        for tensor, row in zip(decoded.tensors.values(), plain_mixed(event), strict=True):
            assert repr(tensor[at].tolist()) == repr(
                [tensor.dtype.type(v).item() if tensor.dtype != object else v for v in row]
            )


def test_an_event_in_its_usual_shape_is_not_read_field_by_field(
    numbers: tuple[Encode, SchemaDecoder, SchemaDecoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, fast, _ = numbers
    event = {"id": "x" * 200, "a": 1.0, "b": 2.0, "c": 3.0, "vector": [0.5] * WIDTH}
    reader = next(iter(fast._readers.values()))
    monkeypatch.setattr(reader, "row", lambda *_: pytest.fail("read field by field"))
    assert_plain(fast.decode([encode(event)] * 2), NUMBERS, [event] * 2)


whole = st.fixed_dictionaries(
    {
        **dict.fromkeys("abc", floats),
        "count": st.integers(-(2**31), 2**31 - 1),
        "size": st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**31), 2**31),
        "word": st.text(max_size=150),
        "other": st.text(max_size=3),
        "flag": st.booleans(),
        "vector": st.lists(floats, min_size=3, max_size=3),
        "id": st.text(max_size=5),
    }
)


@settings(max_examples=120)
@given(events=st.lists(whole, min_size=1, max_size=3), data=st.data())
def test_the_layout_and_the_library_say_the_same_of_every_dtype(
    mixed: tuple[Encode, SchemaDecoder, SchemaDecoder], events: list[dict[str, Any]], data: st.DataObject
) -> None:
    encode, fast, slow = mixed
    values = [encode(event) for event in events]
    assert_same(fast.decode(values), slow.decode(values), len(values))
    values[-1] = data.draw(damaged(values[-1]))
    assert_same(fast.decode(values), slow.decode(values), len(values))
