"""Product code, help texts, templates and pages use plain words: none of those that the style guide replaces."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.house.test_tree import tracked
from tests.support.environment import ROOT

ROOMS = ("scorer", "publisher", "model_registry", "deploy")
SUFFIXES = (".py", ".html", ".md", ".c", ".h")
WORDS = re.compile(
    r"(?<![\w`./-])(?:tells?|told|telling|hears?|heard|somebody|nobody|whoever|anew|befell|befalls|made again|in hand|"
    r"let go of|gives? back|finds? its way|bury|buried|convicts?|convicted|innocent|deeds?|tenure|sightings|is gone|are gone|"
    r"is away|are away|no more than one|any more)(?![\w`-]|\.\w)",
    re.IGNORECASE,
)
"""Whole words in prose: not in backquotes, paths or longer names."""
ALLOWED = re.compile(r"`[^`]*`|https?://\S+|no more than|tell[- ]tale")
"""Text that is removed before the search."""


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of comments, docstrings and messages of a source, or all lines of a page."""
    text = path.read_text()
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def findings(path: Path) -> list[str]:
    """Return `line: word` for each replaced word in a file."""
    return [f"{line}: {match.group()}" for line, text in prose(path) for match in WORDS.finditer(ALLOWED.sub(" ", text))]


FILES = sorted(str(path) for path in tracked() if path.suffix in SUFFIXES and (path.parts[0] in ROOMS or len(path.parts) == 1))


@pytest.mark.parametrize("name", FILES)
def test_a_file_uses_plain_words(name: str) -> None:
    assert findings(ROOT / name) == []


@pytest.mark.parametrize(
    "text", ["# Nobody is away.\n", '"""Tells whoever hears."""\n', 'raise ValueError("the broker is gone, look anew")\n']
)
def test_a_replaced_word_is_reported(text: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(text)
    assert findings(tmp_path / "module.py")


@pytest.mark.parametrize("text", ["told = 1\n", '"""See `told.py` and no more than two."""\n', 'KEY = "told"\n'])
def test_names_and_quoted_words_are_no_prose(text: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(text)
    assert findings(tmp_path / "module.py") == []
