"""The command line that all fault campaigns share. stdout is data, stderr is talk; exit codes: 0 clean, 1 damage, 2 usage."""

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
    made = argparse.ArgumentParser(prog=f"python -m tests {name}", description=description)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--seed", type=int, default=1, help="of the first round; the next ones count up")
    made.add_argument("--only", choices=faults, help="this fault in every round")
    made.add_argument("--seconds", type=float, default=seconds, help="of load in a round, at least")
    made.add_argument("--broken", choices=broken, help="processes that are wrong on purpose")
    made.add_argument("--append", type=Path, metavar="FILE", help="a JSON line for each round")
    made.add_argument("--json", action="store_true", help="the summary as one line on stdout")
    return made


def end_as_asked() -> None:
    """SIGTERM ends the campaign as Ctrl-C does: what was started is ended."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


class Told(Generic[Outcome]):
    """The results so far, each told on stderr, and appended to a file where that is asked. `more` goes into the file."""

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
