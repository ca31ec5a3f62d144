"""A page of the documentation: its blocks by name, and its generated parts.

<!-- run: NAME -->        directly before a fenced block: a test runs the block.
<!-- made: NAME -->       up to <!-- end: NAME -->: `python -m tests.docs --write` writes the lines between them.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.environment import ROOT

BLOCK = re.compile(r"^ *<!-- run: (?P<name>[\w-]+) -->\n(?P<indent> *)```\w+\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    output = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in output.splitlines() if (ROOT / name).is_file()]


def blocks(page: str) -> dict[str, str]:
    """Return the named blocks of a page, in its order. Raises ValueError if two have the same name, or a name has no block."""
    texts: dict[str, str] = {}
    text = (ROOT / page).read_text()
    for match in BLOCK.finditer(text):
        if match["name"] in texts:
            raise ValueError(f"{page} has two blocks {match['name']!r}: give each its own name")
        texts[match["name"]] = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
    if missing := {
        name for name in re.findall(r"<!-- run: ([\w-]+) -->", text) if name not in texts and "`<!-- run: " not in text
    }:
        raise ValueError(f"{page}: no block follows {', '.join(sorted(missing))}")
    return texts


def lines(page: str, name: str) -> list[str]:
    """Return the lines of a named shell block without their comments; a continued line is one line."""
    text = blocks(page)[name].replace("\\\n", " ")
    return [line for raw in text.splitlines() if (line := re.sub(r"(^|\s+)# .*", "", raw).strip())]


def put(text: str, name: str, content: str) -> str:
    """Return the page's text with this content in its generated part. Raises ValueError if the page has no such part."""
    begin, end = f"<!-- made: {name} -->\n", f"<!-- end: {name} -->"
    before, opened, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (opened and closed):
        raise ValueError(f"there is no place for {name!r}: it lies between {begin!r} and {end!r}")
    return before + begin + content + end + after


def links(page: Path) -> Iterator[str]:
    """Yield the targets of a page's Markdown links and pictures that are files here, without `#...`."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not re.match(r"https?://|#", target):
            yield target.partition("#")[0]
