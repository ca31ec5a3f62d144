"""The rows of a table: look-ups agree with a dict model after any sequence of updates, removals, builds and compactions."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_registry.package.signature import InputField
from publisher.runtime.dependency_wait import DependencyUnavailable
from scorer.decoding.table_rows import row_decoder_factory
from scorer.tables.lookup import JoinedColumns
from scorer.tables.row_arena import RowArena
from scorer.tables.row_blocks import BlockLayout, DecodedRows
from scorer.tables.row_store import SLICE_ROWS, RowStore, TableRecords
from tests.unit.scorer.minimal import minimal
from tests.unit.scorer.tables.test_key_index import column

SETTINGS = minimal(tables={"t": {"topic": "features"}})


def joined_field(name: str, dtype: str, **options: Any) -> InputField:
    return InputField(f"t.{name}", dtype, source="table:t", **options)


AGE = joined_field("age", "float32", required=False, default=-1.0)
SIZE = joined_field("size", "float32")
NAME = joined_field("name", "string", required=False, default="?")
TAGS = joined_field("tags", "int64", required=False, array=3, shape=(-1,))
PAIR = joined_field("pair", "float64", required=False, default=0.5, array=2)
NESTED = joined_field("city", "string", required=False, default="", path=("home", "city"))
NUMBERS = (AGE, SIZE)
EVERY_FIELD = (AGE, SIZE, NAME, TAGS, PAIR, NESTED)


def store(create_decoder: Any = None, **options: Any) -> RowStore:
    return RowStore(create_decoder or row_decoder_factory("t", SETTINGS), **{"by_partition": True} | options)


def records(rows: Sequence[tuple[bytes, bytes | None]], partition: int = 0, *, as_column: bool = False) -> TableRecords:
    keys: Any = [key for key, _ in rows]
    values: Any = [value for _, value in rows]
    removed = np.array([value is None for _, value in rows], np.bool_)
    if as_column:
        keys = column(keys)
        values = column(values)
    return TableRecords(np.full(len(rows), partition, np.int32), np.arange(len(rows)), keys, values, removed)


def row(**values: Any) -> bytes:
    return json.dumps(values).encode()


def build_columns(rows: RowStore, fields: tuple[InputField, ...]) -> RowStore:
    rows.request(fields)
    while rows.build():
        pass
    return rows


def fields_of_event(joined: JoinedColumns, at: int) -> dict[str, Any]:
    """Return the fields of one event, for comparisons."""
    values = {name: tensor[at].tolist() for name, tensor in joined.tensors.items()}
    return values | {f"{name} is missing": bool(column[at]) for name, column in joined.missing.items()}


def expected(fields: tuple[InputField, ...], value: bytes | None) -> tuple[bool, dict[str, Any]]:
    """Return whether a row is found, and its fields, as a plain reader of JSON sees the row."""
    document: dict[str, Any] = {}
    has_row = value is not None and value != b"{"
    if has_row:
        document = json.loads(value or b"")
    columns: dict[str, Any] = {}
    for field in fields:
        stored = document.get("home", {}).get("city") if field is NESTED else document.get(field.name[2:])
        default: Any = [] if field is TAGS else [field.default] * (field.array or 1)
        if field is SIZE:
            columns["t.size is missing"] = stored is None
            default = [0.0]
        columns[field.name] = default if stored is None else stored if isinstance(stored, list) else [stored]
    return has_row, columns


keys = st.sampled_from([b"", b"a", b"b", b"c", b"key\xff", b"d" * 40])
documents = st.fixed_dictionaries(
    {},
    optional={
        "age": st.integers(0, 99).map(float),
        "size": st.integers(0, 99).map(float),
        "name": st.sampled_from(["x", "long text", ""]),
        "tags": st.lists(st.integers(-5, 5), max_size=3),
        "pair": st.just([1.5, 2.5]),
        "home": st.just({"city": "Bern"}),
        "other": st.just("y" * 50),
    },
).map(lambda document: json.dumps(document).encode())
values = st.one_of(st.none(), documents, documents, st.just(b"{"))
batches = st.tuples(st.just("apply"), st.integers(0, 2), st.lists(st.tuples(keys, values), max_size=8), st.booleans())
other_operations = st.sampled_from(
    [("drop", 0), ("drop", 1), ("compact",), ("request", NUMBERS), ("request", EVERY_FIELD), ("build",)]
)


class Model:
    """The rows of a table as dicts."""

    def __init__(self, *, by_partition: bool) -> None:
        self.by_partition = by_partition
        self.rows: dict[tuple[int, bytes], tuple[int, bytes]] = {}  # (space, key): (partition, value)

    def space(self, partition: int) -> int:
        return partition if self.by_partition else 0

    def apply(self, rows: list[tuple[bytes, bytes | None]], partition: int) -> None:
        for key, value in rows:
            self.rows.pop((self.space(partition), key), None)
            if value is not None:
                self.rows[self.space(partition), key] = partition, value

    def drop(self, partition: int) -> None:
        self.rows = {key: entry for key, entry in self.rows.items() if entry[0] != partition}

    def get(self, key: bytes | None, partition: int) -> bytes | None:
        return self.rows.get((self.space(partition), key or b""), (0, None))[1] if key is not None else None


@pytest.mark.parametrize("by_partition", [True, False])
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.one_of(batches, batches, other_operations), max_size=12), segment_bytes=st.sampled_from([40, 100_000]))
def test_look_ups_see_the_rows_of_a_model(by_partition: bool, steps: list[tuple[Any, ...]], segment_bytes: int) -> None:
    rows = store(by_partition=by_partition, arena=RowArena(segment_bytes))
    model = Model(by_partition=by_partition)
    for step in steps:
        match step:
            case "apply", partition, batch, as_column:
                rows.apply(records(batch, partition, as_column=as_column))
                model.apply(batch, partition)
            case "drop", partition:
                rows.drop(partition)
                model.drop(partition)
            case ("compact",):
                rows.compact(always=True)
            case "request", fields:
                rows.request(fields)
            case ("build",):
                rows.build()
    event_keys: list[bytes | None] = [b"", b"a", b"b", b"c", b"key\xff", b"d" * 40, None, b"absent"]
    events = [(key, partition) for key in event_keys for partition in range(3)]
    partitions = np.array([partition for _, partition in events], np.int32)
    for fields in (NUMBERS, EVERY_FIELD):
        joined, with_row = rows.columns(fields, [key for key, _ in events], partitions)
        stored = [model.get(*event) for event in events]
        assert with_row == sum(value is not None for value in stored)
        for at, value in enumerate(stored):
            assert (bool(joined.found[at]), fields_of_event(joined, at)) == expected(fields, value)
    assert len(rows) == len(model.rows)
    assert [rows.count(partition) for partition in range(3)] == [
        sum(entry[0] == partition for entry in model.rows.values()) for partition in range(3)
    ]
    assert [rows.get(key, partition) for key, partition in events if key is not None] == [
        model.get(*event) for event in events if event[0] is not None
    ]


def test_columns_are_built_of_rows_that_were_read_before_and_later() -> None:
    rows = store()
    rows.apply(records([(b"%d" % number, row(size=number)) for number in range(2_500)]))
    rows.request((SIZE,))
    rows.build()
    rows.apply(records([(b"1", row(size=-1)), (b"2400", row(size=-2)), (b"new", row(size=-3))]))
    assert not rows.is_built((SIZE,))
    while rows.build():
        pass
    joined, _ = rows.columns((SIZE,), [b"1", b"2", b"2400", b"2499", b"new"], 0)
    assert joined.tensors["t.size"].tolist() == [[-1], [2], [-2], [2499], [-3]]
    assert rows.is_built((SIZE,))


def test_columns_are_built_while_a_restore_appends_rows_faster_than_they_are_built() -> None:
    slices = [range(start, start + SLICE_ROWS) for start in range(0, 6 * SLICE_ROWS, SLICE_ROWS)]
    batches_of_rows = [records([(b"%d" % number, row(size=number)) for number in numbers]) for numbers in slices]
    rows = store()
    for part in range(0, 6, 2):
        rows.apply(batches_of_rows[part])
        rows.apply(batches_of_rows[part + 1])
        rows.request((SIZE,))
        rows.build()
    assert rows.is_built((SIZE,))
    expected_sizes = [0, SLICE_ROWS, 2 * SLICE_ROWS, 6 * SLICE_ROWS - 1]
    joined, _ = rows.columns((SIZE,), [b"%d" % number for number in expected_sizes], 0)
    assert joined.tensors["t.size"].ravel().tolist() == expected_sizes


def test_a_look_up_of_other_fields_decodes_the_rows_and_requests_their_columns() -> None:
    rows = store()
    rows.apply(records([(b"a", row(size=3))]))
    joined, _ = rows.columns((SIZE,), [b"a", b"b"], 0)
    assert (joined.found.tolist(), joined.missing["t.size"].tolist()) == ([True, False], [False, True])
    rows.build()
    assert rows.is_built((SIZE,))
    assert rows.columns((SIZE,), [b"a"], 0)[0].tensors["t.size"].tolist() == [[3]]
    assert rows.decodes_raw == 1


@pytest.mark.parametrize("fields", [(SIZE,), NUMBERS, EVERY_FIELD], ids=["one number", "numbers", "every kind"])
def test_columns_that_are_built_after_updates_have_the_newest_values(fields: tuple[InputField, ...]) -> None:
    rows = store()
    for key, size in ((b"a", 1), (b"b", 2), (b"c", 3), (b"d", 4), (b"b", 5)):
        rows.apply(records([(key, row(size=size))], as_column=True))  # an updated row lies behind the later rows
    build_columns(rows, fields)
    joined, _ = rows.columns(fields, [b"a", b"b", b"c", b"d"], 0)
    assert joined.tensors["t.size"].tolist() == [[1], [5], [3], [4]]


def test_each_row_that_cannot_be_decoded_is_reported_with_its_position() -> None:
    errors: list[tuple[Any, ...]] = []
    rows = build_columns(build_columns(store(on_rejected=lambda *error: errors.append(error)), (AGE,)), (AGE, NAME))
    rows.apply(records([(b"a", row(age=1)), (b"b", b"{"), (b"c", row(age="x")), (b"d", b"[]"), (b"e", None)], 7))
    assert [(reason, partition, offset) for reason, _, partition, offset in errors] == [
        ("malformed", 7, 1),
        ("wrong-type", 7, 2),
        ("wrong-type", 7, 3),
    ]


def test_a_row_that_does_not_fit_one_version_is_joined_with_another() -> None:
    rows = build_columns(build_columns(store(), (AGE,)), (NAME,))
    rows.apply(records([(b"a", row(age="old", name="x"))]))
    assert rows.columns((AGE,), [b"a"], 0)[0].found.tolist() == [False]
    assert rows.columns((NAME,), [b"a"], 0)[0].tensors["t.name"].tolist() == [["x"]]


def test_a_row_without_a_required_field_keeps_its_other_fields() -> None:
    rows = build_columns(store(), EVERY_FIELD)
    rows.apply(records([(b"a", row(age=4, size=None)), (b"b", row(age=5, size=6))]))
    joined, _ = rows.columns(EVERY_FIELD, [b"a", b"b"], 0)
    assert joined.tensors["t.age"].tolist() == [[4], [5]]
    assert (joined.found.tolist(), joined.missing["t.size"].tolist()) == ([True, True], [True, False])


def test_a_default_that_is_nan_stays_nan() -> None:
    missing_number = joined_field("age", "float32", required=False, default=math.nan)
    rows = build_columns(store(), (missing_number,))
    rows.apply(records([(b"a", row()), (b"b", row(age=None))]))
    joined, _ = rows.columns((missing_number,), [b"a", b"b", b"c"], 0)
    assert np.isnan(joined.tensors["t.age"]).all()


def test_records_of_several_partitions_are_applied_at_once() -> None:
    rows = build_columns(store(), NUMBERS)
    batch = records([(b"a", row(size=1)), (b"a", row(size=2)), (b"b", row(size=3)), (b"a", None)])
    rows.apply(replace(batch, partitions=np.array([0, 1, 0, 0], np.int32)))
    joined, _ = rows.columns(NUMBERS, [b"a", b"a", b"b"], np.array([0, 1, 0], np.int32))
    assert joined.found.tolist() == [False, True, True]
    assert (rows.count(0), rows.count(1)) == (1, 1)


def test_results_of_a_look_up_do_not_change_with_later_rows() -> None:
    rows = build_columns(store(), NUMBERS)
    rows.apply(records([(b"a", row(age=1, size=1))]))
    joined, _ = rows.columns(NUMBERS, [b"a"], 0)
    rows.apply(records([(b"a", row(age=2, size=2))]))
    assert joined.tensors["t.age"].tolist() == [[1]]


def test_columns_that_are_built_while_another_thread_requests_them_keep_their_updates() -> None:
    requests: list[tuple[InputField, ...]] = []

    def create_decoder(layout: BlockLayout) -> Any:
        if requests:  # another thread requests the same fields during the creation, and the writer builds them
            build_columns(rows, requests.pop())
        return row_decoder_factory("t", SETTINGS)(layout)

    rows = store(create_decoder)
    rows.apply(records([(b"%d" % number, row(size=1)) for number in range(2_500)]))
    requests.append((SIZE,))
    rows.request((SIZE,))
    rows.apply(records([(b"2400", row(size=2))]))
    joined, _ = rows.columns((SIZE,), [b"2400"], 0)
    assert joined.tensors["t.size"].tolist() == [[2]]


class FailingDecoder:
    """A decoder that fails once, as if the schema registry were unavailable."""

    def __init__(self, layout: BlockLayout) -> None:
        self._decoder = row_decoder_factory("t", SETTINGS)(layout)
        self._fails = True

    def decode(self, values: Any) -> DecodedRows:
        if self._fails:
            self._fails = False
            raise DependencyUnavailable("schema-registry", "no answer")
        return self._decoder.decode(values)


def test_records_whose_schema_is_not_known_yet_are_applied_at_the_next_try() -> None:
    rows = build_columns(store(create_decoder=FailingDecoder), NUMBERS)
    batch = records([(b"a", row(age=1, size=1))])
    with pytest.raises(DependencyUnavailable):
        rows.apply(batch)
    assert len(rows) == 0
    rows.apply(batch)
    assert rows.columns(NUMBERS, [b"a"], 0)[0].tensors["t.age"].tolist() == [[1]]


def test_the_memory_of_replaced_rows_is_freed() -> None:
    rows = store()
    batch = [(b"%d" % number, bytes(1_000)) for number in range(1_000)]
    for _ in range(60):
        rows.apply(records(batch))
        rows.compact()
    assert rows.nbytes < 14 * 1_000 * 1_000
    assert rows.get(b"999", 0) == bytes(1_000)


def test_the_memory_of_several_array_fields_is_counted() -> None:
    first_field, second_field = (
        joined_field(name, "int64", required=False, array=500, shape=(-1,)) for name in ("tags", "others")
    )
    rows = build_columns(store(), (first_field, second_field))
    numbers = list(range(500))
    rows.apply(records([(b"%d" % number, row(tags=numbers, others=numbers)) for number in range(100)]))
    assert rows.nbytes > 100 * 2 * 500 * 8 + 4_194_304  # the arrays, and a segment of raw bytes


def test_columns_that_only_an_earlier_version_used_are_forgotten() -> None:
    rows = build_columns(store(unused_seconds=0.0), (AGE,))
    build_columns(rows, (NAME,))
    assert (rows.is_built((AGE,)), rows.is_built((NAME,))) == (False, True)


def test_a_row_of_ten_megabytes_is_stored_and_joined() -> None:
    rows = build_columns(store(), NUMBERS)
    rows.apply(records([(b"a", row(age=1, size=2, other="z" * 10_000_000)), (b"b", row(size=3))]))
    joined, _ = rows.columns(NUMBERS, [b"a", b"b"], 0)
    assert joined.tensors["t.size"].tolist() == [[2], [3]]
