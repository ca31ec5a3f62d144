"""Fields that come from tables, the same in every format and with every source of the key."""

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_registry.package.signature import InputField, Signature
from model_registry.package.signature_schema import parse_signature
from publisher.errors import Fatal
from scorer.dead_letters.reasons import Reason
from scorer.decoding import decoder_factory
from scorer.decoding.record_metadata import BatchMetadata, ListedMetadata
from scorer.decoding.table_rows import row_decoder_factory
from scorer.decoding.types import FormatMismatch
from scorer.settings import Settings
from scorer.tables.lookup import EmptyTables, JoinedColumns, TableLookup, UnreadTables
from scorer.tables.row_store import RowStore, TableRecords
from tests.conformance.test_native_records import PLACES, batches
from tests.support.dict_tables import DictTables, Rows
from tests.unit.scorer.decoding.formats import assert_same, signature_of
from tests.unit.scorer.decoding.schema_events import avro_encoder, configured, proto_encoder, settings_of
from tests.unit.scorer.minimal import minimal

AGE = {"name": "customers.age", "from": "table:customers", "default": -1}
AGE_OF_ITEM = {"name": "items.age", "from": "table:items", "default": 0}
MIXED = signature_of(
    ("x", "float32", ["a", AGE, {"name": "b", "default": 0}, {"name": "stock", "path": "levels.stock", "from": "table:items"}]),
    ("city", "string", [{"name": "customers.city", "from": "table:customers", "default": "-"}]),
    ("v", "float64", [{"name": "items.v", "from": "table:items", "array": True, "length": 2, "default": 0.5}]),
    ("late", "float32", [{"name": "late", "from": "header:late", "default": 0}, {**AGE, "name": "customers.late"}]),
)
"""Fields of the event, of a header and of two tables, in tensors of their own and together."""
CUSTOMERS: dict[tuple[int, bytes], dict[str, Any]] = {
    (0, b"1"): {"age": 41.0, "city": "Kyiv", "late": 2.0},
    (0, "é".encode()): {"age": 7.0, "city": "Zürich"},
    (2, b"1"): {"age": 12.0},
    (0, b""): {"age": 99.0},
}
ITEMS: dict[tuple[int, bytes], dict[str, Any]] = {
    (place[1], key): {"levels": {"stock": 5.0}, "v": [1.0, 2.0]} for place in PLACES for key in (b"1", b"-7", b"x")
}
ITEMS |= {(0, b"empty"): {"levels": {}}}
TABLES = DictTables({"customers": CUSTOMERS, "items": ITEMS})


class StoredTables:
    """The tables in the store of the scorer, from rows in JSON."""

    def __init__(self, tables: Mapping[str, Rows]) -> None:
        settings_ = minimal(tables={name: {"topic": name} for name in tables})
        self._stores = {name: RowStore(row_decoder_factory(name, settings_), by_partition=True) for name in tables}
        for name, rows in tables.items():
            for (partition, key), row in rows.items():
                value = json.dumps(row).encode()
                record = TableRecords(
                    np.full(1, partition, np.int32), np.zeros(1, np.int64), [key], [value], np.zeros(1, np.bool_)
                )
                self._stores[name].apply(record)

    def columns(self, table: str, fields: Sequence[InputField], keys: Sequence[bytes | None], partitions: Any) -> JoinedColumns:
        return self._stores[table].columns(fields, keys, partitions)[0]


STORED = StoredTables({"customers": CUSTOMERS, "items": ITEMS})
AVRO = {
    "type": "record",
    "name": "E",
    "fields": [
        {"name": "a", "type": "float"},
        {"name": "b", "type": ["null", "float"]},
        {"name": "c", "type": ["null", "string", "long", "double"]},
        {"name": "o", "type": {"type": "record", "name": "O", "fields": [{"name": "i", "type": ["null", "string", "long"]}]}},
    ],
}
PROTO = """syntax = "proto3";
message O { optional string i = 1; }
message Event { optional float a = 1; optional float b = 2; optional string c = 3; O o = 4; }
"""
Write = Callable[[Mapping[str, Any]], bytes]


def of_tables(base: Settings, customers: str | None, items: str | None) -> Settings:
    tables = {"customers": {"topic": "customers", "key": customers}, "items": {"topic": "items", "key": items}}
    return Settings.model_validate(base.model_dump() | {"tables": tables})


@pytest.fixture(scope="module", params=["json", "avro", "protobuf"])
def body(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Write]:
    """Return the settings of a format with names, and a function that writes an event in it."""
    folder = tmp_path_factory.mktemp("schemas")
    by_header = {"id": "header:ce_id"}
    if request.param == "avro":
        return configured(folder, "avro", json.dumps(AVRO), **by_header), avro_encoder(AVRO)
    if request.param == "protobuf":
        encode = proto_encoder(PROTO)
        return configured(folder, "protobuf", PROTO, message="Event", **by_header), encode
    return settings_of("json", **by_header), lambda event: json.dumps(event).encode()


keys = st.sampled_from(["1", "é", "", "x", "-7", "empty", "none"])
events = st.fixed_dictionaries(
    {
        "a": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "b": st.none() | st.just(2.5),
        "c": st.none() | keys,
        "i": st.none() | keys,
        "key": st.none() | keys.map(str.encode),
        "place": st.sampled_from(PLACES),
        "late": st.sampled_from([None, b"3", b"bad"]),
    }
)


def expected(event: Mapping[str, Any], customer: bytes | None, item: bytes | None) -> dict[str, list[Any]] | None:
    """Return the rows of an event, or None if it is a dead letter."""
    place = event["place"][1]
    row = CUSTOMERS.get((place, customer), {}) if customer is not None else {}
    of_item: Mapping[str, Any] = ITEMS.get((place, item), {}) if item is not None else {}
    stock = of_item.get("levels", {}).get("stock")
    if stock is None or event["late"] == b"bad":
        return None
    return {
        "x": [event["a"], row.get("age", -1), event["b"] or 0, stock],
        "city": [row.get("city", "-")],
        "v": of_item.get("v", [0.5, 0.5]),
        "late": [3.0 if event["late"] else 0.0, row.get("late", -1)],
    }


@settings(max_examples=40)
@given(drawn=st.lists(events, min_size=1, max_size=12))
@pytest.mark.parametrize("tables", [TABLES, STORED], ids=["dict", "store"])
@pytest.mark.parametrize(("customers", "items"), [(None, None), ("c", "o.i"), (None, "c"), ("o.i", "o.i")])
def test_joined_fields_are_the_same_in_every_format(
    body: tuple[Settings, Write],
    customers: str | None,
    items: str | None,
    tables: TableLookup,
    drawn: list[dict[str, Any]],
) -> None:
    settings_of_body, write = body
    decoder = decoder_factory.create_decoder(of_tables(settings_of_body, customers, items), MIXED, tables)
    values = [write({"a": e["a"], "b": e["b"], "c": e["c"], "o": {} if e["i"] is None else {"i": e["i"]}}) for e in drawn]
    headers = [None if e["late"] is None else [("late", e["late"])] for e in drawn]
    listed, packed = batches([(v, e["key"], e["place"], 1) for v, e in zip(values, drawn, strict=True)], headers)
    decoded = decoder.decode(listed.values, BatchMetadata(listed, range(len(drawn))))
    assert_same(decoder.decode(packed.values, BatchMetadata(packed, range(len(drawn)))), decoded, len(drawn))

    def key(path: str | None, event: Mapping[str, Any]) -> bytes | None:
        if path is None:
            record_key: bytes | None = event["key"]
            return record_key
        text: str | None = event["c" if path == "c" else "i"]
        return None if text is None else text.encode()

    rows = [expected(event, key(customers, event), key(items, event)) for event in drawn]
    assert decoded.rows == [at for at, row in enumerate(rows) if row is not None]
    for name, tensor in decoded.tensors.items():
        expected_rows = [row[name] for row in rows if row is not None]
        assert tensor.dtype == {"x": np.float32, "city": object, "v": np.float64, "late": np.float32}[name]
        np.testing.assert_array_equal(
            tensor, np.array(expected_rows, tensor.dtype).reshape(len(expected_rows), -1 if expected_rows else tensor.shape[1])
        )
    for row in range(len(drawn)):
        alone = decoder.decode([values[row]], pickle.loads(pickle.dumps(BatchMetadata(packed, [row]).listed())))
        assert alone.rejected.keys() == ({0} if row in decoded.rejected else set())


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("value", "key"),
    [
        ('"1"', b"1"),
        ("1", b"1"),
        ("-7", b"-7"),
        ("9007199254740993", b"9007199254740993"),
        ('""', b""),
        ('"\\u00e9"', "é".encode()),
        ('"é"', "é".encode()),
        ("null", None),
        ("true", None),
        ("1.5", None),
        ("[1]", None),
        ('{"a": 1}', None),
    ],
)
def test_a_text_or_an_integer_in_the_event_is_a_key(value: str, key: bytes | None, *, native: bool) -> None:
    signature = signature_of(("x", "float32", ["a", AGE]))
    tables = DictTables({"customers": {}})
    configured = of_tables(settings_of("json", id="header:ce_id"), "c", None)
    decoder = decoder_factory.create_decoder(configured, signature, tables)
    count = 16 if native else 2
    decoder.decode([b'{"a": 1, "c": %b}' % value.encode(), *[b'{"a": 1, "c": "k"}'] * (count - 1)])
    ((_, requested, _),) = tables.asked
    assert requested == [key, *[b"k"] * (count - 1)]


def test_the_key_may_be_the_id_of_the_event() -> None:
    signature = signature_of(("x", "float32", ["a", AGE]))
    tables = DictTables({"customers": {(-1, b"4"): {"age": 3}}})
    decoder = decoder_factory.create_decoder(of_tables(settings_of("json", id="id"), "id", None), signature, tables)
    decoded = decoder.decode([b'{"id": 4, "a": 1}', b'{"id": "5", "a": 1}'] * 8)
    assert (list(decoded.ids), decoded.tensors["x"].tolist()) == ([4, "5"] * 8, [[1.0, 3.0], [1.0, -1.0]] * 8)


def test_the_key_may_be_a_field_of_the_model() -> None:
    signature = signature_of(("x", "float32", ["c", AGE]))
    tables = DictTables({"customers": {(-1, b"4"): {"age": 3}}})
    for id_ in ("c", "header:ce_id"):
        decoder = decoder_factory.create_decoder(of_tables(settings_of("json", id=id_), "c", None), signature, tables)
        decoded = decoder.decode([b'{"c": 4}', b'{"c": 5}'] * 8)
        assert decoded.tensors["x"].tolist() == [[4.0, 3.0], [5.0, -1.0]] * 8


def test_a_key_is_no_id_of_the_event() -> None:
    signature = signature_of(("x", "float32", ["a", AGE]), ("i", "float32", [{**AGE, "name": "i", "from": "table:items"}]))
    tables = DictTables({"customers": {(-1, b"4"): {"age": 3}}, "items": {(-1, b"5"): {"i": 8}}})
    decoder = decoder_factory.create_decoder(of_tables(settings_of("json", id="header:ce_id"), "c", "d"), signature, tables)
    values = [b'{"a": 1, "c": 4, "d": 5}', b'{"a": 2, "c": [], "d": {}}', b'{"a": [], "c": true}'] * 8
    decoded = decoder.decode(values, ListedMetadata([None] * 24, [0] * 24, [None] * 24))
    assert list(decoded.ids) == [None] * 16
    assert (decoded.rows, decoded.tensors["x"].tolist()) == (
        [row for row in range(24) if row % 3 < 2],
        [[1.0, 3.0], [2.0, -1.0]] * 8,
    )
    assert decoded.tensors["i"].tolist() == [[8.0], [-1.0]] * 8
    assert {str(poison) for poison in decoded.rejected.values()} == {"field 'a': Expected `float`, got `array`"}


def test_an_event_without_a_required_joined_field_is_rejected_with_the_key() -> None:
    signature = signature_of(("x", "float32", ["a", {"name": "customers.age", "from": "table:customers"}]))
    tables = DictTables({"customers": {(0, b"1"): {"age": 41}, (0, b"2"): {}}})
    decoder = decoder_factory.create_decoder(of_tables(settings_of("json"), None, None), signature, tables)
    record_keys = [b"1", b"2", b"\xff", None, b"1"]
    decoded = decoder.decode([b'{"a": 1}'] * 4 + [b"{"], ListedMetadata(record_keys, [0] * 5, [None] * 5, [0] * 5))
    assert (decoded.rows, decoded.tensors["x"].tolist()) == ([0], [[1.0, 41.0]])
    required = "required field 'customers.age' (table:customers): "
    assert {row: (poison.reason, str(poison)) for row, poison in decoded.rejected.items() if row != 4} == {
        1: (Reason.MISSING_FIELD, f"{required}the row of the table customers with the key '2' has no age"),
        2: (
            Reason.MISSING_FIELD,
            f"{required}the table customers has no row with the key '\\\\xff', or the row cannot be decoded",
        ),
        3: (Reason.MISSING_FIELD, f"{required}the event has no key for the table customers"),
    }
    assert decoded.rejected[4].reason == Reason.MALFORMED


def test_a_row_that_cannot_be_decoded_is_not_reported_as_absent_only() -> None:
    signature = signature_of(("x", "float32", ["a", {"name": "customers.age", "from": "table:customers"}]))
    tables = StoredTables({"customers": {(0, b"1"): {"age": "text"}}})
    decoder = decoder_factory.create_decoder(of_tables(settings_of("json"), None, None), signature, tables)
    decoded = decoder.decode([b'{"a": 1}'], ListedMetadata([b"1"], [0], [None], [0]))
    assert str(decoded.rejected[0]).endswith("has no row with the key '1', or the row cannot be decoded")


@pytest.mark.parametrize("key", [None, "c"])
def test_carried_fields_are_those_of_the_joined_events(key: str | None) -> None:
    signature = signature_of(("x", "float32", ["a", {"name": "customers.age", "from": "table:customers"}, AGE_OF_ITEM]))
    tables = DictTables({"customers": {(0, b"1"): {"age": 41}}, "items": {}})
    configured = of_tables(settings_of("json", id="header:ce_id"), None, key)
    configured = Settings.model_validate(configured.model_dump() | {"output": {"topic": "o", "carry": ["a"]}})
    decoder = decoder_factory.create_decoder(configured, signature, tables)
    metadata = ListedMetadata([b"0", b"1", b"1"], [0] * 3, [None] * 3, [0] * 3)
    decoded = decoder.decode([b'{"a": 1}', b'{"a": 2, "c": []}', b'{"a": 3, "c": 1}'], metadata)
    assert (decoded.rows, decoded.carried) == ([1, 2], [[2], [3]])


def test_a_version_without_its_tables_is_no_match() -> None:
    signature = signature_of(("x", "float32", ["a", AGE]))
    with pytest.raises(
        FormatMismatch, match=r"'customers.age' is joined from the table customers, and this command reads no tab"
    ):
        decoder_factory.create_decoder(of_tables(settings_of("json"), None, None), signature)
    with pytest.raises(FormatMismatch, match=r"table customers, which the configuration lacks; add tables.customers"):
        decoder_factory.create_decoder(settings_of("json"), signature, EmptyTables())
    with pytest.raises(
        FormatMismatch, match=r"tables.customers.key is the path c of events, and input.format float32 has no named"
    ):
        decoder_factory.create_decoder(
            of_tables(settings_of("float32", id="header:ce_id"), "c", None), signature, EmptyTables()
        )


def test_formats_without_names_are_joined_by_the_key_of_the_record() -> None:
    signature = signature_of(("x", "float32", ["a", AGE, {"name": "b", "default": 0}]))
    tables = DictTables({"customers": {(0, b"1"): {"age": 41}}})
    decoder = decoder_factory.create_decoder(
        of_tables(settings_of("float32", id="header:ce_id"), None, None), signature, tables
    )
    metadata = ListedMetadata([b"1", b"2"], [0, 0], [None, None], [0, 0])
    decoded = decoder.decode([np.array([1, 2], "<f4").tobytes()] * 2, metadata)
    assert decoded.tensors["x"].tolist() == [[1.0, 41.0, 2.0], [1.0, -1.0, 2.0]]


def test_lengths_that_vary_are_joined_and_compared() -> None:
    signature = varying()
    decoder = decoder_factory.create_decoder(of_tables(settings_of("json"), None, None), signature, VaryingTables())
    decoded = decoder.decode([b'{"ids": [1, 2]}', b'{"ids": [1]}'], ListedMetadata([b"a", b"b"], [0, 0], [None, None], [0, 0]))
    assert (decoded.rows, [row.tolist() for row in decoded.tensors["w"]]) == ([0], [[0.5, 0.25]])
    assert "fields 'ids' and 'items.w' have the lengths 1 and 2" in str(decoded.rejected[1])


def varying() -> Signature:
    ids = {"name": "ids", "array": True, "max_length": 4}
    weights = {"name": "items.w", "from": "table:items", "array": True, "max_length": 4}
    stated = {"shape": [-1], "axis": "n", "dtype": "float32"}
    inputs = [{"tensor": "ids", "fields": [ids], **stated}, {"tensor": "w", "fields": [weights], **stated}]
    return parse_signature(json.dumps({"inputs": inputs, "output": {"tensor": "y"}}))


class VaryingTables(DictTables):
    """Each key has the same row, with an array of two elements."""

    def __init__(self) -> None:
        super().__init__({"items": {(0, key): {"w": np.array([0.5, 0.25], np.float32)} for key in (b"a", b"b")}})


def test_a_process_without_tables_scores_nothing_with_joined_fields() -> None:
    signature = signature_of(("x", "float32", ["a", AGE]))
    decoder = decoder_factory.create_decoder(of_tables(settings_of("json"), None, None), signature, UnreadTables())
    with pytest.raises(
        Fatal, match=r"'customers.age', joined from the table customers at the time of a score, are not recoverable"
    ):
        decoder.decode([b'{"a": 1}'])
