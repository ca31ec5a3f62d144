"""`tables`: names, keys and topics of tables."""

from typing import Any

import pytest

from publisher.runtime.configuration import SettingsError
from scorer.settings import load
from tests.unit.scorer.minimal import STATED, minimal

CUSTOMERS = {"topic": "customers.features"}


def settings_error(**changes: Any) -> str:
    with pytest.raises(SettingsError) as error:
        load({**STATED, **changes})
    return str(error.value)


def test_a_scorer_has_no_tables_by_default() -> None:
    assert minimal().tables == {}


def test_a_table_needs_only_its_topic() -> None:
    table = minimal(tables={"customers": CUSTOMERS}).tables["customers"]
    assert (table.format, table.key, table.scope, table.when_behind) == ("json", None, "partition", "score")


def test_the_path_of_the_key_is_written_in_one_form() -> None:
    assert minimal(tables={"customers": {**CUSTOMERS, "key": '"after".id'}}).tables["customers"].key == "after.id"


@pytest.mark.parametrize("name", ["a.b", "1a", "", "a b"])
def test_the_name_of_a_table_has_no_dot_and_begins_with_a_letter(name: str) -> None:
    assert "tables" in settings_error(tables={name: CUSTOMERS})


@pytest.mark.parametrize(
    ("topic", "other_key"), [("in", "input.topics[0]"), ("out", "output.topic"), ("n.status", "name (its status topic)")]
)
def test_the_topic_of_a_table_has_no_second_use(topic: str, other_key: str) -> None:
    assert f"{other_key} and tables.customers.topic are the same topic" in settings_error(
        tables={"customers": {"topic": topic}}
    )


def test_two_tables_have_two_topics() -> None:
    assert "tables.a.topic and tables.b.topic are the same topic" in settings_error(tables={"a": CUSTOMERS, "b": CUSTOMERS})


def test_a_format_with_schemas_needs_a_schema_registry() -> None:
    assert "set schema_registry.url" in settings_error(tables={"customers": {**CUSTOMERS, "format": "avro"}})
