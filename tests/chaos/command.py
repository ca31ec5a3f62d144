"""The command line of all fault campaigns. stdout has data, stderr has messages; exit codes: 0 clean, 1 damage, 2 usage."""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from rich.console import Console

from tests.chaos import result
from tests.chaos.result import Result

talk = Console(stderr=True, highlight=False, soft_wrap=True)
Outcome = TypeVar("Outcome", bound=Result)


def parser(
    name: str, description: str, faults: Sequence[str], broken: Sequence[str], seconds: float
) -> argparse.ArgumentParser:
    command_parser = argparse.ArgumentParser(prog=f"python -m tests {name}", description=description)
    command_parser.add_argument("--rounds", type=int, default=5)
    command_parser.add_argument("--seed", type=int, default=1, help="of the first round; the next ones count up")
    command_parser.add_argument("--only", choices=faults, help="this fault in every round")
    command_parser.add_argument("--seconds", type=float, default=seconds, help="of load in a round, at least")
    command_parser.add_argument("--broken", choices=broken, help="processes that are wrong on purpose")
    command_parser.add_argument("--append", type=Path, metavar="FILE", help="a JSON line for each round")
    command_parser.add_argument("--json", action="store_true", help="the summary as one line on stdout")
    return command_parser


def exit_on_sigterm() -> None:
    """Let SIGTERM end the campaign and its processes, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


class Reporter(Generic[Outcome]):
    """The results so far. Each is printed on stderr, and appended to a file if one is given. `more` is written to the file."""

    def __init__(self, append: Path | None, **more: Any) -> None:
        self.results: list[Outcome] = []
        self._append = append
        self._more = more

    def __call__(self, played: Outcome) -> None:
        self.results.append(played)
        talk.print(result.line(played), markup=False)
        if self._append:
            with self._append.open("a") as file:
                file.write(json.dumps({**self._more, **played.to_dict()}) + "\n")


def print_summary(summary: dict[str, Any], as_json: bool) -> int:
    print(json.dumps(summary, indent=None if as_json else 2))
    return 0 if summary["clean"] else 1
