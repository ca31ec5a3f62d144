"""The environment of a round: a cluster with proxies, a registry with versions, scorers, load, a reader, and the steps."""

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions

from publisher.audit.report import FAULTS as AUDITED
from tests.chaos import rounds
from tests.chaos.cluster import Cluster, Node
from tests.chaos.faults import joined_rows
from tests.chaos.faults.fleet import Fleet
from tests.chaos.faults.foreign import Foreign, abort_transactions
from tests.chaos.faults.joined_rows import RowUpdates
from tests.chaos.faults.plan import SESSION_SECONDS, ScorerRound
from tests.chaos.load import Load
from tests.chaos.result import Result
from tests.chaos.rounds import audited, drained
from tests.chaos.watch import Watch
from tests.integration.scorer.rig import Rig
from tests.support import hostile_models, models
from tests.support.bombs import Codec, bomb
from tests.support.flood import ConnectionFlood
from tests.support.processes import LISTENING
from tests.support.waiting import until, within

PARTITIONS = 6
MIN_EVENTS = 200  # a round counts at least these, also after a step that deletes the records before it
VERSIONS = tuple(f"{number}.0.0" for number in range(1, 10))
FACTORS = {version: float(number) for number, version in enumerate(VERSIONS, 2)}
BAD_PACKAGES: dict[str, Callable[[Path], Path]] = {
    "lethal": lambda folder: hostile_models.package(folder, hostile_models.deep_tree),
    "refused": lambda folder: models.package(
        folder, lambda path: models.linear(path, 1.0), golden=[{"event": {"a": 1.0, "b": 2.0}, "score": 9.0, "tolerance": 1e-3}]
    ),
}
"""Versions that scorers must refuse: one kills the process that loads it, one fails its golden example."""
DISK_MB = 512
BOMB_BYTES = 160 << 20
READY_SECONDS = 60.0


class Ground:
    """The cluster and the registry that all rounds share. `disk_full`: the node's data on a small tmpfs. `tables`: the
    `when_behind` of a table that events are joined with; None for events without a table."""

    def __init__(self, brokers: int, disk_full: bool = False, tables: str | None = None) -> None:
        self.tables = tables
        self.folder = Path(tempfile.mkdtemp(prefix="scorestream-rounds-"))
        self.disk = self.folder / "disk" if disk_full else None
        if self.disk is not None:
            self.disk.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(self.disk)], check=True)
        self.cluster = Cluster(brokers, self.disk / "data" if self.disk else None)

    def start(self) -> "Ground":
        self.cluster.start()
        pushing = Rig(self.cluster.bootstrap_servers, self.folder, "pushing")
        for version, factor in FACTORS.items():
            make = models.joined_package if self.tables else models.linear_package
            pushing.push(make(self.folder / version, factor), version)
        for version, make_bad in BAD_PACKAGES.items():
            pushing.push_unchecked(make_bad(self.folder / version), version)
        return self

    @property
    def registry(self) -> Path:
        return self.folder / "registry"

    def close(self) -> None:
        """End everything. Of rounds that were not clean, keep the logs of scorers and brokers, and the small disk."""
        has_logs = any(self.folder.glob("round-*"))
        if has_logs:
            self.cluster.keep_logs(self.folder)
        self.cluster.close()
        if self.disk is not None:
            if has_logs:
                shutil.copytree(self.disk, self.folder / "records", ignore=shutil.ignore_patterns("ballast"))
            subprocess.run(["umount", str(self.disk)], check=False)
        if not has_logs:
            shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class ScorerResult(Result):
    """The outcome of a round with scorers. `inputs` are the events that the input topic holds."""

    COUNTED = ("missing", "duplicates", "phantoms", "out_of_order", "version_regressions")

    protocol: str = ""
    scorers: int = 0
    events: int = 0
    inputs: int = 0
    updates: int = 0
    oldest_row_seconds: float = 0.0
    """The longest time between the replacement of a row of a table and a score from it."""

    @property
    def played(self) -> str:
        joined = f", {self.updates} updates of rows, oldest row {self.oldest_row_seconds:.1f} s" if self.updates else ""
        return f"{self.protocol} {self.scorers} scorers: {self.events} events{joined}"


class Stage(rounds.Stage[ScorerResult]):
    """The topics, group, configuration, scorers, load and reader."""

    rest_seconds = 3.0

    def __init__(self, ground: Ground, played: ScorerRound, rate: float, broken: str | None = None) -> None:
        self.ground = ground
        self.name = f"round-{played.number}-{uuid.uuid4().hex[:6]}"
        self.folder = ground.folder / self.name
        self.folder.mkdir()
        self.registry = self.folder / "registry"
        self._hidden_registry = self.folder / "registry-away"
        self.registry.symlink_to(ground.registry)
        direct = ground.cluster.bootstrap_servers
        kafka = {"group_protocol": played.protocol, "session_timeout_ms": int(SESSION_SECONDS * 1_000)}
        self.rig = Rig(direct, self.folder, self.name, kafka=kafka)
        self.version = 0
        self.updates = self._add_table(ground.tables, played.seed) if ground.tables else None
        self.rig.promote(VERSIONS[0])
        self.rig.create(PARTITIONS)
        if self.updates is not None:
            self.updates.fill()
        self.rig.configure(kafka={"bootstrap_servers": ground.cluster.proxied_servers if played.proxied else direct})
        self.fleet = Fleet(self.folder, played.scorers, broken=broken)
        self.load = Load(direct, self.rig.events_topic, rate)
        self.foreign = Foreign(direct, self.rig.scores_topic)
        self.watch = Watch(direct, self.rig.scores_topic, self.rig.dead_topic)
        self.since_ms = 0
        self._bombs = 0
        self._bombing = threading.Lock()  # a bomb is before or after a change of the topic, and is counted there
        self._floods = ExitStack()
        self._working: list[threading.Thread] = []
        self._failed: list[Exception] = []
        self._killed: Node | None = None
        self.verbs = self._verbs()

    def _verbs(self) -> dict[str, Callable[[str], Any]]:
        proxies = self.ground.cluster.proxies
        return {
            "kill-scorer": lambda k: self._slot(k).send(signal.SIGKILL),
            "freeze-scorer": lambda k: self._slot(k).send(signal.SIGSTOP),
            "thaw-scorer": lambda k: self._slot(k).send(signal.SIGCONT),
            "stop-scorer": lambda k: self._slot(k).stop(),
            "start-scorer": self._want,
            "restart-scorer": lambda k: self._slot(k).send(signal.SIGTERM),
            "restart-with-clock": self._restart_with_clock,
            "arm": self._arm,
            "kill-broker": lambda k: self._node(k).kill(),
            "start-broker": lambda k: self._node(k).start(),
            "freeze-broker": lambda k: self._node(k).send(signal.SIGSTOP),
            "thaw-broker": lambda k: self._node(k).send(signal.SIGCONT),
            "kill-leader": self._kill_leader,
            "cut": lambda _: proxies.cut(),
            "slow": lambda seconds: proxies.slow(float(seconds)),
            "hold": lambda _: proxies.hold(),
            "hold-endtxn": lambda _: proxies.hold_end_txn(),
            "fill-disk": lambda _: self._fill_disk(),
            "free-disk": lambda _: self._free_disk(),
            "poison": self._poison,
            "swap": lambda _: self._swap(),
            "start-twin": lambda k: self.fleet.start_twin(int(k)),
            "stop-twins": lambda _: self.fleet.stop_twins(),
            "begin-foreign": lambda _: self._in_background(self.foreign.begin),
            "end-foreign": lambda _: self._in_background(self.foreign.end),
            "promote-bad": self._promote_bad,
            "abort-transactions": lambda count: self._in_background(lambda: self._abort_transactions(int(count))),
            "delete-scored": lambda _: self._in_background(self._delete_scored),
            "flood-connections": self._flood_connections,
            "end-flood": lambda _: self._floods.close(),
            "bomb": lambda codec: self._in_background(lambda: self._write_bomb(codec)),
            "add-partitions": lambda count: self._in_background(lambda: self._add_partitions(int(count))),
            "make-again": lambda _: self._in_background(self._recreate_topic),
            "registry-away": lambda _: self.registry.rename(self._hidden_registry),
            "registry-back": lambda _: self._hidden_registry.rename(self.registry),
        }

    @property
    def strays(self) -> int:
        return self.ground.cluster.proxies.stray.loosed

    def begin(self) -> None:
        self.fleet.start()
        within(lambda: all("assigned: " in slot.log_text() for slot in self.fleet.slots), READY_SECONDS, self.tend)
        self.load.start()
        if self.updates is not None:
            self.updates.start()

    def tend(self, now: float) -> None:
        self.fleet.tend(now)

    def heal(self) -> None:
        if self.ground.disk is not None:
            self._free_disk()
        self.ground.cluster.heal()
        if not self.registry.exists():
            self._hidden_registry.rename(self.registry)
        self.fleet.heal()
        self._floods.close()
        for thread in self._working:
            thread.join()
        self.foreign.end()
        if self._failed:
            raise self._failed[0]
        until(lambda: self.load.events >= MIN_EVENTS, f"{MIN_EVENTS} counted events")
        self.load.finish()
        if self.updates is not None:
            self.updates.finish()

    def count(self, result: ScorerResult) -> None:
        written = self.load.events + self._bombs
        drained(self, written, result)
        counts = self.rig.audit(self.since_ms)
        result.counts = {name: counts[name] for name in result.COUNTED}
        result.inputs = counts["inputs"]
        result.lost_inputs = max(0, written - result.inputs)
        if self.updates is not None:
            waits = self.ground.tables == "wait"
            joined, result.oldest_row_seconds = joined_rows.count(self.rig, self.updates, FACTORS, self.since_ms, waits=waits)
            result.counts |= joined
            result.updates = self.updates.updates
        arguments = ["--bootstrap-servers", self.rig.bootstrap_servers, "--input", self.rig.events_topic]
        arguments += ["--output", self.rig.scores_topic, "--dead", self.rig.dead_topic]
        audited(result, AUDITED, *arguments, "--swaps", f"{self.rig.name}.swaps", "--group", self.rig.name)

    def note(self, result: ScorerResult) -> None:
        result.events = self.load.events
        result.ended([code for slot in (*self.fleet.slots, *self.fleet.twins) for code in slot.exits])

    def close(self, keep: bool) -> None:
        self._floods.close()
        self.watch.close()
        self.fleet.close()
        admin = AdminClient({"bootstrap.servers": self.ground.cluster.bootstrap_servers})
        try:
            names = [name for name in admin.list_topics(timeout=10).topics if name.startswith(self.name + ".")]
            for deleted in admin.delete_topics(names).values():
                deleted.result()
        except KafkaException as error:  # for example if the round has left no broker
            print(f"topics of {self.name} are not deleted: {error}", file=sys.stderr)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _add_table(self, when_behind: str, seed: int) -> RowUpdates:
        """Configure the table and the feature log, and return the writer of rows.

        In every second round, each worker holds all rows.
        """
        table = {
            "topic": f"{self.name}.rows",
            "scope": "all" if seed % 2 else "partition",
            "when_behind": when_behind,
            "max_lag_seconds": joined_rows.MAX_LAG_SECONDS,
        }
        self.rig.configure(tables={joined_rows.TABLE: table}, features={"topic": f"{self.name}.features"})
        return RowUpdates(self.ground.cluster.bootstrap_servers, f"{self.name}.rows", seed)

    def _slot(self, number: str) -> Any:
        return self.fleet.slots[int(number)]

    def _want(self, number: str) -> None:
        self._slot(number).wanted = True

    def _arm(self, argument: str) -> None:
        number, _, point = argument.partition(" ")
        self._slot(number).arm(point)

    def _restart_with_clock(self, argument: str) -> None:
        number, _, hours = argument.partition(" ")
        slot = self._slot(number)
        slot.end()
        slot.start(int(hours))

    def _node(self, number: str) -> Node:
        if number == "killed":
            assert self._killed is not None
            return self._killed
        return self.ground.cluster.nodes[int(number)]

    def _kill_leader(self, topic: str) -> None:
        self._killed = self.ground.cluster.leader(topic)
        self._killed.kill()

    def _fill_disk(self) -> None:
        """Fill all free space, so that the next write of a segment fails."""
        assert self.ground.disk is not None
        with (self.ground.disk / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(1 << 16))

    def _free_disk(self) -> None:
        """Free the space, and start a broker that ended because of the full disk."""
        assert self.ground.disk is not None
        (self.ground.disk / "ballast").unlink(missing_ok=True)
        for node in self.ground.cluster.nodes:
            node.start()

    def _poison(self, share: str) -> None:
        self.load.poison = float(share)

    def _in_background(self, work: Callable[[], None]) -> None:
        """Run `work` beside other faults: it waits for unavailable brokers."""

        def run() -> None:
            try:
                work()
            except (AssertionError, KafkaException, RuntimeError) as error:
                self._failed.append(error)

        thread = threading.Thread(target=run, name="apart")
        self._working.append(thread)
        thread.start()

    def _add_partitions(self, count: int) -> None:
        """Add partitions to the input topic; if it is deleted at the moment, wait until it exists again."""
        topic = self.rig.events_topic

        def add() -> bool:
            try:
                partitions = len(self.rig.admin.list_topics(topic, timeout=10).topics[topic].partitions)
                self.rig.admin.create_partitions([NewPartitions(topic, partitions + count)])[topic].result()
            except (KafkaException, KeyError):
                return False
            return True

        until(add, "the partitions")

    def _recreate_topic(self) -> None:
        """Delete the input topic and create it again."""

        def between() -> None:
            time.sleep(0.01)  # a timestamp lies before or after it, never at it
            self.since_ms = time.time_ns() // 1_000_000
            self._bombs = 0
            self.watch.restart(self.since_ms)
            self.rig.make_again(self.rig.events_topic, PARTITIONS)

        with self._bombing:
            self.load.restart(between)

    def _swap(self) -> None:
        """Promote the next version, if there is one, by the command of the registry."""
        if self.version + 1 < len(VERSIONS) and self.registry.exists():
            self.version += 1
            self.rig.promote(VERSIONS[self.version])

    def _promote_bad(self, kind: str) -> None:
        """Promote a version that scorers must refuse, unless the registry is unavailable."""
        if self.registry.exists():
            self.rig.promote(kind)

    def _abort_transactions(self, count: int) -> None:
        topics = self.rig.admin.list_topics(self.rig.events_topic, timeout=READY_SECONDS).topics
        partitions = len(topics[self.rig.events_topic].partitions)
        abort_transactions(self.rig.bootstrap_servers, self.rig.events_topic, partitions, count)

    def _delete_scored(self) -> None:
        """Delete all records once they are scored, as retention does; only later events count from then on.

        The group's committed offsets must first reach the end of each partition, the transaction markers there included.
        """

        def scored() -> bool:
            try:
                marks, ends = self.rig.marks(), self.rig.ends()
            except KafkaException:  # a broker is down
                return False
            return all(marks.get(partition, {"offset": 0})["offset"] == end for partition, end in ends.items())

        def between() -> None:
            until(scored, "the committed offsets at the end of the input topic")
            self.rig.delete_records(self.rig.events_topic)
            time.sleep(0.01)  # a timestamp lies before or after it, never at it
            self.since_ms = time.time_ns() // 1_000_000
            self._bombs = 0
            self.watch.restart(self.since_ms)

        with self._bombing:
            self.load.restart(between)

    def _write_bomb(self, codec: Codec) -> None:
        with self._bombing:
            bomb(self.rig.bootstrap_servers, self.rig.events_topic, 0, codec, BOMB_BYTES)
            self._bombs += 1

    def _flood_connections(self, number: str) -> None:
        """Hold idle, slow and half-closed connections to a scorer's health port, unless it is not running."""
        address = self._slot(number).log_text().rpartition(LISTENING)[2].split('"')[0].split()
        if address:
            self._floods.enter_context(ConnectionFlood(address[0].removeprefix("http://")))
