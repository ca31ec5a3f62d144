"""`python -m tests relay`: the relay's fault campaign. See `command.py`.

Each round is decided by its seed alone: `--seed` of a printed line and `--rounds 1` (with the same `--seconds` and `--only`)
play that round again.
"""

import contextlib
import sys
from collections import Counter
from collections.abc import Sequence

from tests.chaos.command import Reporter, exit_on_sigterm, parser, print_summary, talk
from tests.chaos.relay.plan import FAULTS, plan
from tests.chaos.relay.result import RelayResult
from tests.chaos.relay.stage import Ground, play
from tests.chaos.result import summary


def main(arguments: Sequence[str]) -> int:
    command_parser = parser(
        "relay", "Two clusters, real faults, and the count.", FAULTS, ("loose-positions", "no-rotation"), 8.0
    )
    command_parser.add_argument("--rate", type=float, default=1_000.0, help="records a second")
    options = command_parser.parse_args(arguments)
    exit_on_sigterm()
    reports: Reporter[RelayResult] = Reporter(options.append)
    with contextlib.closing(Ground()) as ground:
        ground.start()
        talk.print(f"two clusters up, {options.rate:,.0f} records/s")
        for number in range(options.rounds):
            played = plan(number + 1, options.seed + number, options.seconds, options.only)
            reports(play(ground, played, options.rate, options.broken))
    more = {
        "records": sum(result.records for result in reports.results),
        "records_per_second": round(options.rate),
        "crashes": dict(Counter(point for result in reports.results for point in result.crashes)),
        "exits": dict(sum((Counter(result.exits) for result in reports.results), Counter())),
    }
    return print_summary(summary(reports.results, RelayResult.COUNTED, **more), options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
