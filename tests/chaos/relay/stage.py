"""The environment of a round: two clusters behind proxies, a relay between them, load and a reader. Runs the steps."""

import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from publisher.audit.report import FAULTS as AUDITED
from tests.chaos import rounds
from tests.chaos.cluster import Cluster, Node
from tests.chaos.plan import Step
from tests.chaos.relay.load import Records, Transactions
from tests.chaos.relay.plan import GROWN, SIDES, RelayRound
from tests.chaos.relay.result import RelayResult
from tests.chaos.rounds import audited, drained
from tests.chaos.stray import PRODUCE
from tests.chaos.supervised import Supervised
from tests.chaos.watch import Watch
from tests.integration.relay.counting import compare
from tests.integration.relay.rig import RelayRig
from tests.support import auditor
from tests.support.waiting import within

LAUNCHER = (sys.executable, "-m", "tests.chaos.relay.launcher")
STARTED, COPYING = "health and metrics on", " partitions of "  # texts of its log
READY_SECONDS = 60.0
WHILE_COPYING = frozenset({"arm", "restart-relay", "take-over", "freeze-relay"})


class Ground:
    """The parts that all rounds share: a source and a destination, one broker each, which are reached through proxies."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="scorestream-relay-rounds-"))
        self.clusters = {side: Cluster(1, stray_before=PRODUCE) for side in SIDES}

    def start(self) -> "Ground":
        for cluster in self.clusters.values():
            cluster.start()
        return self

    def node(self, side: str) -> Node:
        return self.clusters[side].nodes[0]

    def heal(self) -> None:
        for cluster in self.clusters.values():
            cluster.heal()

    def close(self) -> None:
        """End everything, and remove all but the logs of rounds that were kept."""
        for cluster in self.clusters.values():
            cluster.close()
        if not any(self.folder.glob("round-*")):
            shutil.rmtree(self.folder, ignore_errors=True)


class Stage(rounds.Stage[RelayResult]):
    """The topics, relay, load and reader of a round. `broken`: a relay that is wrong on purpose (`launcher.py`)."""

    rest_seconds = 1.0

    def __init__(self, ground: Ground, played: RelayRound, rate: float, broken: str | None) -> None:
        self.ground = ground
        self._played = played
        self.folder = ground.folder / f"round-{played.number}-{uuid.uuid4().hex[:6]}"
        self.folder.mkdir()
        direct = {side: ground.clusters[side].bootstrap_servers for side in SIDES}
        self.rig = RelayRig(
            (direct["source"], direct["destination"]),
            self.folder,
            self.folder.name,
            lanes=played.lanes,
            transaction_records=played.transaction_records,
            **{side: {"bootstrap_servers": cluster.proxied_servers} for side, cluster in ground.clusters.items()},
        )
        self.rig.create(direct["source"], partitions=played.partitions)
        self.slots = [self._slot(name, broken) for name in ("first", "second")]
        self.load = Records(direct["source"], self.rig.topic, rate, played.partitions)
        self.transactions = (
            Transactions(direct["source"], self.rig.topic, played.partitions, played.seed) if played.transactional else None
        )
        self.watch = Watch(direct["destination"], self.rig.topic, grows=True)
        self.crashes: list[str] = []
        self._armed = ""
        self._current = 0
        self.verbs = self._verbs()

    def _verbs(self) -> dict[str, Callable[[str], Any]]:
        proxies, node = {side: cluster.proxies for side, cluster in self.ground.clusters.items()}, self.ground.node
        return {
            "arm": self._arm,
            "kill-relay": lambda _: self.relay.send(signal.SIGKILL),
            "freeze-relay": lambda _: self.slots[0].send(signal.SIGSTOP),
            "thaw-relay": lambda _: self.slots[0].send(signal.SIGCONT),
            "take-over": lambda _: self._take_over(),
            "restart-relay": self._restart_with_lanes,
            "kill-broker": lambda side: node(side).kill(),
            "start-broker": lambda side: node(side).start(),
            "freeze-broker": lambda side: node(side).send(signal.SIGSTOP),
            "thaw-broker": lambda side: node(side).send(signal.SIGCONT),
            "cut": lambda side: proxies[side].cut(),
            "slow": lambda argument: proxies[argument.split()[0]].slow(float(argument.split()[1])),
            "hold": lambda side: proxies[side].hold(),
            "hold-endtxn": lambda _: proxies["destination"].hold_end_txn(),
            "add-partitions": lambda _: self._add_partitions(),
        }

    @property
    def relay(self) -> Supervised:
        return self.slots[self._current]

    @property
    def strays(self) -> int:
        return self.ground.clusters["destination"].proxies.stray.loosed

    @property
    def settled(self) -> bool:
        """Whether the relay copies, no armed crash is pending, and the replaced relay has ended."""
        first = self.slots[0]
        return not self.relay.armed and self.copying and (self.relay is first or not first.running)

    def begin(self) -> None:
        self.relay.start()
        if not within(lambda: self.copying, READY_SECONDS, self.tend):
            raise RuntimeError(f"the relay did not begin within {READY_SECONDS:.0f} s: {self.relay.log_text()}")
        self.load.start()
        if self.transactions is not None:
            self.transactions.start()

    def may(self, step: Step) -> bool:
        """Whether a step may run: a process that is to crash or to end must have begun to copy, and no armed crash may be
        pending."""
        return step.verb not in WHILE_COPYING or (self.copying and not self.relay.armed)

    @property
    def copying(self) -> bool:
        return self.relay.running and COPYING in self.relay.log_text().rpartition(STARTED)[2]

    def tend(self, now: float) -> None:
        for slot in self.slots:
            slot.tend(now)

    def heal(self) -> None:
        self.ground.heal()
        self._record_crash()
        for slot in self.slots:
            slot.disarm()
            slot.send(signal.SIGCONT)
        self.load.finish()
        if self.transactions is not None:
            self.transactions.finish()

    def count(self, result: RelayResult) -> None:
        """Let both auditors count all records of the round, after they are copied and the relays have ended."""
        rig = self.rig
        source = list(auditor.read(rig.source, rig.topic))
        result.records = len(source)
        numbered = {(m.partition(), m.offset()) for m in source if b'"id"' in (m.value() or b"")}
        result.lost_inputs = max(0, self.load.events - len(numbered))
        drained(self, len(source), result)
        self._end_relays()
        result.counts = compare(source, list(auditor.read(rig.destination, rig.topic)))
        audited(result, AUDITED, str(rig.path))
        result.judge_exits(self._played, *(slot.exits for slot in self.slots))

    def note(self, result: RelayResult) -> None:
        result.crashes = self.crashes
        result.ended([code for slot in self.slots for code in slot.exits])

    def _end_relays(self) -> None:
        for slot in self.slots:
            slot.end()

    def close(self, keep: bool) -> None:
        self.ground.heal()
        self.watch.close()
        self._end_relays()
        for servers, topic in (
            (self.rig.source, self.rig.topic),
            (self.rig.destination, self.rig.topic),
            (self.rig.destination, f"{self.rig.name}.checkpoints"),
        ):
            if self.rig.partitions(servers, topic):
                self.rig.delete(servers, topic)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _slot(self, name: str, broken: str | None) -> Supervised:
        command = [*LAUNCHER, "run", str(self.rig.path)]
        return Supervised(f"relay-{name}", self.folder, command, {"BROKEN": broken} if broken else {})

    def _arm(self, point: str) -> None:
        self._record_crash()
        self._armed = point
        self.relay.arm(point)
        if point.endswith(":init_transactions"):  # the next process reaches this point
            self.relay.send(signal.SIGKILL)

    def _record_crash(self) -> None:
        """Record the armed crash if it happened."""
        if self._armed and not self.relay.armed:
            self.crashes.append(self._armed)
        self._armed = ""

    def _take_over(self) -> None:
        self.slots[0].wanted = False
        self._current = 1
        self.relay.start()

    def _restart_with_lanes(self, lanes: str) -> None:
        slot = self.relay
        slot.command = [*slot.command[:5], "--set", f"lanes={lanes}"]
        slot.send(signal.SIGTERM)

    def _add_partitions(self) -> None:
        partitions = self.load.partitions + GROWN
        self.rig.grow(self.rig.source, partitions)
        self.load.widen(partitions)


def play(ground: Ground, played: RelayRound, rate: float, broken: str | None = None) -> RelayResult:
    result = RelayResult(played.number, played.seed, played.faults, lanes=played.lanes, transactional=played.transactional)
    return rounds.play(Stage(ground, played, rate, broken), played, result)
