"""Offsets without an event, which are markers of transactions and aborted records, are passed and committed."""

import contextlib
import json

import pytest
from confluent_kafka import Producer

from tests.integration.relay.rig import RelayRig
from tests.integration.scorer.rig import MakeRig, Rig, ScorerProcess, until

EACH = 10  # events of a transaction


def transaction(producer: Producer, rig: Rig, partition: int, start: int, *, commit: bool) -> None:
    producer.begin_transaction()
    for number in range(start, start + EACH):
        producer.produce(rig.events_topic, json.dumps({"id": f"e{number}", "a": number, "b": 0}).encode(), partition=partition)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.flush(30)
        producer.abort_transaction(30)


def transactions(rig: Rig, start: int) -> int:
    """Write a committed transaction into partition 0, an aborted one into 1, and one after the other into 2; how many events
    are committed. Partition 3 gets none."""
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers, "transactional.id": f"{rig.name}.producer"})
    producer.init_transactions(30)
    transaction(producer, rig, 0, start, commit=True)
    transaction(producer, rig, 1, start + EACH, commit=False)
    transaction(producer, rig, 2, start + 2 * EACH, commit=True)
    transaction(producer, rig, 2, start + 3 * EACH, commit=False)
    return 2 * EACH


def level(rig: Rig, scorer: ScorerProcess) -> bool:
    """Whether no lag is left, as the scorer and as the group tell it: an autoscaler takes the ends less the group's offsets."""
    ends, committed = rig.ends(), {number: mark["offset"] for number, mark in rig.marks().items()}
    return committed == ends and scorer.metric("scorer_lag_records") == 0 and scorer.metric("scorer_lag_seconds") == 0


@pytest.mark.parametrize(
    ("delivery", "protocol"), [("exactly-once", "classic"), ("exactly-once", "consumer"), ("at-least-once", "classic")]
)
def test_markers_and_aborted_records_are_passed_and_committed(make_rig: MakeRig, delivery: str, protocol: str) -> None:
    rig = make_rig(delivery=delivery, kafka={"group_protocol": protocol}).stocked(4)
    scorer = rig.start().ready()
    events = transactions(rig, 0)
    until(lambda: rig.answered() == events, "the scores of what was committed")
    until(lambda: level(rig, scorer), "no lag")
    rig.assert_clean(events=events)
    scorer.kill()  # nothing is committed at the end
    rig.delete_records(rig.events_topic)
    scorer = rig.start().ready()
    events += transactions(rig, 100)
    until(lambda: rig.answered() == events, "the scores of what came after retention")
    until(lambda: level(rig, scorer), "no lag")
    assert scorer.metric("scorer_partition_paused") == 0
    rig.assert_audited(events=events // 2)
    commits = scorer.metric("scorer_commits_total")
    before = {number: mark["offset"] for number, mark in rig.marks().items()}
    rig.produce(b'{"id": "last", "a": 1, "b": 0}', key=b"k")
    until(lambda: rig.answered() == events + 1, "the score of one event more")
    until(lambda: level(rig, scorer), "no lag")
    assert sum(mark["offset"] for mark in rig.marks().values()) == sum(before.values()) + 1
    assert scorer.metric("scorer_commits_total") <= commits + 2  # an event outside a transaction leaves nothing to pass
    assert scorer.stop() == 0
    assert {mark["owner"] for mark in rig.marks().values()} == {""}


def test_markers_of_a_relay_that_writes_the_input_topic_are_passed_and_committed(make_rig: MakeRig) -> None:
    rig = make_rig().stocked(4)
    clusters = rig.bootstrap_servers, rig.bootstrap_servers
    relay_rig = RelayRig(clusters, rig.folder, f"{rig.name}-relay", destination={"topic": rig.events_topic})
    with contextlib.closing(relay_rig):
        relay_rig.create(relay_rig.source)
        relay, scorer = relay_rig.start().ready(), rig.start().ready()
        producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
        for number in range(3 * EACH):
            event = {"id": f"e{number}", "a": number, "b": 0}
            producer.produce(relay_rig.topic, json.dumps(event).encode(), partition=number % 3)  # partition 3 gets none
        assert producer.flush(30) == 0
        until(lambda: rig.answered() == 3 * EACH, "the scores of the copies")
        until(lambda: level(rig, scorer), "no lag")
        assert sum(rig.ends().values()) > 3 * EACH, "the relay writes transactions, which end with markers"
        rig.assert_clean(events=3 * EACH, dead_lettered=0)
        assert (relay.stop(), scorer.stop()) == (0, 0)
