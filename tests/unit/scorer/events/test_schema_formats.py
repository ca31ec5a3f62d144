"""Avro and Protobuf: fixed layout and library say the same, and the same as a plain decoder."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scorer.events.schemas.decoder import SchemaDecoder
from tests.unit.scorer.events.formats import MIXED, NUMBERS, WIDTH, assert_plain, assert_same, damaged, floats, number_events
from tests.unit.scorer.events.schema_events import (
    AVRO,
    MIXED_AVRO,
    MIXED_PROTO,
    PROTO,
    Encode,
    avro_encoder,
    configured,
    proto_encoder,
)


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
    return encode, SchemaDecoder(MIXED, configuration), without_layout(SchemaDecoder(MIXED, configuration))


def without_layout(decoder: SchemaDecoder) -> SchemaDecoder:
    for reader in decoder._readers.values():
        assert reader.layout is not None
        reader.layout = None
    return decoder


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(number_events, min_size=1, max_size=3), data=st.data())
def test_the_layout_and_the_library_say_the_same_of_damaged_events(
    numbers: tuple[Encode, SchemaDecoder, SchemaDecoder], events: list[dict[str, Any]], data: st.DataObject
) -> None:
    encode, fast, slow = numbers
    values = [encode(event) for event in events]
    values[-1] = data.draw(damaged(values[-1]))
    assert_same(fast.decode(values), slow.decode(values), len(values))


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
