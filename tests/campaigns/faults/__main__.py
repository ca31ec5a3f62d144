"""`python -m tests faults`: the fault campaign. stdout is data, stderr is talk; exit codes: 0 clean, 1 damage, 2 usage.

Each round is decided by its seed alone: `--seed` of a printed line and `--rounds 1` (with the same `--brokers`, `--seconds` and
`--only`) play that round again.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.campaigns.faults import matrix, outages, report, soak
from tests.campaigns.faults.fleet import has_compiler
from tests.campaigns.faults.plan import FAULTS, plan, possible_faults
from tests.campaigns.faults.rounds import Result, drain_rate, play
from tests.campaigns.faults.stage import Ground

talk = Console(stderr=True, highlight=False, soft_wrap=True)


def main(arguments: Sequence[str]) -> int:
    """Play the campaign; its exit code."""
    options = _parser().parse_args(arguments)
    if options.outages:
        summary = outages.run(options.outages, lambda line: talk.print(line, markup=False), options.outage)
        print(json.dumps(summary, indent=None if options.json else 2))
        return 0 if summary["clean"] else 1
    missing = _missing(options.brokers)
    for fault, why in missing.items():
        talk.print(f"NOT RUN {fault}: {why}", markup=False)
    if options.only in missing:
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: what was started is ended
    results: list[Result] = []

    def told(result: Result) -> None:
        results.append(result)
        talk.print(report.line(result), markup=False)
        if options.append:
            with options.append.open("a") as file:
                file.write(json.dumps({"brokers": options.brokers, **result.to_dict()}) + "\n")

    small_disk = "disk-full" not in missing and not options.soak
    with contextlib.closing(Ground(options.brokers, disk_full=small_disk)) as ground:
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
    summary = report.summary(results, options.brokers, rate, list(missing)) | ({"processes": slopes} if options.soak else {})
    if options.matrix and not options.json:
        Console().print(matrix.table(results, options.brokers))
    print(json.dumps(summary, indent=None if options.json else 2))
    return 0 if summary["clean"] else 1


def _rounds(ground: Ground, options: argparse.Namespace, missing: list[str], rate: float, told: matrix.Told) -> None:
    possible = possible_faults(options.brokers, missing)
    for number in range(options.rounds):
        played = plan(number + 1, options.seed + number, possible, options.brokers, options.seconds, options.only)
        told(play(ground, played, rate, options.broken, options.keep_logs))


def _missing(brokers: int) -> dict[str, str]:
    """Faults that cannot be played here, and why."""
    found = {}
    if brokers == 1:
        found["move-coordinator"] = "needs --brokers 3"
    if brokers == 3:
        found["disk-full"] = "needs --brokers 1"
    elif os.geteuid() != 0:
        found["disk-full"] = "needs root, to mount a small tmpfs"
    if not has_compiler():
        found["clock"] = "needs a C compiler: apt-get install -y --no-install-recommends gcc libc6-dev"
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests faults", description="Real brokers, real faults, and the count.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next ones count up")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--only", choices=FAULTS, help="this fault in every round")
    parser.add_argument("--matrix", action="store_true", help="a crash before and after every step of a transaction instead")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="one long round instead, and what grows in the processes")
    parser.add_argument("--outages", type=int, metavar="N", help="instead: N outages of each kind in turn, and no scorer ends")
    parser.add_argument("--outage", choices=outages.KINDS, help="of this kind only")
    parser.add_argument("--seconds", type=float, default=15.0, help="of load in a round, at least")
    parser.add_argument("--rate", type=float, help="events a second; default: half of what two scorers drain, measured")
    parser.add_argument("--broken", choices=("no-rotation", "late-metadata"), help="scorers that are wrong on purpose")
    parser.add_argument("--append", type=Path, metavar="FILE", help="a JSON line for each round")
    parser.add_argument("--keep-logs", action="store_true", help="of clean rounds too; where, stands in --append")
    parser.add_argument("--json", action="store_true", help="the summary as one line on stdout")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
