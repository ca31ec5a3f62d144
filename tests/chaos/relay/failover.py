"""`python -m tests.chaos.relay.failover --times N`: a region is killed under load, the other continues, then it fails back.

Three real clusters, real scorers and relays. In each round: eu scores, and ap reads the scores; eu dies with all processes;
`publisher failover --to us`, and us scores; eu restarts, its remaining events are copied, and `publisher failover --to eu`.
Then all events are scored and counted: by the auditor of the tests, from the records of the reader in ap, and by `scorer
audit`. In every second round the relay is frozen before eu dies, so that it lags, and the failback does not wait for it.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from tests.chaos.relay.three_regions import Brokers, MovingLoad, Reader, Regions, make_registry
from tests.support import auditor
from tests.support.waiting import until

RATE = 300.0  # events a second
PHASE_EVENTS = 600


class Round:
    def __init__(self, brokers: Brokers, folder: Path, name: str, registry: Path, *, lagging: bool) -> None:
        self._lagging = lagging
        self.figures: dict[str, Any] = {}
        self._brokers = brokers
        self._regions = Regions(brokers, folder, name, registry)
        self._regions.prepare()
        self._reader = Reader(brokers.servers("ap"), self._regions.scores)
        self._load = MovingLoad(brokers.servers("eu"), self._regions.events, RATE)
        self._copied: dict[int, int] = {}
        self._plan: dict[str, Any] = {}

    def play(self) -> dict[str, Any]:
        try:
            self._eu_scores()
            self._kill_eu()
            self._us_scores()
            self._restart_eu()
            self._eu_scores_again()
            self._count()
        finally:
            if self._load.is_alive():
                self._load.finish(10)
            self._reader.close()
            self._regions.close()
        return self.figures

    def _eu_scores(self) -> None:
        regions = self._regions
        for relay in (*regions.inputs.values(), *regions.answers.values()):
            relay.start()
        for relay in (*regions.inputs.values(), *regions.answers.values()):
            relay.processes[-1].ready()
        regions.scorers["eu"].start("one").ready()
        self._load.go_to("eu", self._brokers.servers("eu"))
        self._await_scores("eu", PHASE_EVENTS)

    def _kill_eu(self) -> None:
        regions = self._regions
        relay = regions.inputs["us"].processes[-1]
        if self._lagging:
            relay.send(signal.SIGSTOP)
            self._await_scores("eu", PHASE_EVENTS)
        self._brokers["eu"].kill()
        relay.send(signal.SIGCONT)
        self._lost_at = time.monotonic()
        regions.scorers["eu"].scorers[-1].kill()
        regions.inputs["eu"].processes[-1].kill()

    def _us_scores(self) -> None:
        regions = self._regions
        began = time.monotonic()
        self._plan = regions.inputs["us"].json("failover", "--to", "us", "--yes")
        self.figures["command_seconds"] = round(time.monotonic() - began, 1)
        assert not self._plan["source_answers"]
        self._copied = {row["partition"]: row["next"] for row in regions.inputs["us"].json("status")["partitions"]}
        self._load.go_to("us", self._brokers.servers("us"))
        regions.scorers["us"].start("one").ready()
        self._await_scores("us", PHASE_EVENTS)
        first = self._reader.at[self._reader.regions.index("us")]
        self.figures["first_score_seconds"] = round(first - self._lost_at, 1)

    def _restart_eu(self) -> None:
        """Restart eu: its events that were not copied are copied and scored."""
        regions = self._regions
        self._brokers["eu"].restart()
        self._measure_tail()
        regions.inputs["eu"].start().ready()
        until(regions.inputs["us"].at_rest, "the copies of the remaining events of eu")

    def _measure_tail(self) -> None:
        """Compare the events that eu had and us had not with the figures of the report."""
        plan, acknowledged = self._plan, self._load.write_times
        rows = auditor.read(self._brokers.servers("eu"), self._regions.events)
        tail = [m for m in rows if (m.offset() or 0) >= self._copied.get(m.partition() or 0, 0)]
        names = [f"eu/{self._regions.events}/{m.partition()}/{m.offset()}" for m in tail]
        since_last_answer = sum(acknowledged.get(name, plan["seen_ms"]) >= plan["seen_ms"] for name in names)
        self.figures |= {
            "tail": len(tail),
            "reported_lag_records": plan["lag_records"],
            "reported_lag_seconds": round((plan["now_ms"] - plan["complete_ms"]) / 1_000, 1),
            "tail_since_last_answer": since_last_answer,
            "tail_beyond_the_report": max(0, len(tail) - since_last_answer - plan["lag_records"])
            + sum(acknowledged.get(name, plan["complete_ms"]) < plan["complete_ms"] for name in names),
        }

    def _eu_scores_again(self) -> None:
        """Move the load back while events are still written in us, which reach eu as copies."""
        regions = self._regions
        assert regions.scorers["us"].scorers[-1].stop() == 0
        until(lambda: regions.members("eu") == 0, "the end of the members that died with eu")
        back = regions.inputs["eu"]
        if not self._lagging:
            until(
                lambda: back.json("failover", "--to", "eu", "--dry-run")["lag_scored"] == 0,
                "the copies of the events that us scored",
            )
        plan = back.json("failover", "--to", "eu", "--yes")
        assert plan["source_answers"]
        self.figures["reported_rescored_at_failback"] = plan["lag_scored"]
        regions.scorers["eu"].start("two").ready()
        self._load.go_to("eu", self._brokers.servers("eu"))
        self._await_scores("eu", PHASE_EVENTS)
        self._load.finish(10)

    def _count(self) -> None:
        regions, ids = self._regions, self._reader.ids
        origins = regions.origins()
        until(lambda: origins <= set(ids), "all scores in ap")
        for relay in (*regions.inputs.values(), *regions.answers.values()):
            until(relay.at_rest, "the last copies")
        until(lambda: regions.at_rest("eu"), "the last events of eu")
        until(regions.answers["eu"].at_rest, "the last scores of eu")
        final = [json.loads(m.value() or b"")["id"] for m in auditor.read(self._brokers.servers("ap"), regions.scores)]
        until(lambda: len(ids) >= len(final), "the records of the reader in ap")
        audit = regions.audit()
        self.figures |= {
            "events": len(origins),
            "acknowledged_and_lost": len(set(self._load.write_times) - origins),
            "lost": len(origins - set(ids)),
            "duplicates": len(ids) - len(set(ids)),
            "unrecognised": len(set(ids) - origins),
            "rescored": audit["rescored"],
            "audit": {name: audit[name] for name in ("clean", "events", "answered", "missing", "pending", "different_ids")},
        }

    def _await_scores(self, region: str, count: int) -> None:
        before = self._reader.regions.count(region)
        until(lambda: self._reader.regions.count(region) >= before + count, f"{count} scores of {region} in ap")


def passed(figures: dict[str, Any]) -> bool:
    zero_figures = ("tail_beyond_the_report", "acknowledged_and_lost", "lost", "unrecognised")
    audit = figures["audit"]
    counted = audit["clean"] and not audit["pending"] and audit["events"] == figures["events"] == audit["answered"]
    return counted and figures["duplicates"] == figures["rescored"] and not any(figures[name] for name in zero_figures)


def main() -> int:
    command_parser = argparse.ArgumentParser(prog="python -m tests.chaos.relay.failover", description=__doc__)
    command_parser.add_argument("--times", type=int, default=1)
    command_parser.add_argument("--json", action="store_true", help="one line a round on stdout")
    options = command_parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="failover-") as temporary, Brokers() as brokers:
        folder = Path(temporary)
        (folder / "model").mkdir()
        registry = make_registry(folder / "model")
        for number in range(options.times):
            began = time.monotonic()
            figures: dict[str, Any] = {"round": number, "lagging": number % 2 == 1}
            try:
                figures |= Round(brokers, folder / str(number), f"f{number}", registry, lagging=number % 2 == 1).play()
                figures["passed"] = passed(figures)
            except Exception:  # noqa: BLE001 - printed, and counted as a failure
                traceback.print_exc()
                figures["passed"] = False
                brokers.revive()
            figures["seconds"] = round(time.monotonic() - began, 1)
            failed += not figures["passed"]
            line = f"round {number}: {'passed' if figures['passed'] else 'FAILED'} {figures}"
            print(json.dumps(figures) if options.json else line, flush=True)
    print(f"{options.times - failed} passed, {failed} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
