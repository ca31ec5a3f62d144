"""Everything arrives once, in order and as it was, through the installed command on two real clusters."""

import signal

from confluent_kafka import Producer

from tests.integration.relay.counting import CLEAN
from tests.integration.relay.rig import MakeRelay, RelayRig
from tests.support import auditor
from tests.support.waiting import until


def test_all_but_aborted_records_are_copied_with_their_origin(make_relay: MakeRelay) -> None:
    rig = make_relay(source={"region": "eu-west"}, destination={"topic": "{region}.{topic}"})
    rig.create(rig.source, retention_ms="-1")
    producer = Producer({"bootstrap.servers": rig.source})
    producer.produce(rig.topic, None, b"tombstone", 1, timestamp=5, headers=[("a", b"1"), ("a", b"2"), ("n", None)])
    producer.produce(rig.topic, b"", None, 3)
    producer.flush()
    rig.fill(2_000)
    write_and_abort(rig)
    relay = rig.start().ready()
    target = f"eu-west.{rig.topic}"
    rig.wait_copied(2_007, target)
    until(rig.at_rest, "the position behind the last marker")
    assert rig.audit(target=target) == CLEAN
    assert rig.config(rig.destination, target)["retention.ms"] == "-1"
    first = next(m for m in auditor.read(rig.destination, target) if m.key() == b"tombstone")
    assert first.headers()[-3:] == [  # type: ignore[index]
        ("x-origin", f"eu-west/{rig.topic}/1/0".encode()),
        ("x-hops", b"1"),
        ("x-copied-to", f"{target}/1".encode()),
    ]
    assert relay.stop() == 0
    rig.fill(500)
    relay = rig.start().ready()
    rig.wait_copied(2_507, target)
    assert relay.stop() == 0
    assert rig.audit(target=target) == CLEAN


def write_and_abort(rig: RelayRig) -> None:
    """Ten transactions of one record, every other one aborted."""
    producer = Producer({"bootstrap.servers": rig.source, "transactional.id": rig.name})
    producer.init_transactions(30)
    for number in range(10):
        producer.begin_transaction()
        producer.produce(rig.topic, b"%d" % number, None, 0, headers=[("number", b"%d" % number)])
        producer.flush()
        (producer.commit_transaction if number % 2 else producer.abort_transaction)(30)


def test_partitions_and_topics_that_come_later_are_copied(make_relay: MakeRelay) -> None:
    rig = make_relay()
    rig.configure(source={"topics": [f"^{rig.name}\\..*scores$"]})
    rig.create(rig.source, partitions=2)
    rig.fill(100, partitions=2)
    relay = rig.start().ready()
    rig.wait_copied(100)
    rig.grow(rig.source, 5)
    later = f"{rig.name}.later-scores"
    rig.create(rig.source, later)
    until(lambda: rig.partitions(rig.source, rig.topic) == 5, "the partitions")
    rig.fill(500, partitions=5)
    rig.wait_copied(600)
    rig.fill(100, later)
    rig.wait_copied(100, later)
    assert rig.audit() == CLEAN
    assert rig.audit(later) == CLEAN
    assert relay.stop() == 0


def test_records_do_not_go_round_in_circles(make_relay: MakeRelay) -> None:
    rig = make_relay()
    rig.create(rig.source)
    rig.fill(200)
    back = make_relay()
    back.turn_round(rig.topic)
    outward = rig.start().ready()
    rig.wait_copied(200)
    message = back.refused()
    assert f"{rig.topic}[0] has no checkpoint" in message
    back.run("checkpoint", "set", "--topic", rig.topic, "--to", "earliest")
    homeward = back.start().ready()
    rig.fill(300)
    rig.fill(100, servers=rig.destination)
    until(lambda: len(list(auditor.read(rig.source, rig.topic))) >= 600, "the copies in both")
    rig.wait_copied(600)
    until(lambda: homeward.metric("publisher_records_looped_total") == 500, "the loops that were cut")
    until(lambda: outward.metric("publisher_records_looped_total") == 100, "the loops that were cut")
    assert len(list(auditor.read(rig.source, rig.topic))) == 600
    assert rig.copied() == 600
    assert outward.stop() == homeward.stop() == 0


def test_a_frozen_process_that_was_replaced_no_longer_writes(make_relay: MakeRelay) -> None:
    rig = make_relay(lanes=4)
    rig.create(rig.source)
    rig.fill(2_000)
    zombie = rig.start("bytes_per_second=40000").ready()
    until(lambda: zombie.metric("publisher_records_total") > 100, "the first copies")
    zombie.send(signal.SIGSTOP)
    rig.fill(500)
    successor = rig.start("lanes=1").ready()
    rig.wait_copied(2_500)
    zombie.send(signal.SIGCONT)
    assert zombie.wait() == 3, zombie.said
    assert "another process took over" in zombie.said
    rig.fill(100)
    rig.wait_copied(2_600)
    assert successor.stop() == 0
    assert rig.audit() == CLEAN
