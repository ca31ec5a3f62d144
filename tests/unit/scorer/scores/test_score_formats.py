"""Score records in Avro and Protobuf equal the JSON record for readers of other libraries."""

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from scorer.scores import avro_record, protobuf_record, schema
from scorer.scores.avro_record import AvroRecordEncoder
from scorer.scores.formats import as_json, encoder
from scorer.scores.protobuf_record import ProtobufRecordEncoder
from scorer.scores.record import RecordEncoder
from scorer.settings.carry import TYPES, CarriedField, Row
from tests.unit.scorer.decoding.schema_events import proto_class, settings_of

PROVENANCE = {"model": "m,1", "version": "1.0.0", "digest": "sha256:0", "role": "champion", "region": "eu-west"}
numbers = st.floats(allow_nan=False, allow_infinity=False)
columns = st.one_of(
    numbers,
    st.none(),
    st.lists(numbers, max_size=4),
    st.dictionaries(st.text(max_size=3), st.lists(numbers, max_size=3), min_size=1),
)
rows = st.lists(
    st.tuples(
        st.text(max_size=70),
        columns,
        st.none() | st.sampled_from(["late", "on time, é", ""]),
        st.tuples(st.sampled_from(["t", "other"]), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)),
        st.integers(-1, 2**62),
    ),
    max_size=6,
)
Rows = list[tuple[str, Any, str | None, tuple[str, int, int], int]]


def encoded(encoder: RecordEncoder, batch: Rows) -> list[bytes]:
    ids, scores, decisions, sources, times = zip(*batch, strict=True) if batch else ((),) * 5
    texts = [json.dumps(score).encode() for score in scores]
    places, offsets = [source[:2] for source in sources], [source[2] for source in sources]
    return encoder.encode(ids, texts, decisions, places, offsets, times, "scored", 1_700_000_000_000)


def read_avro(value: bytes) -> Any:
    stream = io.BytesIO(value)
    record = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(schema.avro())), None)
    assert stream.tell() == len(value)
    return record


protobuf_class = proto_class(schema.protobuf(), "Score")
CARRY = tuple(CarriedField.read({"path": f"f.{type_}", "as": type_, "type": type_}) for type_ in TYPES)
carried_avro = fastavro.parse_schema(json.loads(schema.avro(CARRY)))
carried_protobuf = proto_class(schema.protobuf(CARRY), "Score")


def read_protobuf(value: bytes) -> Any:
    record = protobuf_class.FromString(value)
    document = json_format.MessageToDict(record, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    score = document.pop("score", None)
    kind = record.score.WhichOneof("value")
    if kind == "numbers":
        score = list(record.score.numbers.numbers)
    elif kind == "named":
        score = {output.name: list(output.numbers) for output in record.score.named.outputs}
    elif score is not None:
        score = record.score.number if kind else None
    expected_fields = {name: int(document[name]) for name in ("event_ms", "scored_ms", "revision")}
    source = {**document["source"], "offset": int(document["source"]["offset"])}
    return {**document, **expected_fields, "score": score, "decision": document.get("decision"), "source": source}


FORMATS: list[tuple[Callable[..., RecordEncoder], Callable[[bytes], Any], Callable[[bytes, int], Any]]] = [
    (AvroRecordEncoder, read_avro, avro_record.as_json),
    (ProtobufRecordEncoder, read_protobuf, protobuf_record.as_json),
]


@pytest.mark.parametrize(("kind", "read_record", "as_json_record"), FORMATS, ids=["avro", "protobuf"])
@settings(max_examples=60)
@given(batch=rows, fallback=st.sampled_from([None, "inference-failed"]))
def test_every_record_equals_the_json_record(
    kind: Callable[..., RecordEncoder],
    read_record: Callable[[bytes], Any],
    as_json_record: Callable[[bytes, int], Any],
    batch: Rows,
    fallback: str | None,
) -> None:
    acting: dict[str, Any] = {"role": "champion", "arm": "canary", "revision": 2**40, "fallback": fallback}
    records = encoded(kind(b"HEAD", **PROVENANCE).acting(**acting), batch)
    for record, text in zip(records, encoded(RecordEncoder(**PROVENANCE).acting(**acting), batch), strict=True):
        expected = json.loads(text)
        assert {name: expected.get(name) for name in acting} == acting
        assert record.startswith(b"HEAD")
        assert read_record(record[4:]) == ({"fallback": None, **expected} if kind is AvroRecordEncoder else expected)
        assert as_json_record(record, 4) == expected


@given(value=st.binary(max_size=40))
def test_other_bytes_are_no_score_record(value: bytes) -> None:
    for _, _, as_json_record in FORMATS:
        try:
            as_json_record(value, 0)
        except ValueError as error:
            assert "not a score record" in str(error)  # noqa: PT017 - some bytes are a record


def test_nested_arrays_become_one_row_and_named_numbers_arrays() -> None:
    source = ("t", 0, 0)
    batch: Rows = [("a", [[1, 2], [3, 4]], None, source, 0), ("b", {"p": 0.5, "n": [1, 2]}, None, source, 0)]
    for kind, read_record, _ in FORMATS:
        document = [read_record(record)["score"] for record in encoded(kind(b"", **PROVENANCE), batch)]
        assert document == [[1, 2, 3, 4], {"p": [0.5], "n": [1, 2]}]


carried_rows = st.lists(
    st.none()
    | st.tuples(
        st.none() | st.text(max_size=70),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | numbers,
        st.none() | st.booleans(),
    ),
    max_size=6,
)


@settings(max_examples=60)
@given(carried=carried_rows)
def test_carried_fields_are_read_by_the_schema_that_is_printed(carried: list[Row | None]) -> None:
    count = len(carried)

    def records(encoder: RecordEncoder) -> list[bytes]:
        places = [("t", 0)] * count
        return encoder.encode(
            [""] * count, [b"0.5"] * count, [None] * count, places, [0] * count, [0] * count, "scored", 1, carried
        )

    records_by_format = (
        records(AvroRecordEncoder(b"", CARRY, **PROVENANCE)),
        records(ProtobufRecordEncoder(b"", CARRY, **PROVENANCE)),
    )
    expected_fields = records(RecordEncoder(CARRY, **PROVENANCE))
    for text, row, avro, protobuf in zip(expected_fields, carried, *records_by_format, strict=True):
        expected = dict(zip(TYPES, row or [None] * len(TYPES), strict=True))
        assert json.loads(text)["carried"] == expected
        stream = io.BytesIO(avro)
        assert fastavro.schemaless_reader(stream, carried_avro, None) == {**json.loads(text), "fallback": None}
        assert stream.tell() == len(avro)
        document = carried_protobuf.FromString(protobuf).carried
        assert {name: getattr(document, name) if document.HasField(name) else None for name in TYPES} == expected


def test_a_reader_with_carried_fields_reads_a_record_without_them() -> None:
    before = encoded(AvroRecordEncoder(b"", **PROVENANCE), [("a", 0.5, "late", ("t", 1, 2), 3)])[0]
    document: Any = fastavro.schemaless_reader(io.BytesIO(before), fastavro.parse_schema(schema.record()), carried_avro)
    assert document["carried"] == dict.fromkeys(TYPES)
    assert list(document) == [*(field["name"] for field in schema.SCHEMA["fields"]), "carried"]


@given(batch=rows)
def test_json_has_the_fields_of_the_schema_in_their_order(batch: Rows) -> None:
    for text in encoded(RecordEncoder(**PROVENANCE), batch):
        record = json.loads(text)
        assert list(record) == [field["name"] for field in schema.SCHEMA["fields"] if field["name"] != "fallback"]
        assert list(record["source"]) == [field["name"] for field in schema.SOURCE["fields"]]


@pytest.mark.parametrize("format_", ["json", "avro", "protobuf"])
def test_without_a_registry_a_record_has_no_header(format_: str) -> None:
    configured = settings_of("json", output=format_)
    record = encoded(encoder(configured, **PROVENANCE), [("a", 0.5, "late", ("t", 1, 2), 3)])[0]
    assert json.loads(as_json(configured)(record))["source"] == {"topic": "t", "partition": 1, "offset": 2}


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:1"])
@pytest.mark.parametrize("format_", ["avro", "protobuf"])
@pytest.mark.parametrize("value", [b"", b"null", b"\0", b"\0\0\0\0\1", b"\0\0\0\0\1\0", b'{"id": "e1", "score": 0.5}'])
def test_bytes_that_name_no_event_are_no_score(format_: str, url: str | None, value: bytes) -> None:
    """An empty message of Protobuf, which equals a record without a value, is well formed."""
    configured = settings_of("json", output=format_)
    registry = configured.schema_registry.model_copy(update={"url": url})
    with pytest.raises(ValueError, match="not a score record"):
        as_json(configured.model_copy(update={"schema_registry": registry}))(value)
