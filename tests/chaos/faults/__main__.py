"""`python -m tests faults`: the fault campaign. See `command.py`.

Each round is decided by its seed alone: `--seed` of a printed line and `--rounds 1` (with the same `--brokers`, `--seconds` and
`--only`) play that round again.
"""

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Sequence

from tests.chaos.command import Told, end_as_asked, parser, print_summary, talk
from tests.chaos.faults import matrix, soak
from tests.chaos.faults.plan import FAULTS, plan, possible_faults
from tests.chaos.faults.rounds import drain_rate, play
from tests.chaos.faults.stage import Ground, ScorerResult
from tests.chaos.result import summary


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    missing = _missing(options.brokers)
    if options.tables:
        missing["add-partitions"] = "the table must have as many partitions as the input topic"
        missing["clock"] = "the age of a joined row is measured by the clock of the scorer"
    for fault, why in missing.items():
        talk.print(f"NOT RUN {fault}: {why}", markup=False)
    if options.only in missing:
        return 2
    end_as_asked()
    told: Told[ScorerResult] = Told(options.append, brokers=options.brokers)
    small_disk = "disk-full" not in missing and not options.soak
    with contextlib.closing(Ground(options.brokers, disk_full=small_disk, tables=options.tables)) as ground:
        ground.start()
        rate = options.rate or drain_rate(ground) / 2
        talk.print(f"{options.brokers} broker(s) up, {rate:,.0f} events/s")
        slopes = []
        if options.soak:
            slopes = soak.run(ground, options.seed, options.soak * 60, rate, told)
        elif options.matrix:
            matrix.run(ground, options.seed, rate, told)
        else:
            _rounds(ground, options, list(missing), rate, told)
    more = {"brokers": options.brokers, "events": sum(result.events for result in told.results), "not_run": list(missing)}
    figures = summary(told.results, ScorerResult.COUNTED, **more, events_per_second=round(rate))
    return print_summary(figures | ({"processes": slopes} if options.soak else {}), options.json)


def _rounds(ground: Ground, options: argparse.Namespace, missing: list[str], rate: float, told: Told[ScorerResult]) -> None:
    possible = possible_faults(options.brokers, missing)
    for number in range(options.rounds):
        played = plan(number + 1, options.seed + number, possible, options.brokers, options.seconds, options.only)
        told(play(ground, played, rate, options.broken))


def _missing(brokers: int) -> dict[str, str]:
    """Faults that cannot be played here, and why."""
    found = {}
    if brokers == 1:
        found["move-coordinator"] = "needs --brokers 3"
    if brokers == 3:
        found["disk-full"] = "needs --brokers 1"
    elif os.geteuid() != 0:
        found["disk-full"] = "needs root, to mount a small tmpfs"
    if shutil.which("cc") is None:
        found["clock"] = "needs a C compiler: apt-get install -y --no-install-recommends gcc libc6-dev"
    return found


def _parser() -> argparse.ArgumentParser:
    made = parser("faults", "Real brokers, real faults, and the count.", FAULTS, ("no-rotation", "late-metadata"), 15.0)
    made.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    made.add_argument("--matrix", action="store_true", help="a crash before and after every step of a transaction instead")
    made.add_argument("--soak", type=float, metavar="MINUTES", help="one long round instead, and what grows in the processes")
    made.add_argument("--tables", choices=("score", "wait"), help="join changing rows, with this `when_behind`")
    made.add_argument("--rate", type=float, help="events a second; default: half of what two scorers drain, measured")
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
