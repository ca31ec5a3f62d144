"""One round: load, faults at their seconds, rest, and the count by two auditors."""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from confluent_kafka import KafkaException

from publisher.audit.report import FAULTS as AUDITED
from tests.campaigns.faults.fleet import Fleet
from tests.campaigns.faults.load import Load
from tests.campaigns.faults.plan import Round
from tests.campaigns.faults.stage import Ground, Stage, wait_until
from tests.integration.scorer.rig import command

COUNTED = ("missing", "duplicates", "phantoms", "out_of_order", "version_regressions")
READY_SECONDS = 60.0
DRAIN_SECONDS = 120.0
AUDIT_SECONDS = 300.0
DRAINED_EVENTS = 40_000


@dataclass
class Result:
    """What a round came to. `stall_seconds`: the longest pause of a partition for a read_committed reader. `counts` and
    `audited` are the two counts, fault by fault: the tests' own auditor's and the product's. `lost_inputs`: events that the
    brokers have acknowledged and the input topic has not. `strays`: EndTxn requests that were delivered late.
    `logs`: the folder of the scorers' logs, where it was kept."""

    round: int
    seed: int
    faults: tuple[str, ...]
    protocol: str
    scorers: int
    events: int = 0
    seconds: float = 0.0
    stall_seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    audited: dict[str, int] = field(default_factory=dict)
    inputs: int = 0
    lost_inputs: int = 0
    strays: int = 0
    exits: dict[str, int] = field(default_factory=dict)
    trouble: str = ""
    logs: str = ""

    @property
    def damage(self) -> int:
        """Everything that should not be, by the count that saw more of it."""
        return max(sum(self.counts.values()), sum(self.audited.values())) + self.lost_inputs

    @property
    def clean(self) -> bool:
        """Both counts are zero, everything written is there, and the round came to rest."""
        return not self.damage and not self.trouble

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "clean": self.clean}


def play(
    ground: Ground,
    played: Round,
    rate: float,
    broken: str | None = None,
    keep_logs: bool = False,
    watching: Callable[[Fleet], None] = lambda _: None,
) -> Result:
    """Play one round on this ground at `rate` events a second. `watching` is shown the scorers before they are started."""
    result = Result(played.number, played.seed, played.faults, played.protocol, played.scorers)
    began, strays = time.monotonic(), ground.proxies.stray.loosed
    stage = Stage(ground, played, rate, broken)
    try:
        watching(stage.fleet)
        _act(stage, played)
        stage.heal()
        stage.load.finish()
        _rest(stage, result)
        _count(stage, result)
    except (AssertionError, KafkaException, OSError, RuntimeError, subprocess.SubprocessError) as error:
        result.trouble = f"{type(error).__name__}: {error}"
    finally:
        stage.close(keep=keep_logs or not result.clean)
    result.events = stage.load.events
    result.lost_inputs = max(0, result.events - result.inputs)
    result.strays = ground.proxies.stray.loosed - strays
    result.stall_seconds = round(stage.watch.stalls.longest, 2)
    result.exits = _exits([code for slot in (*stage.fleet.slots, *stage.fleet.twins) for code in slot.exits])
    result.seconds = round(time.monotonic() - began, 1)
    if not result.clean:
        result.trouble = f"{result.trouble or 'damage'}; logs in {stage.folder}"
    result.logs = str(stage.folder) if keep_logs or not result.clean else ""
    return result


def drain_rate(ground: Ground) -> float:
    """Events a second that two scorers drain from a backlog, measured once."""
    played = Round(0, 0, (), "classic", 2, 0.0, ())
    stage = Stage(ground, played, 1e9)
    try:
        backlog = Load(ground.cluster.bootstrap_servers, stage.rig.events_topic, 1e9, DRAINED_EVENTS)
        backlog.start()
        backlog.join()
        backlog.finish()
        stage.watch.start()
        stage.fleet.start()
        wait_until(lambda: stage.watch.answers > 0, READY_SECONDS, stage.fleet.tend)
        began, already = time.monotonic(), stage.watch.answers
        wait_until(lambda: stage.watch.answers >= DRAINED_EVENTS, DRAIN_SECONDS, stage.fleet.tend)
        return (stage.watch.answers - already) / (time.monotonic() - began)
    finally:
        stage.close(keep=False)


def _act(stage: Stage, played: Round) -> None:
    """Load and faults, from the moment when all scorers have joined."""
    stage.watch.start()
    stage.fleet.start()
    wait_until(lambda: all("assigned: " in slot.said() for slot in stage.fleet.slots), READY_SECONDS, stage.fleet.tend)
    stage.load.start()
    began, steps = time.monotonic(), list(played.steps)
    seconds = max([played.seconds, *(step.at + 3 for step in steps)])

    def act(now: float) -> None:
        while steps and now - began >= steps[0].at:
            stage.do(steps.pop(0))
        stage.fleet.tend(now)

    wait_until(lambda: False, seconds, act)


def _rest(stage: Stage, result: Result) -> None:
    """Every event answered."""
    if not wait_until(lambda: stage.watch.answers >= stage.load.events, DRAIN_SECONDS, stage.fleet.tend):
        result.trouble = f"only {stage.watch.answers} of {stage.load.events} answered {DRAIN_SECONDS:.0f} s after the faults"


def _count(stage: Stage, result: Result) -> None:
    """Both auditors, over everything that the round wrote."""
    rig = stage.rig
    counts = rig.audit(stage.since_ms)
    result.counts = {name: counts[name] for name in COUNTED}
    result.inputs = counts["inputs"]
    arguments = ["--bootstrap-servers", rig.bootstrap_servers, "--input", rig.events_topic, "--output", rig.scores_topic]
    arguments += ["--dead", rig.dead_topic, "--swaps", f"{rig.name}.swaps", "--group", rig.name, "--json"]
    done = subprocess.run(
        [command("publisher"), "audit", *arguments], capture_output=True, text=True, check=False, timeout=AUDIT_SECONDS
    )
    if done.returncode not in (0, 1):
        result.trouble = f"publisher audit ended with {done.returncode}: {done.stderr.strip()}"
        return
    report: Mapping[str, Any] = json.loads(done.stdout)
    result.audited = {name: report[name] for name in AUDITED if name in report}


def _exits(codes: list[int]) -> dict[str, int]:
    """How processes ended: exit codes, and signals by number."""
    return dict(Counter(f"signal {-code}" if code < 0 else f"code {code}" for code in codes))
