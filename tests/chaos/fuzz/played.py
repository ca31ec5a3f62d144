"""The cases and findings of a round of the newer modes, and checks for stalled partitions. Shares no product code."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.integration.scorer.rig import Rig, ScorerProcess
from tests.support.waiting import within

STILL_SECONDS = 30.0
WAIT_SECONDS = 240.0
SHOWN = 1_000  # characters of a log
TRACEBACK = "Traceback (most recent call last)"


@dataclass
class Played:
    """One round: how many hostile `cases` it had, counts of their outcomes, and a line per finding."""

    seed: int
    title: str
    cases: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


class Positions:
    """The backlog of a rig's group, and the time for which each partition with a backlog has stalled."""

    def __init__(self, rig: Rig, partitions: int) -> None:
        self._admin = AdminClient({"bootstrap.servers": rig.bootstrap_servers})
        self._group, self._topic = rig.name, rig.events_topic
        self._partitions = range(partitions)
        self._moved: dict[int, tuple[int, float]] = {}
        self.longest: dict[int, float] = {}
        self.backlog = 0

    def take_snapshot(self, now: float) -> None:
        """Take a snapshot at `now` (monotonic seconds)."""
        groups = [ConsumerGroupTopicPartitions(self._group)]
        committed_offsets = self._admin.list_consumer_group_offsets(groups)[self._group].result().topic_partitions or []
        committed = {p.partition: p.offset for p in committed_offsets if p.topic == self._topic}
        spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        places = {TopicPartition(self._topic, number): spec for number in self._partitions}
        futures = self._admin.list_offsets(places, isolation_level=IsolationLevel.READ_COMMITTED)
        ends = {place.partition: future.result().offset for place, future in futures.items()}
        self.backlog = 0
        for number, end in ends.items():
            at = max(0, committed.get(number, 0))
            self.backlog += end - at
            before, since = self._moved.get(number, (-1, now))
            if at != before or at == end:
                self._moved[number] = at, now
            else:
                self.longest[number] = max(self.longest.get(number, 0.0), now - since)

    def drained(self) -> bool:
        self.take_snapshot(time.monotonic())
        return self.backlog == 0


def drain(played: Played, positions: Positions, scorers: list[ScorerProcess]) -> None:
    """Wait until everything is committed. Findings: a backlog, a stalled partition, a process that ended or died."""
    ended: Callable[[], bool] = lambda: any(scorer.ended for scorer in scorers)  # noqa: E731
    if not within(lambda: positions.drained() or ended(), WAIT_SECONDS, every=0.5) or positions.backlog:
        played.findings.append(f"{positions.backlog} records are not answered: {scorers[0].said[-SHOWN:]}")
    for number, seconds in positions.longest.items():
        if seconds > STILL_SECONDS:
            played.findings.append(f"partition {number} stalled for {seconds:.0f} s")
    for scorer in scorers:
        if scorer.ended:
            played.findings.append(f"the scorer ended with {scorer.process.returncode}: {scorer.said[-SHOWN:]}")
        if scorer.deaths:
            played.findings.append(f"{scorer.deaths} workers died: {scorer.said[-SHOWN:]}")
        if TRACEBACK in scorer.said:
            at = scorer.said.index(TRACEBACK)
            played.findings.append(f"a traceback: {scorer.said[at : at + SHOWN]}")
