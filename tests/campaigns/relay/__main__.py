"""`python -m tests relay`: the relay's fault campaign. stdout is data, stderr is talk; exit codes: 0 clean, 1 damage, 2 usage.

Each round is decided by its seed alone: `--seed` of a printed line and `--rounds 1` (with the same `--seconds` and `--only`)
play that round again.
"""

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.campaigns.relay import report
from tests.campaigns.relay.plan import FAULTS, plan
from tests.campaigns.relay.rounds import Result, play
from tests.campaigns.relay.stage import Ground

talk = Console(stderr=True, highlight=False, soft_wrap=True)


def main(arguments: Sequence[str]) -> int:
    """Play the campaign; its exit code."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: what was started is ended
    results: list[Result] = []
    with contextlib.closing(Ground()) as ground:
        ground.start()
        talk.print(f"two clusters up, {options.rate:,.0f} records/s")
        for number in range(options.rounds):
            played = plan(number + 1, options.seed + number, options.seconds, options.only)
            result = play(ground, played, options.rate, options.broken, options.keep_logs)
            results.append(result)
            talk.print(report.line(result), markup=False)
            if options.append:
                with options.append.open("a") as file:
                    file.write(json.dumps(result.to_dict()) + "\n")
    summary = report.summary(results, options.rate)
    print(json.dumps(summary, indent=None if options.json else 2))
    return 0 if summary["clean"] else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests relay", description="Two clusters, real faults, and the count.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next ones count up")
    parser.add_argument("--only", choices=FAULTS, help="this fault in every round")
    parser.add_argument("--seconds", type=float, default=8.0, help="of load in a round, at least")
    parser.add_argument("--rate", type=float, default=1_000.0, help="records a second")
    parser.add_argument("--broken", choices=("loose-positions", "no-rotation"), help="a relay that is wrong on purpose")
    parser.add_argument("--append", type=Path, metavar="FILE", help="a JSON line for each round")
    parser.add_argument("--keep-logs", action="store_true", help="of clean rounds too; where, stands in --append")
    parser.add_argument("--json", action="store_true", help="the summary as one line on stdout")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
