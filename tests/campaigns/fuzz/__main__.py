"""`python -m tests fuzz`: random records at a scorer or the native scanner, for as long as is asked. A line a round on
stderr, the summary on stdout; exit codes: 0 every record was answered once, 1 something was found, 2 usage.

Each round is decided by its seed alone: `--seed` of a printed line and `--rounds 1` play that round again.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scorer.demo.broker.embedded import EmbeddedBroker
from tests.campaigns.fuzz import rounds, scanner
from tests.campaigns.fuzz.rounds import Round
from tests.integration.scorer.rig import Rig


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.scanner:
        return scanner.main(options.seed, options.minutes)
    ends = time.monotonic() + options.minutes * 60
    totals: Counter[str] = Counter()
    bad: list[int] = []
    with EmbeddedBroker() as broker:
        while totals["rounds"] < options.rounds if options.rounds else time.monotonic() < ends:
            seed = options.seed + totals["rounds"]
            played = _round(broker.bootstrap_servers, seed, options.records)
            totals += Counter({"rounds": 1, "records": played.written, "refused_by_the_input": played.refused})
            totals += Counter(played.answers)
            bad += [played.seed] if played.findings else []
            what = f"{played.format}, {played.delivery}{', compacted' if played.compacted else ''}"
            print(f"seed {played.seed}: {what}: {played.written} records", file=sys.stderr)
            for finding in played.findings:
                print(f"  {finding}", file=sys.stderr)
    print(json.dumps({**totals, "seeds_with_findings": bad}))
    return 1 if bad else 0


def _round(bootstrap_servers: str, seed: int, count: int) -> Round:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, contextlib.ExitStack() as closing:
        name = f"fuzz-{seed}-{uuid.uuid4().hex[:8]}"

        def make_rig(**overrides: Any) -> Rig:
            return closing.enter_context(contextlib.closing(Rig(bootstrap_servers, Path(folder), name, **overrides)))

        return rounds.play(make_rig, rounds.planned(seed), count)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests fuzz", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="begin no round after so many")
    parser.add_argument("--rounds", type=int, default=0, help="so many rounds instead")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each next one has the next")
    parser.add_argument("--scanner", action="store_true", help="at the native scanner under sanitizers: one round, no broker")
    parser.add_argument("--records", type=int, default=500, help="records a round")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
