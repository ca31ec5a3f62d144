"""Text for terminals: what a terminal would act on is escaped, and JSON keeps its values."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.untrusted_input.terminal_text import printable, printable_json
from tests.support.hostile_records import ESCAPES


def active(text: str) -> bool:
    return any(not character.isprintable() and character not in " \n\t" for character in text)


def test_escape_sequences_are_shown_not_acted_on() -> None:
    assert printable("a\x1b[31mb\x9bc\x7fd") == "a\\x1b[31mb\\x9bc\\x7fd"
    assert printable("zwei\tZeilen\n", lines=True) == "zwei\tZeilen\n"
    assert printable("zwei\tZeilen\n") == "zwei\\x09Zeilen\\x0a"
    assert printable("\u202ex") == "\\u202ex"
    assert printable("Zürich 東京 😀") == "Zürich 東京 😀"


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in printable(text))


@pytest.mark.parametrize("value", [ESCAPES, "\x9b2J\u202e\x7f", "Zürich"])
def test_json_keeps_its_value(value: str) -> None:
    shown = printable_json(orjson.dumps({value: value}))
    assert json.loads(shown) == {value: value}
    assert not active(shown.decode())
