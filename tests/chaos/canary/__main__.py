"""`python -m tests canary`: which version answers each key, while scorers are killed and the channel moves, on a real broker.

Several processes of `scorer run` in one group score events of many keys. The channel moves from a champion to a canary of 5 and
of 25 percent and to the same candidate alone; scorers are killed at random times and restarted. Then three counts are made:
`scorer audit`, the tests' second auditor, and a recount that shares no code with the product (`recount.py`). The exit code is
1 if one of them finds a fault.
"""

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from publisher.audit.report import FAULTS as AUDITED
from scorer.demo.broker.embedded import EmbeddedBroker
from tests.chaos.canary.plan import plan
from tests.chaos.canary.stage import Stage
from tests.chaos.command import exit_on_sigterm, talk

KILL_SECONDS = 8.0  # of load for each kill: more than a session timeout
MIN_SECONDS = 20.0  # of load
ENDS = {0, -9, -15}  # -15: asked to end before it could listen


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests canary", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--scorers", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the events, moves and kills")
    parser.add_argument("--json", action="store_true", help="the figures as one line on stdout, in place of tables")
    options = parser.parse_args(arguments)
    if options.keys < 1_000 or options.scorers < 1 or options.kills < 0:
        parser.error("--keys takes 1000 or more, --scorers 1 or more, --kills 0 or more")
    exit_on_sigterm()
    folder = Path(tempfile.mkdtemp(prefix="scorestream-canary-"))
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
    planned = plan(options.keys, options.kills, options.seed)
    events = len(planned.keys)
    rate = events / max(MIN_SECONDS, KILL_SECONDS * options.kills)
    with EmbeddedBroker(heap_mb=1_024, quick_start=False) as broker:
        stage = Stage(broker.bootstrap_servers, folder, planned, options.scorers, rate, options.seed)
        with contextlib.closing(stage):
            talk.print(f"{events:,} events of {options.keys:,} keys, {rate:,.0f} a second")
            began = time.monotonic()
            stage.play()
            seconds = time.monotonic() - began
            talk.print(f"everything is answered after {seconds:,.0f} s; counting")
            audit, second = stage.audited(), stage.rig.audit()
            recount = stage.recounted()
        exits = Counter(stage.exits)
    faults = {
        "scorer audit": {name: audit[name] for name in AUDITED if name in audit},
        "second auditor": {name: count for name, count in second.items() if name != "inputs"},
        "recount": recount["faults"],
    }
    whole = audit["events"] == audit["scored"] == second["inputs"] == events and stage.kills == options.kills
    return {
        "clean": whole and not any(sum(counts.values()) for counts in faults.values()) and set(exits) <= ENDS,
        "keys": options.keys,
        "events": events,
        "scored": audit["scored"],
        "scorers": options.scorers,
        "kills": stage.kills,
        "moves": len(recount["revisions"]) - 1,
        "seconds": round(seconds, 1),
        "longest_stall_seconds": stage.stall_seconds,
        "exits": {str(code): count for code, count in sorted(exits.items())},
        "revisions": recount["revisions"],
        "faults": faults,
    }


def _show(figures: dict[str, Any]) -> None:
    console = Console(highlight=False)
    head = Table("figure", "", title="canary campaign: " + ("clean" if figures["clean"] else "NOT CLEAN"))
    for name, value in figures.items():
        if name not in ("revisions", "faults", "clean"):
            head.add_row(name, f"{value:,}" if isinstance(value, int | float) else str(value))
    revisions = list(figures["revisions"].items())
    by_revision = Table("under revision", *(str(number) for number, _ in revisions), title="versions of the keys")
    for name in revisions[0][1]:
        by_revision.add_row(name, *(_cell(figures_of_revision[name]) for _, figures_of_revision in revisions))
    counts = Table("count", "fault", "", title="faults")
    for count, faults in figures["faults"].items():
        for name, value in faults.items():
            counts.add_row(count, name, f"{value:,}", style="bold red" if value else "")
    for table in (head, by_revision, counts):
        console.print(table)


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{reason} {count:,}" for reason, count in value.items())
    return f"{value:,}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
