"""`python -m tests relay`: the relay's fault campaign. See `command.py`.

Each round is decided by its seed alone: `--seed` of a printed line and `--rounds 1` (with the same `--seconds` and `--only`)
play that round again.
"""

import contextlib
import sys
from collections import Counter
from collections.abc import Sequence

from tests.chaos.command import Told, end_as_asked, parser, print_summary, talk
from tests.chaos.relay.plan import FAULTS, plan
from tests.chaos.relay.result import RelayResult
from tests.chaos.relay.stage import Ground, play
from tests.chaos.result import summary


def main(arguments: Sequence[str]) -> int:
    made = parser("relay", "Two clusters, real faults, and the count.", FAULTS, ("loose-positions", "no-rotation"), 8.0)
    made.add_argument("--rate", type=float, default=1_000.0, help="records a second")
    options = made.parse_args(arguments)
    end_as_asked()
    told: Told[RelayResult] = Told(options.append)
    with contextlib.closing(Ground()) as ground:
        ground.start()
        talk.print(f"two clusters up, {options.rate:,.0f} records/s")
        for number in range(options.rounds):
            played = plan(number + 1, options.seed + number, options.seconds, options.only)
            told(play(ground, played, options.rate, options.broken))
    more = {
        "records": sum(result.records for result in told.results),
        "records_per_second": round(options.rate),
        "crashes": dict(Counter(point for result in told.results for point in result.crashes)),
        "exits": dict(sum((Counter(result.exits) for result in told.results), Counter())),
    }
    return print_summary(summary(told.results, RelayResult.COUNTED, **more), options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
