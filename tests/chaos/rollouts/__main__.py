"""`python -m tests rollouts`: rollouts under `kill -9`, on a real broker.

Whole rollouts of good, bad and failing candidates, aborted and overtaken ones, run one after another, while scorers, the shadow
and two controllers are killed at random times (`rounds.py`). A controller is killed at each step of a move, and another takes
over (`kills.py`). The time of rollbacks is measured (`back.py`). The exit code is 1 if a limit is exceeded or a count is not
zero.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scorer.demo.broker.embedded import EmbeddedBroker
from tests.chaos.command import exit_on_sigterm, talk
from tests.chaos.rollouts import back, kills, rounds
from tests.chaos.rollouts.plan import deaths
from tests.chaos.rollouts.plan import rounds as planned

ROUNDS, KILLS, BACK = PARTS = ("rounds", "kills", "back")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests rollouts", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=50, help="whole rollouts under kills")
    parser.add_argument("--kills", type=int, default=50, help="of a controller, at each of six points")
    parser.add_argument("--rollbacks", type=int, default=60, help="the number of measured rollbacks")
    parser.add_argument("--lanes", type=int, default=2, help="rounds at once, each on its own channel; kills: twice as many")
    parser.add_argument("--seed", type=int, default=1, help="of the rounds and kills")
    parser.add_argument("--only", choices=PARTS, help="this part alone")
    parser.add_argument("--json", action="store_true", help="the figures as one line on stdout, in place of tables")
    options = parser.parse_args(arguments)
    if min(options.rounds, options.kills, options.rollbacks, options.lanes) < 1:
        parser.error("--rounds, --kills, --rollbacks and --lanes take 1 or more")
    exit_on_sigterm()
    folder = Path(tempfile.mkdtemp(prefix="scorestream-rollouts-"))
    figures = _figures(options, folder)
    if figures["clean"]:
        shutil.rmtree(folder)
    else:
        talk.print(f"not clean; logs in {folder}", markup=False)
    if options.json:
        print(json.dumps(figures))
    else:
        _show(figures)
    return 0 if figures["clean"] else 1


def _figures(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    lanes, seed = options.lanes, options.seed
    parts: dict[str, Callable[[str], dict[str, Any]]] = {
        ROUNDS: lambda servers: rounds.campaign(servers, folder, planned(options.rounds, seed), seed, lanes),
        KILLS: lambda servers: kills.campaign(servers, folder, deaths(options.kills, seed), 2 * lanes),
        BACK: lambda servers: back.campaign(servers, folder, options.rollbacks),
    }
    results: dict[str, dict[str, Any]] = {}
    for name, play in parts.items():
        if options.only in (None, name):
            talk.print(f"{name}:")
            with EmbeddedBroker(heap_mb=1_024, quick_start=False) as broker:
                results[name] = play(broker.bootstrap_servers)
    missed = [f"{name}: {miss}" for name, part in results.items() for miss in _missed(name, part)]
    return {"clean": not missed, "missed": missed, **results}


def _missed(name: str, part: Mapping[str, Any]) -> list[str]:
    """Return a line for each exceeded limit and each count that is not zero."""
    bars = {KILLS: {"take_over_seconds": kills.BAR_SECONDS}, BACK: back.BARS}.get(name, {})
    missed = [
        f"{name_of_figure}: {figure} {part[name_of_figure][figure]} s, the bar is {bar} s"
        for name_of_figure, bar in bars.items()
        for figure in ("max" if name == KILLS else "p99",)
        if part[name_of_figure][figure] is None or part[name_of_figure][figure] > bar
    ]
    return missed + [
        f"{count}: {fault} {number}" for count, faults in part["faults"].items() for fault, number in faults.items() if number
    ]


def _show(figures: Mapping[str, Any]) -> None:
    console = Console(highlight=False)
    console.print("rollouts campaign: " + ("clean" if figures["clean"] else "NOT CLEAN"))
    for line in figures["missed"]:
        console.print(line, markup=False, style="bold red")
    for name in PARTS:
        if name in figures:
            table = Table("figure", "", title=name)
            for figure, value in figures[name].items():
                text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else f"{value:,}"
                table.add_row(figure, text)
            console.print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
