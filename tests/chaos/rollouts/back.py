"""Measure rollbacks: from the decision to the last partition, and from a candidate's first failure to the registry."""

import contextlib
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from publisher.audit.report import FAULTS as AUDITED
from tests.chaos.command import talk
from tests.chaos.rollouts.counting import asked_after, move_faults, spread
from tests.chaos.rollouts.ground import HALF, NOT_FINITE, Ground, KeyedLoad, listens, scores
from tests.chaos.rollouts.plan import ABORT, BAD, CANARY_STEP, FAILING, OUTCOMES, PROMOTE_STEP, SHADOW_STEP
from tests.chaos.supervised import Supervised
from tests.support.follower import Follower
from tests.support.waiting import until

PARTITIONS = 6
RATE = 2_000.0
POLL_SECONDS = 30.0  # of the registry, by scorers: too slow for this test, so that scorers depend on notices
KINDS = ((ABORT, CANARY_STEP), (BAD, CANARY_STEP), (FAILING, CANARY_STEP), (FAILING, SHADOW_STEP))
"""The cause of the end of a rollout, and its step. Other candidates run between two failing ones: they close the breaker."""
UNASKED = ("breaker", "crash", "refused", "away")
MAX_WAIT_SECONDS = 120.0
OPENED = "s instead: the candidate"  # a text of a scorer's log
DECIDED_TO_BACK, FAILED_TO_REGISTRY = "decision_to_last_partition_back", "first_failure_to_registry_back"
BARS = {DECIDED_TO_BACK: 2.0, FAILED_TO_REGISTRY: 5.0}
"""Seconds that the 99th percentile may take."""


class Arrivals(threading.Thread):
    """Reads committed answers when they arrive. `first` has the Unix time (ms) at which the first score of each revision was
    read, by partition; `failed` when the candidate first failed under a revision (ms); `requests` how many events of a
    partition the candidate was asked for and failed at, by the time of the batch."""

    def __init__(self, bootstrap_servers: str, scored: str, shadow: str) -> None:
        super().__init__(name="arrivals", daemon=True)
        self.first: defaultdict[int, dict[int, float]] = defaultdict(dict)
        self.failed: dict[int, int] = {}
        self.requests: defaultdict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
        self.seen = 0
        self._shadow = shadow
        self._closing = threading.Event()
        self._follower = Follower(bootstrap_servers, scored, shadow, grows=False)

    def run(self) -> None:
        while not self._closing.is_set():
            messages = self._follower.take(0.02)
            now = time.time() * 1_000
            for message in messages:
                record = orjson.loads(message.value() or b"")
                if message.topic() == self._shadow:
                    if record["status"] == "dead_lettered":
                        self._fails(record)
                    continue
                self.seen += 1
                self.first[record["revision"]].setdefault(message.partition() or 0, now)
                if reason := record.get("fallback"):
                    self._fails(record)
                    if reason not in UNASKED:
                        self.requests[record["revision"]][message.partition() or 0, record["scored_ms"]] += 1

    def close(self) -> None:
        self._closing.set()
        if self.is_alive():
            self.join()
        self._follower.close()

    def _fails(self, record: Mapping[str, Any]) -> None:
        at = record["scored_ms"]
        self.failed[record["revision"]] = min(at, self.failed.get(record["revision"], at))


def campaign(bootstrap_servers: str, folder: Path, count: int) -> dict[str, Any]:
    """Play `count` rollouts that are rolled back, and return the figures. Raises AssertionError after a timeout."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    request_counts: list[int] = []
    late_requests = 0
    outcomes: dict[str, str] = {}
    with _playing(bootstrap_servers, folder) as (ground, load, arrivals, scorers):
        of_scorer = {place["partition"]: row["scorer"] for row in ground.rig.fleet() for place in _places(row)}
        for number in range(count):
            kind, step = KINDS[number % len(KINDS)]
            name = _played(ground, arrivals, kind, step)
            outcomes[name] = kind
            move_out, move_back = ground.log.of(name, "moved")[0].value, ground.log.of(name, "moved")[-1].value
            decided = ground.log.of(name, "intended")[-1].value["at_ms"]
            last = max(arrivals.first[move_back["revision"]].values())
            times[DECIDED_TO_BACK].append((last - decided) / 1_000)
            report = {"round": number, "kind": kind, "back_seconds": round((last - decided) / 1_000, 3)}
            if kind == FAILING:
                failed = arrivals.failed[move_out["revision"]]
                times[FAILED_TO_REGISTRY].append((move_back["at_ms"] - failed) / 1_000)
                report["rolled_back_seconds"] = round((move_back["at_ms"] - failed) / 1_000, 3)
                for scorer, events in _by_scorer(arrivals.requests[move_out["revision"]], of_scorer).items():
                    request_counts.append(events.total())
                    late_requests += asked_after(events, _opened(scorers[scorer]))
            talk.print(f"{ground.rig.name}: {json.dumps(report)}", markup=False)
        load.finish()
        until(lambda: arrivals.seen >= load.events, "all answers", MAX_WAIT_SECONDS)
        faults, broken_off = move_faults(ground.log.entries, ground.history(), ground.current())
        faults["wrong_outcomes"] = sum(ground.log.outcome(name) != OUTCOMES[kind] for name, kind in outcomes.items())
        audit = json.loads(ground.rig.run("scorer", "audit", str(ground.rig.path), "--json", code=None).stdout)
        second = ground.rig.audit()
    faults["events_not_counted"] = abs(audit["events"] - load.events) + abs(second["inputs"] - load.events)
    faults["dead_lettered"] = audit["dead_lettered"]
    faults["asked_after_the_breaker"] = late_requests
    return {
        "rollbacks": len(outcomes),
        "events": audit["events"],
        "events_a_second": RATE,
        "broken_off": broken_off,
        **{name: spread(times[name]) for name in BARS},
        "events_until_the_breaker": spread(request_counts),
        "faults": {
            "rollouts": dict(faults),
            "scorer audit": {name: audit[name] for name in AUDITED if name in audit},
            "second auditor": {name: count for name, count in second.items() if name != "inputs"},
        },
    }


@contextlib.contextmanager
def _playing(bootstrap_servers: str, folder: Path) -> Iterator[tuple[Ground, KeyedLoad, Arrivals, dict[str, Supervised]]]:
    """Yield two working scorers, by name, with a shadow, a controller and load."""
    more = {"shadow": {"max_lag_seconds": 600}, "model": {"poll_seconds": POLL_SECONDS}}
    ground = Ground(bootstrap_servers, folder / "back", "back", PARTITIONS, **more)
    slots = [ground.scorer("a"), ground.scorer("b"), ground.shadow(), ground.controller("c")]
    load = KeyedLoad(ground.rig, RATE)
    arrivals = Arrivals(bootstrap_servers, ground.rig.scores_topic, f"{ground.rig.scores_topic}.shadow")
    with contextlib.ExitStack() as undo:
        undo.callback(ground.close)
        undo.callback(arrivals.close)
        for slot in slots:
            undo.callback(slot.end)
            slot.start()
        until(lambda: all(map(scores, slots[:3])) and listens(slots[3]), "the scorers and the controller")
        arrivals.start()
        load.start()
        until(
            lambda: sum(len(row["partitions"]) for row in ground.rig.fleet() if not row["shadow"]) == PARTITIONS, "partitions"
        )
        yield ground, load, arrivals, {f"back.{replica}": slot for replica, slot in zip(("a", "b"), slots, strict=False)}


def _played(ground: Ground, arrivals: Arrivals, kind: str, step: dict[str, Any]) -> str:
    """Play a rollout until every partition is rolled back, and return its id."""
    candidate = {ABORT: ground.twin, BAD: HALF, FAILING: NOT_FINITE}[kind]
    name, aborted = ground.begin(candidate, [{**step, "bake": "10m"}, PROMOTE_STEP]), False
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while ground.log.outcome(name) is None:
        assert time.monotonic() < deadline, (
            f"{name} does not end: {[entry.value for entry in ground.log.entries.get(name, [])]}"
        )
        moved = ground.log.of(name, "moved")
        if kind == ABORT and not aborted and moved and len(arrivals.first[moved[0].value["revision"]]) == PARTITIONS:
            ground.ask("abort")
            aborted = True
        ground.log.poll()
    revision = ground.log.of(name, "moved")[-1].value["revision"]
    until(lambda: len(arrivals.first[revision]) == PARTITIONS, "all partitions back", MAX_WAIT_SECONDS, every=0.01)
    return name


def _places(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [] if row["shadow"] else list(row["partitions"])


def _by_scorer(requests: Mapping[tuple[int, int], int], of_scorer: Mapping[int, str]) -> dict[str, Counter[int]]:
    """Return, for each scorer, the number of events that it sent to the candidate, by the time of their answers."""
    by_scorer: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for (partition, at), events in requests.items():
        by_scorer[of_scorer[partition]][at] += events
    return by_scorer


def _opened(slot: Supervised) -> list[int]:
    """Return the times (Unix ms) at which the breaker of a scorer opened, from its log."""
    lines = (json.loads(line) for line in slot.log_text().splitlines() if OPENED in line and line.startswith("{"))
    return [round(datetime.fromisoformat(line["time"]).timestamp() * 1_000) for line in lines]
