"""Fields of events whose values divide the hold-out: of JSON by path, of other formats by the signature."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from model_registry.package.signature import InputField, Output, Signature, TensorInput
from publisher.errors import USAGE, Fatal
from tests.unit.scorer.minimal import minimal
from tests.unit.training.hold_out import feature_record, rows
from training.snapshot.rows import LabelledRows
from training.validation_gate.slices import MAX_SLICES, MIN_ROWS, by_field, large

FIELDS = tuple(InputField(name, "float32") for name in ("a", "b"))
SIGNATURE = Signature((TensorInput("x", "float32", FIELDS),), (Output(None, "y"),))


def held_out(events: list[Any]) -> LabelledRows:
    values = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
    return rows(np.zeros(len(events)), np.arange(len(events)), values)


def test_values_of_json_events_are_read_at_their_paths() -> None:
    events = [{"carrier": "UA", "at": {"gate": 3}}, {"carrier": None}, {"carrier": "null"}, {"at": {"gate": [1]}}, b"{"]
    columns = by_field(held_out(events), minimal(), SIGNATURE, ("carrier", "at.gate"))
    assert {name: column.tolist() for name, column in columns.items()} == {
        "carrier": ["UA", "null", "null", "null", "null"],
        "at.gate": ["3", "null", "null", "[1]", "null"],
    }
    assert by_field(held_out(events), minimal(), SIGNATURE, ()) == {}


def test_values_of_formats_without_names_are_those_of_the_signature() -> None:
    unnamed_rows = replace(held_out([b"", b""]), tensors={"x": np.array([[1.0, 2.5], [3.0, 4.5]], np.float32)})
    settings = minimal(input={"format": "float32"})
    assert by_field(unnamed_rows, settings, SIGNATURE, ("b",))["b"].tolist() == ["2.5", "4.5"]
    with pytest.raises(Fatal, match=r"float32 have no field names, and the signature has no field 'carrier'") as raised:
        by_field(unnamed_rows, settings, SIGNATURE, ("carrier",))
    assert raised.value.exit_code == USAGE


def test_values_of_the_feature_log_are_the_logged_inputs() -> None:
    logged = replace(held_out([feature_record(carrier="UA", a=2.5), feature_record(carrier="AA")]), logged=True)
    columns = by_field(logged, minimal(), SIGNATURE, ("carrier", "a"))
    assert {name: column.tolist() for name, column in columns.items()} == {"carrier": ["UA", "AA"], "a": ["2.5", "null"]}


def test_a_field_that_the_feature_log_does_not_have_is_refused_with_the_remedy() -> None:
    logged = replace(held_out([feature_record(carrier="UA")]), logged=True)
    with pytest.raises(Fatal, match="no held-out event has a field 'gate'") as raised:
        by_field(logged, minimal(), SIGNATURE, ("gate",))
    assert raised.value.hint == "name a logged field in gate.slices"


def test_a_field_that_no_event_has_is_refused() -> None:
    with pytest.raises(Fatal, match="no held-out event has a field 'carier'"):
        by_field(held_out([{"carrier": "UA"}]), minimal(), SIGNATURE, ("carier",))


def test_slices_have_enough_rows_and_are_not_too_many() -> None:
    column = np.repeat(np.array(["a", "b", "c"]), [MIN_ROWS, MIN_ROWS - 1, MIN_ROWS + 1])
    assert large(column) == ["a", "c"]
    many = held_out([{"n": at % (MAX_SLICES + 1)} for at in range((MAX_SLICES + 1) * MIN_ROWS)])
    with pytest.raises(Fatal, match=f"too many values with 1,000 rows or more: 'n' has {MAX_SLICES + 1}; all fields together"):
        by_field(many, minimal(), SIGNATURE, ("n",))


def test_the_slices_of_all_fields_together_are_limited() -> None:
    half = MAX_SLICES // 2 + 1
    rows = held_out([{"m": at % half, "n": at % half} for at in range(half * MIN_ROWS)])
    assert len(by_field(rows, minimal(), SIGNATURE, ("n",))) == 1
    with pytest.raises(Fatal, match=f"'m' has {half}, 'n' has {half}; all fields together may have {MAX_SLICES}"):
        by_field(rows, minimal(), SIGNATURE, ("m", "n"))
