"""The texts that pages of operation quote, such as log messages and panel titles, occur in the product."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.environment import ROOT

DEPLOY = ROOT / "deploy"
PAGES = (
    *sorted((DEPLOY / "runbooks").glob("*.md")),
    *(DEPLOY / name for name in ("alerts.md", "capacity.md", "operate.md", "upgrades.md")),
    ROOT / "model_registry" / "docs" / "backup-and-move.md",
    ROOT / "scorer" / "docs" / "logs.md",
)
SOURCES = (ROOT / "model_registry", ROOT / "publisher", ROOT / "scorer", DEPLOY / "dashboards")
OTHER_PROGRAMS = {"generation": "librdkafka", "Insufficient nvidia.com/gpu": "Kubernetes"}
"""Quoted texts of other programs, with the program."""


@cache
def product_texts() -> str:
    """Return the string literals of the product, with normalized white space, one per line. Docstrings are left out."""
    texts: list[str] = []
    for folder in SOURCES:
        for path in sorted(folder.rglob("*.py")):
            texts.extend(_literals(ast.parse(path.read_text())))
    return "\n".join(" ".join(text.split()) for text in texts)


def _literals(tree: ast.Module) -> list[str]:
    nodes = list(ast.walk(tree))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]


def quoted(page: str) -> list[str]:
    """Return the texts in double quotes and the first cells of tables of messages, without code blocks and generated parts."""
    page = re.sub(r"<!-- made: .*?<!-- end: [\w-]+ -->", "", page, flags=re.DOTALL)
    page = re.sub(r"^ *```.*?^ *```$", "", page, flags=re.DOTALL | re.MULTILINE)
    tables = re.findall(r"^\| message \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    cells = [cell for table in tables for cell in re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)]
    return [" ".join(text.split()) for text in [*re.findall(r'"([^"]+)"', re.sub(r"`[^`]*`", "", page)), *cells]]


def fragments(text: str) -> list[str]:
    """Return the constant parts of a quoted text: `...` and numbers represent values."""
    return [part.strip() for part in re.split(r"\.\.\.|\d+", text) if part.strip()]


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ('The log has "no broker\nanswers", and `a "code" span`.', ["no broker answers"]),
        ('```sh\nscorer rollback --reason "x"\n```\n', []),
        (
            "| message | remedy |\n|---|---|\n| `is newer in` | copy |\n\n| code | meaning |\n|---|---|\n| `1` | x |\n",
            ["is newer in"],
        ),
    ],
)
def test_quotes_and_tables_of_messages_are_quoted_texts(page: str, texts: list[str]) -> None:
    assert quoted(page) == texts


def test_numbers_and_ellipses_represent_values() -> None:
    assert fragments("worker 0 ended with code ...: it hung") == ["worker", "ended with code", ": it hung"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_quoted_texts_occur_in_the_product(page: Path) -> None:
    texts = [text for text in quoted(page.read_text()) if text not in OTHER_PROGRAMS]
    assert [text for text in texts if not all(part in product_texts() for part in fragments(text))] == []


def test_texts_of_other_programs_are_quoted() -> None:
    assert set(OTHER_PROGRAMS) <= {text for page in PAGES for text in quoted(page.read_text())}
