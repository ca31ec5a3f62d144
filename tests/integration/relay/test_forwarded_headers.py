"""Programs that read copies and forward their headers, as Kafka Streams does, write records of their own."""

from confluent_kafka import Producer

from tests.integration.relay.counting import header
from tests.integration.relay.rig import MakeRelay
from tests.integration.relay.test_failover import commit, committed, outward
from tests.support import auditor
from tests.support.waiting import until


def derive(servers: str, topic: str, into: str) -> int:
    """What such a program does with each record of a topic; how many there were."""
    producer = Producer({"bootstrap.servers": servers})
    rows = list(auditor.read(servers, topic))
    for row in rows:
        producer.produce(into, row.value(), row.key(), row.partition() or 0, headers=row.headers())
    assert producer.flush(30) == 0
    return len(rows)


def test_records_derived_from_copies_are_copied_and_counted(make_relay: MakeRelay) -> None:
    rig = make_relay()
    rig.create(rig.source)
    rig.fill(200)
    outward = rig.start().ready()
    rig.wait_copied(200)
    derived = f"{rig.name}.derived"
    rig.create(rig.destination, derived)
    assert derive(rig.destination, rig.topic, derived) == 200
    back = make_relay()
    back.turn_round(derived)
    homeward = back.start().ready()
    back.wait_copied(200)
    assert homeward.metric("publisher_records_derived_total") == 200
    assert homeward.metric("publisher_records_looped_total") == 0
    assert outward.stop() == homeward.stop() == 0
    audit = back.json("audit")
    assert (audit["clean"], audit["source"], audit["copies"], audit["not_selected"]) == (True, 200, 200, 0)
    origins = {header(m, "x-origin").decode() for m in auditor.read(back.destination, derived)}
    assert origins == {f"us/{derived}/{p}/{offset}" for p in range(4) for offset in range(50)}


def test_a_foreign_origin_does_not_stop_a_failover(make_relay: MakeRelay) -> None:
    rig, group, copies = outward(make_relay)
    rig.fill(200, **{"x-origin": "ap/clicks/0/3", "x-hops": "1", "x-copied-to": "clicks/0"})  # type: ignore[arg-type]
    commit(rig.source, group, {(rig.topic, p): 20 + p for p in range(4)})
    relay = rig.start().ready()
    rig.wait_copied(200, copies)
    until(lambda: rig.json("failover", "--to", "us", "--dry-run")["lag_scored"] == 0, "the copies of what was scored")
    assert rig.json("failover", "--to", "us", "--yes")["moved"]
    assert {place: at for place, (at, _) in committed(rig.destination, group).items()} == {
        (copies, p): 20 + p for p in range(4)
    }
    assert relay.stop() == 0
