"""The valid settings of `output.carry`, and the values that are carried."""

import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.runtime.configuration import SettingsError
from scorer.settings import Settings, load
from scorer.settings.carry import LONGEST, MAX_LONG, MAX_WHOLE, MIN_LONG, TYPES, CarriedField

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
anything = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=4)


def configured(carry: Any, output: str = "json", input_format: str = "json") -> Settings:
    values = {
        "name": "test",
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "input": {"topics": ["t"], "format": input_format},
        "output": {"topic": "o", "format": output, "carry": carry},
        "model": {"source": "oci:./r"},
    }
    return load(values).settings


def field(type_: str | None) -> CarriedField:
    return CarriedField(("f",), "f", type_)


def test_a_path_is_the_name_unless_another_is_configured() -> None:
    carry = ["amount", '"a.b"', "items[0].price", {"path": "after.id", "as": "customer", "type": "string"}]
    loaded_settings = configured(carry)
    assert [(carried_field.path, carried_field.name, carried_field.type) for carried_field in loaded_settings.output.carry] == [
        (("amount",), "amount", None),
        (("a.b",), "a.b", None),
        (("items", 0, "price"), "items[0].price", None),
        (("after", "id"), "customer", "string"),
    ]
    assert Settings.model_validate(loaded_settings.model_dump()) == loaded_settings


@pytest.mark.parametrize(
    ("carry", "message"),
    [
        (["x..y"], "output.carry.0: 'x..y': Value error, 'x..y' is not a valid path: an error at character 2"),
        (["[0].x"], "the path '[0].x' must begin with a name, because an event is an object"),
        ([3], "this is not a carried field; write its path, or {path: after.id, as: customer, type: string}"),
        ([{"path": "x", "typ": "long"}], "'typ' is not a key of a carried field"),
        ([{"path": "x", "type": "float"}], "type 'float' is not one of string, long, double, boolean"),
        ([{"path": "x", "as": ""}], "'' is not a name; give one of 1 to 200 printable characters with `as`"),
        ([{"path": "x", "as": "\ud800"}], "is not a name"),
        ([r'"\ud800"'], "is not a valid quoted name"),
        (
            ["a", {"path": "b", "as": "a"}],
            "output.carry (built in): Value error, 'b' has the same name as 'a'; give another name with `as`",
        ),
        ([f"f{number}" for number in range(33)], "at most 32 items"),
    ],
)
def test_invalid_carried_field_is_rejected(carry: Any, message: str) -> None:
    with pytest.raises(SettingsError) as error:
        configured(carry)
    assert message in str(error.value)


@pytest.mark.parametrize("output", ["avro", "protobuf"])
@pytest.mark.parametrize(
    ("carry", "message"),
    [
        (["amount"], "'amount' has no type, which {} needs; give one of string, long, double, boolean with `type`"),
        ([{"path": "after.id", "type": "long"}], "'after.id' is not a field name in {}; give one of letters, digits and _"),
        (
            [{"path": "a_b", "type": "long"}, {"path": "aB", "type": "long"}],
            "'aB' has the same name as 'a_b', except for case and underscores",
        ),
    ],
)
def test_typed_record_needs_type_and_field_name(output: str, carry: Any, message: str) -> None:
    with pytest.raises(SettingsError) as error:
        configured(carry, output)
    assert message.format(output) in str(error.value)


@pytest.mark.parametrize("format_", ["json-array", "json-envelope", "float32"])
def test_format_without_paths_rejects_carry(format_: str) -> None:
    with pytest.raises(SettingsError) as error:
        configured(["a"], input_format=format_)
    assert f"output.carry takes fields from json, avro and protobuf events, and input.format is {format_}" in str(error.value)


@given(value=anything, type_=st.sampled_from([None, *TYPES]))
def test_a_carried_value_is_a_scalar_that_every_format_can_write(value: Any, type_: str | None) -> None:
    carried_value = field(type_).fitted(value)
    kinds = {"string": str, "long": int, "double": float, "boolean": bool, None: (str, int, float, bool)}
    if carried_value is not None:
        assert isinstance(carried_value, kinds[type_])  # type: ignore[arg-type]
        assert type_ is None or (type_ == "boolean") == isinstance(carried_value, bool)
        assert carried_value == value or (type_ == "double" and carried_value == float(value))
    assert orjson.loads(orjson.dumps(carried_value)) == carried_value


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        ("x" * LONGEST, None, "x" * LONGEST),
        ("x" * (LONGEST + 1), None, None),
        ("é" * (LONGEST // 2 + 1), "string", None),
        ("\ud800", None, None),
        (math.nan, None, None),
        (math.inf, "double", None),
        (MAX_LONG, "long", MAX_LONG),
        (MAX_LONG + 1, "long", None),
        (float(MAX_LONG), "long", None),
        (MIN_LONG - 1, None, None),
        (MAX_WHOLE, None, MAX_WHOLE),
        (MAX_WHOLE + 1, None, None),
        (10**400, "double", None),
        (3, "double", 3.0),
        (3.0, "long", 3),
        (3.5, "long", None),
        (True, "long", None),
        (1, "boolean", None),
        ("3", "long", None),
        (3, "string", None),
        (b"x", None, None),
        ([1], None, None),
        ({"a": 1}, None, None),
    ],
)
def test_values_at_the_limits(value: Any, type_: str | None, expected: Any) -> None:
    carried_value = field(type_).fitted(value)
    assert (carried_value, type(carried_value)) == (expected, type(expected))
