"""The audit on a real broker: open transactions, aborted ones, every kind of damage, and a window of time."""

import json
import threading
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from publisher.audit.event_audit import EventReport
from publisher.audit.scorer_audit import AuditScope, audit
from publisher.kafka.clients import KafkaSettings
from tests.support import auditor
from tests.support.fixtures import MakeTopics
from tests.support.shared_broker import Broker

FAULTS = EventReport().faults
NO_CANARY = {"misassigned": 0}  # without shares no score can be another arm's: test_canary.py has some that are
T0 = 1_700_000_000_000  # Unix ms of the first event; one a second, the partitions in turn
Score = tuple[int, int, str]
"""(source partition, source offset, version)"""


class Bench:
    """Two partitions of 50 events, and a transactional producer that answers them."""

    def __init__(self, servers: str, name: str, make_topics: MakeTopics) -> None:
        self.servers, self.group = servers, f"{name}.group"
        self.events, self.scores, self.dead = make_topics("events", "scores", "dead", partitions=2)
        self.plain = Producer({"bootstrap.servers": servers})
        for number in range(100):
            self.plain.produce(self.events, b"{}", partition=number % 2, timestamp=T0 + number * 1_000)
        self.plain.flush()
        # a client may wait for a group's coordinator until one of its connections changes (librdkafka #5456): soon, then
        settings = {"bootstrap.servers": servers, "connections.max.idle.ms": 5_000}
        self.producer = Producer({**settings, "transactional.id": name})
        self.producer.init_transactions()

    def answer(self, scores: Iterable[Score], commit: dict[int, int]) -> None:
        self.producer.begin_transaction()
        for partition, offset, version in scores:
            source = {"topic": self.events, "partition": partition, "offset": offset}
            record = {"id": f"{partition}-{offset}", "status": "scored", "digest": version, "version": version, "revision": 0}
            at = T0 + (2 * offset + partition) * 1_000
            self.producer.produce(self.scores, json.dumps(record | {"source": source}), partition=partition, timestamp=at)
        offsets = [TopicPartition(self.events, partition, offset) for partition, offset in commit.items()]
        member = Consumer({"bootstrap.servers": self.servers, "group.id": self.group})
        if offsets:
            self.producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata())
        self.producer.flush()
        member.close()

    def audit(self, from_ms: int | None = None, to_ms: int | None = None) -> dict[str, Any]:
        plan = AuditScope([self.events], [self.scores], [self.dead], (), self.group, from_ms, to_ms)
        return audit(KafkaSettings(bootstrap_servers=self.servers), plan).to_dict()

    def second(self) -> dict[str, int]:
        return auditor.audit(self.servers, self.events, self.scores, self.dead)


def run_of(start: int, stop: int) -> list[Score]:
    return [(partition, offset, "1") for partition in (0, 1) for offset in range(start, stop)]


def test_open_transactions_are_waited_for_and_aborted_ones_are_skipped(
    broker: Broker, unique: str, make_topics: MakeTopics
) -> None:
    bench = Bench(broker.bootstrap_servers, unique, make_topics)
    bench.answer(run_of(0, 20), {0: 20, 1: 20})
    bench.producer.commit_transaction()
    bench.answer(run_of(20, 30), {})
    bench.producer.abort_transaction()
    report = bench.audit()
    assert (report["clean"], report["scored"], report["pending"]) == (True, 40, 60)
    bench.answer(run_of(20, 50), {0: 50, 1: 50})
    reports: list[dict[str, Any]] = []
    reading = threading.Thread(target=lambda: reports.append(bench.audit()))
    reading.start()
    reading.join(2)
    assert reading.is_alive(), "it must wait for the open transaction"
    bench.producer.commit_transaction()
    reading.join(60)
    assert (reports[0]["clean"], reports[0]["scored"], reports[0]["pending"]) == (True, 100, 0)
    assert not any(bench.second()[fault] for fault in ("missing", "duplicates", "phantoms", "out_of_order"))


def test_each_damage_is_found_by_both_auditors_and_only_inside_the_window(
    broker: Broker, unique: str, make_topics: MakeTopics
) -> None:
    bench = Bench(broker.bootstrap_servers, unique, make_topics)
    damaged = [(0, offset, "1") for offset in (40, 40, 42, 43, 45, 44)]  # 40 twice, 41 never, 44 after 45
    swapped = [(0, 46, "2"), (0, 47, "1"), (0, 48, "2"), (0, 49, "2")]  # 47 by the older version
    invented = [(1, offset, "1") for offset in (*range(40, 50), 77)]  # 77 was never an event
    bench.answer([*run_of(0, 40), *damaged, *swapped, *invented], {0: 50, 1: 49})  # (1, 49) not committed
    bench.producer.commit_transaction()
    report, second = bench.audit(), bench.second()
    assert {fault: report[fault] for fault in FAULTS} == {**dict.fromkeys(FAULTS, 1), **NO_CANARY, "unreadable": 0}
    alone = {"uncommitted", "unreadable", "misassigned"}  # faults that the second auditor does not look for
    assert second == {"inputs": 100} | {fault: report[fault] for fault in FAULTS if fault not in alone}
    places = {fault: position.removeprefix(f"{bench.events}/") for fault, (position,) in report["examples"].items()}
    assert places == {
        "missing": "0/41",
        "duplicates": "0/40",
        "phantoms": "1/77",
        "out_of_order": "0/44",
        "version_regressions": "0/47",
        "uncommitted": "1/49",
    }
    early = bench.audit(None, T0 + 80_000)
    assert (early["events"], early["scored"], early["missing"], early["duplicates"]) == (80, 80, 0, 0)
    late = bench.audit(T0 + 80_000)
    assert (late["events"], late["scored"], late["missing"], late["duplicates"]) == (20, 20, 1, 1)
