"""The code blocks of the pages, found by name: a line `<!-- run: NAME -->` stands right before the block in the page.

A name is unique over all pages, so that a block may move to another page without a change to its test.
"""

import functools
import re
import subprocess
from pathlib import Path

from tests.support.environment import ROOT

MARK = re.compile(r"^ *<!-- run: (?P<name>\S+) -->\n", re.MULTILINE)
FENCE = re.compile(r" *```(?P<language>\w*)\n(?P<code>.*?)^ *```$", re.DOTALL | re.MULTILINE)


class NoBlock(LookupError):
    """A page names a block that is none, or a test asks for a block that no page names."""


@functools.cache
def pages() -> dict[str, str]:
    """The text of each page, by its path in the repository."""
    listed = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name: (ROOT / name).read_text() for name in filter(None, listed.split("\0")) if Path(ROOT, name).is_file()}


def named(texts: dict[str, str]) -> dict[str, str]:
    """The named blocks of these pages: name to code. Raises NoBlock for a name that stands before no block, or twice."""
    found: dict[str, str] = {}
    for page, text in texts.items():
        for mark in MARK.finditer(text):
            fence = FENCE.match(text, mark.end())
            if fence is None:
                raise NoBlock(f"{page}: no code block follows <!-- run: {mark['name']} -->")
            if mark["name"] in found:
                raise NoBlock(f"{page}: the block {mark['name']} is there already, here or in another page")
            found[mark["name"]] = fence["code"]
    return found


def block(name: str) -> str:
    """The code of a block. Raises NoBlock if no page names it."""
    blocks = named(pages())
    if name not in blocks:
        raise NoBlock(f"no page has a block <!-- run: {name} -->; there are {', '.join(sorted(blocks))}")
    return blocks[name]


def lines(name: str) -> list[str]:
    """The lines of a shell block; a line that is continued is one."""
    return joined(block(name))


def joined(code: str) -> list[str]:
    """The lines of shell code; a line that is continued is one."""
    return [line.strip() for line in code.replace("\\\n", " ").splitlines() if line.strip()]


def shell_lines(text: str) -> list[str]:
    """The lines of all shell blocks of a text, named or not."""
    return [line for fence in re.finditer(FENCE, text) if fence["language"] == "sh" for line in joined(fence["code"])]


def in_the_text(beginning: str) -> str:
    """A command in a sentence: the first code span of the pages that begins so. Raises NoBlock if there is none."""
    for text in pages().values():
        if found := re.search(rf"`({re.escape(beginning)}[^`]+)`", text):
            return found[1]
    raise NoBlock(f"no page has `{beginning}...` in a sentence")
