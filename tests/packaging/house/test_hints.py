"""The pages, commands and verbs that messages of the product name exist."""

import ast
import re
from collections.abc import Iterator

import pytest
import typer

from model_registry import cli as model_registry
from publisher import cli as publisher
from scorer import cli as scorer
from tests.support.environment import ROOT

PAGE = re.compile(r"(?<![\w./-])(?:README\b(?!\.md)|[\w/-]+\.md\b)")
TYPED = re.compile(r"(?<![\w-])(scorer|publisher|model-registry) ([a-z]+)(?= (?:CONFIG|REPO|REF|DIR|--))")
PROGRAMS = {"scorer": scorer, "publisher": publisher, "model-registry": model_registry}
VERBS = {name: set(typer.main.get_command(program.app).commands) for name, program in PROGRAMS.items()}  # type: ignore[attr-defined]


def find_sentences() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each string of several words in the product's code, except docstrings."""
    for package in ("scorer", "publisher", "model_registry"):
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text())
            docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.JoinedStr):
                    text = "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)  # type: ignore[misc]
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    text = node.value
                else:
                    continue
                if id(node) not in docstrings and " " in text:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", text


@pytest.fixture(scope="module")
def sentences() -> list[tuple[str, str]]:
    """Parse the code in the process that runs these tests, not in each process that collects them."""
    return list(find_sentences())


def test_every_page_that_a_message_names_exists(sentences: list[tuple[str, str]]) -> None:
    named = [(place, page) for place, text in sentences for page in PAGE.findall(text)]
    assert len(named) > 5
    assert [(place, page) for place, page in named if not (ROOT / page).is_file()] == []


def test_every_command_that_a_message_names_exists(sentences: list[tuple[str, str]]) -> None:
    named = [(place, *command) for place, text in sentences for command in TYPED.findall(text)]
    assert len(named) > 10
    assert [command for command in named if command[2] not in VERBS[command[1]]] == []
