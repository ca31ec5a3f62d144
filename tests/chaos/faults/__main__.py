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

from tests.chaos.command import Reporter, exit_on_sigterm, parser, print_summary, talk
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
    for fault, reason in missing.items():
        talk.print(f"NOT RUN {fault}: {reason}", markup=False)
    if options.only in missing:
        return 2
    exit_on_sigterm()
    reports: Reporter[ScorerResult] = Reporter(options.append, brokers=options.brokers)
    small_disk = "disk-full" not in missing and not options.soak
    with contextlib.closing(Ground(options.brokers, disk_full=small_disk, tables=options.tables)) as ground:
        ground.start()
        rate = options.rate or drain_rate(ground) / 2
        talk.print(f"{options.brokers} broker(s) up, {rate:,.0f} events/s")
        slopes = []
        if options.soak:
            slopes = soak.run(ground, options.seed, options.soak * 60, rate, reports)
        elif options.matrix:
            matrix.run(ground, options.seed, rate, reports)
        else:
            _rounds(ground, options, list(missing), rate, reports)
    more = {"brokers": options.brokers, "events": sum(result.events for result in reports.results), "not_run": list(missing)}
    figures = summary(reports.results, ScorerResult.COUNTED, **more, events_per_second=round(rate))
    return print_summary(figures | ({"processes": slopes} if options.soak else {}), options.json)


def _rounds(
    ground: Ground, options: argparse.Namespace, missing: list[str], rate: float, reports: Reporter[ScorerResult]
) -> None:
    possible = possible_faults(options.brokers, missing)
    for number in range(options.rounds):
        played = plan(number + 1, options.seed + number, possible, options.brokers, options.seconds, options.only)
        reports(play(ground, played, rate, options.broken))


def _missing(brokers: int) -> dict[str, str]:
    """Return the faults that cannot be played here, with the reasons."""
    reasons = {}
    if brokers == 1:
        reasons["move-coordinator"] = "needs --brokers 3"
    if brokers == 3:
        reasons["disk-full"] = "needs --brokers 1"
    elif os.geteuid() != 0:
        reasons["disk-full"] = "needs root, to mount a small tmpfs"
    if shutil.which("cc") is None:
        reasons["clock"] = "needs a C compiler: apt-get install -y --no-install-recommends gcc libc6-dev"
    return reasons


def _parser() -> argparse.ArgumentParser:
    command_parser = parser(
        "faults", "Real brokers, real faults, and the count.", FAULTS, ("no-rotation", "late-metadata"), 15.0
    )
    command_parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    command_parser.add_argument(
        "--matrix", action="store_true", help="a crash before and after every step of a transaction instead"
    )
    command_parser.add_argument(
        "--soak", type=float, metavar="MINUTES", help="one long round instead, and the growth of the processes"
    )
    command_parser.add_argument("--tables", choices=("score", "wait"), help="join changing rows, with this `when_behind`")
    command_parser.add_argument(
        "--rate", type=float, help="events a second; default: half of the measured drain rate of two scorers"
    )
    return command_parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
