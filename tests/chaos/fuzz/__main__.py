"""`python -m tests fuzz`: random records, versions or batches at the product, for a given time. One line per round on
stderr, the summary on stdout; exit codes: 0 every record has one answer, 1 there are findings, 2 usage.

Each round is decided by its seed alone: `--seed` of a printed line and `--rounds 1` repeat that round.
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
from tests.chaos.fuzz import bomb_rounds, native, relay_rounds, rounds, topic_rounds, version_rounds
from tests.chaos.fuzz.played import Played
from tests.chaos.fuzz.rounds import Round
from tests.integration.relay.rig import RelayRig
from tests.integration.scorer.rig import Rig

RECORDS, VERSIONS, BOMBS, RECORDS_A_TOPIC = 500, 15, 12, 150  # a round
MODES = {
    "relay": "at a relay between two brokers, not at a scorer",
    "native": "at the native part under sanitizers: one round, no broker",
    "versions": "hostile versions, as champion and as canary",
    "bombs": "compressed batches around the limit of the expanded size",
    "topics": "hostile records on every topic that the product reads, at a scorer, a relay and the commands",
}


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.mode == "native":
        return native.main(options.seed, options.minutes)
    ends = time.monotonic() + options.minutes * 60
    totals: Counter[str] = Counter()
    failed_seeds: list[int] = []
    needs_two = options.mode in ("relay", "topics")
    with EmbeddedBroker() as broker, EmbeddedBroker() if needs_two else nullcontext(broker) as other:
        clusters = broker.bootstrap_servers, other.bootstrap_servers
        while totals["rounds"] < options.rounds if options.rounds else time.monotonic() < ends:
            seed = options.seed + totals["rounds"]
            played = _round(clusters, seed, options)
            totals += _counts(played)
            totals += Counter(played.answers)
            failed_seeds += [played.seed] if played.findings else []
            print(f"seed {played.seed}: {_title(played)}", file=sys.stderr)
            for finding in played.findings:
                print(f"  {finding}", file=sys.stderr)
    print(json.dumps({**totals, "seeds_with_findings": failed_seeds}))
    return 1 if failed_seeds else 0


def _counts(played: Round | Played) -> Counter[str]:
    if isinstance(played, Played):
        return Counter({"rounds": 1, "cases": played.cases})
    return Counter({"rounds": 1, "records": played.written, "refused_by_the_input": played.refused})


def _title(played: Round | Played) -> str:
    if isinstance(played, Played):
        return f"{played.title}: {played.cases} cases"
    return f"{played.format}, {played.delivery}{', compacted' if played.compacted else ''}: {played.written} records"


def _round(clusters: tuple[str, str], seed: int, options: argparse.Namespace) -> Round | Played:
    """Play one round with its own topics and folder."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, ExitStack() as closing:
        name = f"fuzz-{seed}-{uuid.uuid4().hex[:8]}"

        def make_rig(**overrides: Any) -> Rig:
            return closing.enter_context(contextlib.closing(Rig(clusters[0], Path(folder), name, **overrides)))

        def make_relay(**overrides: Any) -> RelayRig:
            return closing.enter_context(contextlib.closing(RelayRig(clusters, Path(folder), name, **overrides)))

        match options.mode:
            case "relay":
                return relay_rounds.play(make_relay, relay_rounds.planned(seed), options.records or RECORDS)
            case "versions":
                return version_rounds.play(make_rig, seed, options.records or VERSIONS)
            case "bombs":
                return bomb_rounds.play(make_rig, seed, options.records or BOMBS)
            case "topics":
                return topic_rounds.play(make_rig, make_relay, seed, options.records or RECORDS_A_TOPIC)
            case _:
                return rounds.play(make_rig, rounds.planned(seed), options.records or RECORDS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests fuzz", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="begin no round after so many")
    parser.add_argument("--rounds", type=int, default=0, help="so many rounds instead")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each next one has the next")
    modes = parser.add_mutually_exclusive_group()
    for mode, description in MODES.items():
        modes.add_argument(f"--{mode}", dest="mode", action="store_const", const=mode, help=description)
    parser.add_argument("--records", type=int, default=0, help="records, versions or batches a round, or records a topic")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
