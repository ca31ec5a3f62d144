"""One round: load, faults at their seconds, rest, and the count by two auditors."""

import json
import subprocess
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from confluent_kafka import KafkaException

from publisher.audit.report import FAULTS as AUDITED
from tests.campaigns.faults.stage import wait_until
from tests.campaigns.relay.plan import SIDES, Round, taken_over
from tests.campaigns.relay.stage import Ground, Stage
from tests.integration.relay.counting import CLEAN, compare
from tests.support import auditor

READY_SECONDS = 60.0
DRAIN_SECONDS = 120.0
AUDIT_SECONDS = 300.0
PATIENCE_SECONDS = 40.0  # for a process that does not copy although it was started again
LONGEST_SECONDS = 90.0
REFUSED, UNREACHABLE = 3, 4
CLUSTER_AWAY = {
    f"{what}-{side}" for what in ("kill", "freeze", "half-open") for side in SIDES
}  # a start that meets it may give up
EXPECTED = {0, -9, -15}  # -15: asked to end before it could listen


@dataclass
class Result:
    """What a round came to. `stall_seconds`: the longest pause of a partition for a read_committed reader at the destination.
    `counts` and `audited` are the two counts: the tests' own auditor's and the product's. `crashes`: the points at which the
    relay was killed. `lost_inputs`: records that the source has acknowledged and does not hold. `strays`: EndTxn requests that
    were delivered late. `logs`: the folder of the relays' logs, where it was kept."""

    round: int
    seed: int
    faults: tuple[str, ...]
    lanes: int
    transactional: bool
    records: int = 0
    seconds: float = 0.0
    stall_seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    audited: dict[str, int] = field(default_factory=dict)
    lost_inputs: int = 0
    strays: int = 0
    crashes: list[str] = field(default_factory=list)
    exits: dict[str, int] = field(default_factory=dict)
    trouble: str = ""
    logs: str = ""

    @property
    def worst(self) -> dict[str, int]:
        """Each fault of the copy, by the count that saw more of it."""
        return {name: max(self.counts.get(name, 0), self.audited.get(name, 0)) for name in CLEAN}

    @property
    def clean(self) -> bool:
        """Both counts are zero, everything written is there, and the round came to rest."""
        return not (sum(self.worst.values()) or self.lost_inputs or self.trouble)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "clean": self.clean}


def play(ground: Ground, played: Round, rate: float, broken: str | None = None, keep_logs: bool = False) -> Result:
    """Play one round on this ground at `rate` records a second."""
    result = Result(played.number, played.seed, played.faults, played.lanes, played.transactional)
    began = time.monotonic()
    stage = Stage(ground, played, rate, broken)
    strays = stage.strays
    try:
        _act(stage, played)
        stage.heal()
        stage.finish()
        _count(stage, result)
        _judge_exits(stage, played, result)
    except (AssertionError, KafkaException, OSError, RuntimeError, subprocess.SubprocessError) as error:
        result.trouble = result.trouble or f"{type(error).__name__}: {error}"
    finally:
        ground.heal()
        stage.close(keep=keep_logs or not result.clean)
    result.crashes = stage.crashes
    result.strays = stage.strays - strays
    result.stall_seconds = round(stage.watch.stalls.longest, 2)
    result.seconds = round(time.monotonic() - began, 1)
    if not result.clean:
        result.trouble = f"{result.trouble or 'damage'}; logs in {stage.folder}"
    result.logs = str(stage.folder) if keep_logs or not result.clean else ""
    return result


def _act(stage: Stage, played: Round) -> None:
    """Load and faults, from the moment when the relay copies."""
    stage.watch.start()
    stage.relay.start()
    if not wait_until(lambda: stage.copying, READY_SECONDS, stage.tend):
        raise RuntimeError(f"the relay did not begin within {READY_SECONDS:.0f} s: {stage.relay.said()}")
    stage.begin()
    began, steps = time.monotonic(), list(played.steps)

    def act(now: float) -> None:
        while steps and now - began >= steps[0].at and (stage.may(steps[0]) or now - began > PATIENCE_SECONDS):
            stage.do(steps.pop(0))
            done.append(now)
        stage.tend(now)

    def over() -> bool:
        settled = stage.copying and (stage.relay is stage.slots[0] or not stage.slots[0].running)
        return not (steps or stage.relay.armed) and settled and time.monotonic() > max(began + played.seconds, done[-1] + 1)

    done = [began]
    wait_until(over, LONGEST_SECONDS, act)


def _count(stage: Stage, result: Result) -> None:
    """Both auditors, over everything that the round wrote, once it is all there."""
    rig = stage.rig
    source = list(auditor.read(rig.source, rig.topic))
    result.records = len(source)
    own = {(message.partition(), message.offset()) for message in source if message.value() and b'"id"' in message.value()}  # type: ignore[operator]
    result.lost_inputs = max(0, stage.load.events - len(own))
    if not wait_until(lambda: stage.watch.copies >= len(source), DRAIN_SECONDS, stage.tend):
        result.trouble = f"only {stage.watch.copies} of {len(source)} copied {DRAIN_SECONDS:.0f} s after the faults"
    stage.end_relays()
    result.counts = compare(source, list(auditor.read(rig.destination, rig.topic)))
    command = [*rig.program, "audit", str(rig.path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=AUDIT_SECONDS)
    if done.returncode not in (0, 1):
        result.trouble = f"publisher audit ended with {done.returncode}: {done.stderr.strip()}"
        return
    report = json.loads(done.stdout)
    result.audited = {name: report[name] for name in AUDITED if name in report}


def _judge_exits(stage: Stage, played: Round, result: Result) -> None:
    """No relay may end of itself, but the one that was replaced must."""
    first, second = (slot.exits for slot in stage.slots)
    codes = [*first, *second]
    result.exits = dict(Counter(f"signal {-code}" if code < 0 else f"code {code}" for code in codes))
    if taken_over(played.faults):
        if first[-1:] == [REFUSED]:
            codes.remove(REFUSED)
        else:
            result.trouble = result.trouble or f"the relay that was replaced did not end as it has to: {first}"
    away = {UNREACHABLE} if CLUSTER_AWAY & set(played.faults) else set()
    if surprising := set(codes) - EXPECTED - away:
        result.trouble = result.trouble or f"a relay ended with {sorted(surprising)}"
