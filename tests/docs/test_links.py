"""The files, sections and named blocks to which pages and the hints of programs point exist."""

import re
from pathlib import Path

import pytest

from tests.docs import pages
from tests.support.environment import ROOT

NAMES = [str(page.relative_to(ROOT)) for page in pages.pages()]
PACKAGES = ("scorer", "publisher", "model_registry")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub generates them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", NAMES)
def test_the_targets_of_links_exist(name: str) -> None:
    page = ROOT / name
    assert [link for link in pages.links(page) if not (page.parent / link).exists()] == []
    for target, anchor in re.findall(r"\]\(([^)\s#:]*\.md)#([^)\s]+)\)", page.read_text()):
        assert anchor in anchors(page.parent / target), f"{target}#{anchor}"
    assert [anchor for anchor in re.findall(r"\]\(#([^)\s]+)\)", page.read_text()) if anchor not in anchors(page)] == []


@pytest.mark.parametrize("name", NAMES)
def test_modules_and_folders_that_pages_name_exist(name: str) -> None:
    """The test checks paths in backquotes that begin with one of our folders."""
    text = (ROOT / name).read_text()
    named = re.findall(r"`((?:scorer|publisher|model_registry|deploy|tests)/[\w./-]+)`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", NAMES)
def test_commands_of_the_tests_exist(name: str) -> None:
    for module in re.findall(r"python3? -m (tests(?:\.\w+)+)", (ROOT / name).read_text()):
        path = ROOT.joinpath(*module.split("."))
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


def test_every_page_that_the_sources_name_exists() -> None:
    named = {
        (str(source.relative_to(ROOT)), page)
        for package in PACKAGES
        for source in (ROOT / package).rglob("*.py")
        for page in re.findall(r"(?<![\w./-])([\w-]+/[\w./-]+\.md)\b", source.read_text())
    }
    assert [(source, page) for source, page in sorted(named) if not (ROOT / page).exists()] == []


def test_hints_name_a_page_by_its_path() -> None:
    """A person who reads "the README" would have to guess which."""
    vague = re.compile(r"\b(?:the|see) README(?:\.md)?\b")
    assert [
        f"{source.relative_to(ROOT)}: {line.strip()}"
        for package in (*PACKAGES, "deploy")
        for source in (ROOT / package).rglob("*.py")
        for line in source.read_text().splitlines()
        if vague.search(line)
    ] == []
