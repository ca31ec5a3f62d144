"""`python -m tests fuzz`: random records at a scorer, a relay or the native part, for as long as is asked. A line a round on
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
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from scorer.demo.broker.embedded import EmbeddedBroker
from tests.campaigns.fuzz import native, relay_rounds, rounds
from tests.campaigns.fuzz.rounds import Round
from tests.integration.relay.rig import RelayRig
from tests.integration.scorer.rig import Rig


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.native:
        return native.main(options.seed, options.minutes)
    ends = time.monotonic() + options.minutes * 60
    totals: Counter[str] = Counter()
    bad: list[int] = []
    with EmbeddedBroker() as broker, EmbeddedBroker() if options.relay else nullcontext(broker) as other:
        clusters = broker.bootstrap_servers, other.bootstrap_servers
        while totals["rounds"] < options.rounds if options.rounds else time.monotonic() < ends:
            seed = options.seed + totals["rounds"]
            played = _round(clusters, seed, options.records, relay=options.relay)
            totals += Counter({"rounds": 1, "records": played.written, "refused_by_the_input": played.refused})
            totals += Counter(played.answers)
            bad += [played.seed] if played.findings else []
            what = f"{played.format}, {played.delivery}{', compacted' if played.compacted else ''}"
            print(f"seed {played.seed}: {what}: {played.written} records", file=sys.stderr)
            for finding in played.findings:
                print(f"  {finding}", file=sys.stderr)
    print(json.dumps({**totals, "seeds_with_findings": bad}))
    return 1 if bad else 0


def _round(clusters: tuple[str, str], seed: int, count: int, *, relay: bool) -> Round:
    """One round with topics and a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, ExitStack() as closing:
        name = f"fuzz-{seed}-{uuid.uuid4().hex[:8]}"

        def make_rig(**overrides: Any) -> Rig:
            return closing.enter_context(contextlib.closing(Rig(clusters[0], Path(folder), name, **overrides)))

        def make_relay(**overrides: Any) -> RelayRig:
            return closing.enter_context(contextlib.closing(RelayRig(clusters, Path(folder), name, **overrides)))

        if relay:
            return relay_rounds.play(make_relay, relay_rounds.planned(seed), count)
        return rounds.play(make_rig, rounds.planned(seed), count)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests fuzz", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="begin no round after so many")
    parser.add_argument("--rounds", type=int, default=0, help="so many rounds instead")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each next one has the next")
    parser.add_argument("--relay", action="store_true", help="at a relay between two brokers, not at a scorer")
    parser.add_argument("--native", action="store_true", help="at the native part under sanitizers: one round, no broker")
    parser.add_argument("--records", type=int, default=500, help="records a round")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
