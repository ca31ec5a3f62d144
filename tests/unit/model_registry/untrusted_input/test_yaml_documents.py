"""The reader of YAML: plain data within limits, each key once."""

import pytest

from model_registry.untrusted_input import yaml_documents
from model_registry.untrusted_input.json_documents import UnreadableDocument

LAUGHS = "\n".join(
    [f"a0: &a0 [{', '.join(['x'] * 10)}]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9))]
)
WRONG = {
    "a: 1\na: 2": "the key 'a' is given twice, the second time in line 2",
    "{a: 1, b: {c: 1, c: 2}}": "given twice",
    "[" * 200 + "]" * 200: "more than 100 levels",
    "[" * 5_000: "more than 100 levels",
    LAUGHS: "more than 1,000,000 values",
    "a: &a [*a]": "an alias names a value that contains the alias",
    "a: 2026-13-45": "month must be in 1..12",
    "a: !!python/object/apply:os.system [x]": "could not determine a constructor",
    "a: [": "line 1",
    "? [1]\n: 2": "unhashable key",
    "\x00": "ReaderError",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_fault_is_named(text: str) -> None:
    with pytest.raises(UnreadableDocument) as raised:
        yaml_documents.load(text)
    assert WRONG[text] in str(raised.value)


def test_an_error_shows_no_line_of_the_document() -> None:
    with pytest.raises(UnreadableDocument) as raised:
        yaml_documents.load("password: [secret")
    assert "secret" not in str(raised.value)


def test_aliases_and_merged_defaults_are_read() -> None:
    text = "base: &base {a: 1, b: 2}\nmine:\n  <<: *base\n  b: 3\nlist: &list [1, 2]\nsame: *list"
    assert yaml_documents.load(text) == {"base": {"a": 1, "b": 2}, "mine": {"a": 1, "b": 3}, "list": [1, 2], "same": [1, 2]}


def test_bytes_that_are_no_text_are_unreadable() -> None:
    with pytest.raises(UnreadableDocument):
        yaml_documents.load(b"\xff\xfe\xfd")
