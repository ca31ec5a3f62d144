"""Read the commands of the runbooks (`deploy/runbooks`), and where each of them runs.

`where_commands_run.md` has the table of places: the pod or Deployment that `kubectl exec` names, and the Kafka users of the
commands there. A command without `kubectl` runs on the operator's machine.
"""

import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.environment import ROOT

PAGES = ROOT / "deploy" / "runbooks"
PLACES = PAGES / "where_commands_run.md"
MACHINE = "your machine"
"""The place, in the table of places, of commands without `kubectl exec`."""
PROGRAMS = ("scorer", "publisher", "model-registry")


@dataclass(frozen=True)
class RunbookCommand:
    """One command of a page.

    Attributes:
        page: the name of the page, without its ending.
        line: the whole command; a command over several lines is joined.
        place: the target of `kubectl exec`; `MACHINE` for a command of the product without kubectl; None for other commands.
        context: the value of kubectl's option `--context`; empty without this option.
        words: the words of the command of the product, up to a pipe; empty for other commands.
    """

    page: str
    line: str
    place: str | None
    context: str
    words: tuple[str, ...]


def lines(page: Path) -> list[str]:
    """Return the commands in the `sh` blocks of a page. A command over several lines is one command."""
    blocks = re.findall(r"^ *```sh\n(.*?)```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def commands() -> list[RunbookCommand]:
    """Return the commands of all runbooks, in the order of the pages."""
    return [parse(page.stem, line) for page in sorted(PAGES.glob("*.md")) for line in lines(page)]


def parse(page: str, line: str) -> RunbookCommand:
    """Return a command line of a page as a RunbookCommand."""
    words = shlex.split(line, comments=True)
    command = tuple(words[: words.index("|")] if "|" in words else words)
    context = words[words.index("--context") + 1] if "--context" in words else ""
    if command[0] in PROGRAMS:
        return RunbookCommand(page, line, MACHINE, context, command)
    if command[0] != "kubectl" or "exec" not in command:
        return RunbookCommand(page, line, None, context, ())
    at = command.index("exec")
    separator = command.index("--")
    target = next(word for word in command[at + 1 : separator] if not word.startswith("-"))
    if command[separator + 1] not in PROGRAMS:
        return RunbookCommand(page, line, None, context, ())
    return RunbookCommand(page, line, re.sub("^deploy/", "deployment/", target), context, command[separator + 1 :])


@cache
def users_by_place() -> dict[str, tuple[str, ...]]:
    """Return the Kafka users of each place, as the table of places has them."""
    rows = re.findall(r"^\| `?([^`|]+?)`? \| ((?:`[\w-]+`(?:, )?)+) \|", PLACES.read_text(), re.MULTILINE)
    return {place: tuple(re.findall(r"`([\w-]+)`", users)) for place, users in rows}
