"""Text for terminals: control sequences are escaped, and JSON keeps its values."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.untrusted_input.terminal_text import printable, printable_json
from tests.support.hostile_records import ESCAPES


def active(text: str) -> bool:
    return any(not character.isprintable() and character not in " \n\t" for character in text)


def test_escape_sequences_are_printed_as_text() -> None:
    assert printable("a\x1b[31mb\x9bc\x7fd") == "a\\x1b[31mb\\x9bc\\x7fd"
    assert printable("zwei\tZeilen\n", lines=True) == "zwei\tZeilen\n"
    assert printable("zwei\tZeilen\n") == "zwei\\x09Zeilen\\x0a"
    assert printable("\u202ex") == "\\u202ex"
    assert printable("Zürich 東京 😀") == "Zürich 東京 😀"


@given(st.text())
def test_no_control_character_remains(text: str) -> None:
    assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in printable(text))


@pytest.mark.parametrize("value", [ESCAPES, "\x9b2J\u202e\x7f", "Zürich"])
def test_json_keeps_its_value(value: str) -> None:
    printed = printable_json(orjson.dumps({value: value}))
    assert json.loads(printed) == {value: value}
    assert not active(printed.decode())
