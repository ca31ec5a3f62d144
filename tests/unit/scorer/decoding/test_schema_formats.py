"""Avro and Protobuf: the fixed layout and the library agree with each other and with a plain decoder."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorer.decoding.schema_formats.decoder import SchemaDecoder
from scorer.decoding.schema_formats.fixed_width_decode import MIN_EVENTS
from scorer.native.byte_columns import AsciiColumn
from tests.unit.scorer.decoding.formats import (
    MIXED,
    NUMBERS,
    WIDTH,
    assert_plain,
    assert_same,
    damaged,
    floats,
    number_events,
    scattered,
    texts,
)
from tests.unit.scorer.decoding.schema_events import Encode, with_schema

complete_mixed_events = st.fixed_dictionaries(
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
USUAL = {"id": "x" * 200, "a": 1.0, "b": 2.0, "c": 3.0}
USUAL_NUMBERS = {**USUAL, "vector": [0.5] * WIDTH}
USUAL_MIXED = {**USUAL, "count": 1, "size": 2, "word": "w", "other": "o", "flag": True, "vector": [0.5] * 3}


@dataclass
class Case:
    """An encoder, decoders with and without a fixed layout, events, and an event in the usual shape."""

    encode: Encode
    fast: SchemaDecoder
    slow: SchemaDecoder
    events: st.SearchStrategy[dict[str, Any]]
    usual: dict[str, Any]


@pytest.fixture(scope="module", params=[(format_, mixed) for format_ in ("avro", "protobuf") for mixed in (False, True)])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    format_, mixed = request.param
    signature, events, usual = (MIXED, complete_mixed_events, USUAL_MIXED) if mixed else (NUMBERS, number_events, USUAL_NUMBERS)
    encode, configuration = with_schema(format_, tmp_path_factory.mktemp("schemas"), mixed=mixed)
    fast, slow = SchemaDecoder(signature, configuration), SchemaDecoder(signature, configuration)
    for reader in slow._readers.values():
        assert reader.layout is not None
        reader.layout = None
    return Case(encode, fast, slow, events, usual)


@settings(max_examples=100)
@given(data=st.data())
def test_the_layout_and_the_library_agree(case: Case, data: st.DataObject) -> None:
    values = [case.encode(event) for event in data.draw(st.lists(case.events, min_size=1, max_size=3))]
    assert_same(case.fast.decode(values), case.slow.decode(values), len(values))
    values[-1] = data.draw(damaged(values[-1]))
    assert_same(case.fast.decode(values), case.slow.decode(values), len(values))
    for column in (texts(values), scattered(values)):
        assert_same(case.fast.decode(column), case.slow.decode(values), len(values))


def test_an_event_in_its_usual_shape_is_not_read_field_by_field(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = next(iter(case.fast._readers.values()))
    monkeypatch.setattr(reader, "row", lambda *_: pytest.fail("read field by field"))
    assert_plain(case.fast.decode([case.encode(case.usual)] * 2), case.fast._fields.signature, [case.usual] * 2)


def with_ids(case: Case, ids: list[str]) -> list[bytes]:
    return [case.encode({**case.usual, "id": id_}) for id_ in ids]


def test_many_plain_ids_are_read_as_a_column(case: Case) -> None:
    ids = [str(number) * (1 + number % 3) for number in range(MIN_EVENTS)]
    ids_read = case.fast.decode(with_ids(case, ids)).ids
    assert isinstance(ids_read, AsciiColumn)
    assert (list(ids_read), ids_read[3]) == (ids, ids[3])
    assert list(ids_read.texts) == [id_.encode() for id_ in ids]


@settings(max_examples=50)
@given(data=st.data())
def test_many_ids_are_those_of_each_event(case: Case, data: st.DataObject) -> None:
    ids = list(map(str, range(MIN_EVENTS)))
    odd = st.text(max_size=5) | st.sampled_from(['"', "\\", "\x7f", "\x1f", "~ !"])
    ids[data.draw(st.integers(0, MIN_EVENTS - 1))] = data.draw(odd)
    values = with_ids(case, ids)
    values[data.draw(st.integers(0, MIN_EVENTS - 1))] += data.draw(st.sampled_from([b"", b"x"]))
    for column in (values, texts(values), scattered(values)):
        assert_same(case.fast.decode(column), case.slow.decode(values), len(values))
