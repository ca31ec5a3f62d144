"""Every page can be reached from the README and is short enough to read at once."""

import re
from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.test_links import NAMES
from tests.support.environment import ROOT

MAX_WORDS = 1_500


def reachable(start: Path) -> set[Path]:
    """Return the pages that links lead to from a page. A link to a folder leads to all pages in it."""
    reached, waiting = set[Path](), [start]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in pages.links(page):
            target = (page.parent / link).resolve()
            waiting.extend(target.glob("*.md") if target.is_dir() else [target] if target.suffix == ".md" else [])
    return reached


def test_every_page_is_reachable_from_the_readme() -> None:
    reached = {str(page.relative_to(ROOT)) for page in reachable(ROOT / "README.md")}
    assert [name for name in NAMES if name not in reached] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_few_words_beside_its_generated_parts(name: str) -> None:
    written = re.sub(r"<!-- made: .*?<!-- end: [\w-]+ -->", "", (ROOT / name).read_text(), flags=re.DOTALL)
    assert len(written.split()) <= MAX_WORDS
