"""A record that cannot be carried stops its partition alone, or goes to the refusal topic; nothing else is held up or lost."""

import random
import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Message, Producer

from publisher.errors import Fenced
from publisher.relay.checkpoints import record
from publisher.relay.copy_worker import CopyWorker
from publisher.relay.rate_limit import RateLimit
from publisher.relay.relay_state import LaneState
from publisher.relay.settings import load
from publisher.relay.transaction_writer import WorkerContext
from publisher.relay.transform import Route
from publisher.runtime.context import Context
from publisher.transactions.session import Record
from tests.chaos.fuzz.raw import RawProducer, RawRecord
from tests.integration.relay.counting import CLEAN, compare, header
from tests.integration.relay.rig import MakeRelay, RelayRig
from tests.support import auditor
from tests.support.waiting import until

DAY_MS = 86_400_000


def unreadable(rig: RelayRig, partition: int = 0) -> int:
    """A header name that is not UTF-8, as a client in C or Go writes it."""
    offset = sum(m.partition() == partition for m in auditor.read(rig.source, rig.topic))
    writer = RawProducer(rig.source)
    assert writer.write(rig.topic, partition, [RawRecord(b"raw", b"bad", ((b"\xff\xfe", b"1"),))]) == 0
    writer.close()
    return offset


def too_large(rig: RelayRig) -> int:
    """Within the limit of the source, beyond that of the destination, however it is compressed."""
    return put(rig, random.Random(1).randbytes(5_000), int(time.time() * 1_000))


def of_tomorrow(rig: RelayRig) -> int:
    return put(rig, b"bad", int(time.time() * 1_000) + DAY_MS)


def put(rig: RelayRig, value: bytes, stamp: int) -> int:
    delivered: list[Message] = []
    producer = Producer({"bootstrap.servers": rig.source})
    producer.produce(rig.topic, value, b"raw", 0, lambda _, m: delivered.append(m), timestamp=stamp, headers=[("a", b"1")])
    assert producer.flush(30) == 0
    return delivered[0].offset() or 0


KINDS: dict[str, Callable[[RelayRig], int]] = {
    "unreadable-headers": unreadable,
    "too-large": too_large,
    "invalid-timestamp": of_tomorrow,
}


def filled(rig: RelayRig, *reasons: str) -> dict[str, int]:
    """Records around one of each of these kinds that cannot be carried: the offsets of those, by the reason."""
    rig.create(rig.source, message_timestamp_after_max_ms=str(2**63 - 1), message_timestamp_type="CreateTime")
    rig.create(rig.destination, max_message_bytes="3000")
    rejected: dict[str, int] = {}
    for reason in reasons:
        rig.fill(100)
        rejected[reason] = KINDS[reason](rig)
    rig.fill(100)
    return rejected


def test_a_record_that_cannot_be_carried_goes_to_the_refusal_topic(make_relay: MakeRelay) -> None:
    rig = make_relay(lanes=2)
    refusals = f"{rig.name}.refusals"
    rig.configure(refusal_topic=refusals)
    rejected = filled(rig, *KINDS)
    relay = rig.start().ready()
    rig.wait_copied(400)
    until(rig.at_rest, "the positions behind all of them")
    assert relay.metric("publisher_records_refused_total") == 3
    assert relay.metric("publisher_restarts_total") == 0
    assert relay.stop() == 0
    letters = {header(m, "refused.reason").decode(): m for m in auditor.read(rig.destination, refusals)}
    places = {reason: header(m, "refused.source").decode() for reason, m in letters.items()}
    assert places == {reason: f"eu/{rig.topic}/0/{offset}" for reason, offset in rejected.items()}
    assert {m.key() for m in letters.values()} == {b"raw"}
    assert {reason: len(m.value() or b"") for reason, m in letters.items()} == {
        "unreadable-headers": 3,
        "too-large": 5_000,
        "invalid-timestamp": 0,
    }
    assert header(letters["too-large"], "a") == b"1"
    assert header(letters["unreadable-headers"], "refused.without") == b"headers"
    assert header(letters["invalid-timestamp"], "refused.without") == b"headers,value"
    audit = rig.json("audit")
    assert (audit["clean"], audit["missing"], audit["refused"], audit["copies"]) == (True, 0, 3, 400)
    assert counted(rig, rejected) == CLEAN


def counted(rig: RelayRig, rejected: dict[str, int]) -> dict[str, int]:
    """The copy held against the source without the records that cannot be carried."""
    rejected_positions = {(0, offset) for offset in rejected.values()}
    source = [m for m in auditor.read(rig.source, rig.topic) if (m.partition(), m.offset()) not in rejected_positions]
    return compare(source, list(auditor.read(rig.destination, rig.topic)))


def test_without_a_refusal_topic_it_stops_its_partition_alone(make_relay: MakeRelay) -> None:
    rig = make_relay()
    rejected = filled(rig, "unreadable-headers", "too-large")
    for reason, offset in rejected.items():
        relay = rig.start().ready()
        rig.fill(100)
        until(lambda relay=relay: relay.metric("publisher_partition_stopped") == 1, "the stop")  # type: ignore[misc]
        others = rig.written // 4 * 3
        until(lambda others=others: in_partitions(rig, 1, 2, 3) == others, "the copies of the others")  # type: ignore[misc]
        status = rig.json("status", "--metrics", relay.endpoint)
        assert f"{rig.topic}[0] stopped at offset {offset}, which cannot be copied: {reason}" in status["process"]["stopped"][0]
        assert [row["next"] for row in status["partitions"] if row["partition"] == 0] == [offset]
        assert relay.metric("publisher_restarts_total") == 0
        assert "publisher checkpoint set" in relay.said
        assert relay.stop() == 0
        rig.run("checkpoint", "set", "--topic", rig.topic, "--partition", "0", "--to", str(offset + 1))
    assert "max.message.bytes" in str(rig.json("check", code=1)["checks"])
    relay = rig.start().ready()
    rig.wait_copied(rig.written)
    assert relay.stop() == 0
    assert counted(rig, rejected) == CLEAN


def in_partitions(rig: RelayRig, *partitions: int) -> int:
    return sum(m.partition() in partitions for m in auditor.read(rig.destination, rig.topic))


def test_a_record_that_the_client_refuses_or_that_is_last_stops_only_its_partition(make_relay: MakeRelay) -> None:
    rig = make_relay(destination={"extra": {"message.max.bytes": 3_000}})
    rig.create(rig.source)
    rig.fill(40)
    too_large(rig)
    unreadable(rig, 1)  # its partition's end is told beside it
    relay = rig.start().ready()
    until(lambda: relay.metric("publisher_partition_stopped") == 2, "the stops")
    rig.fill(40)
    until(lambda: in_partitions(rig, 2, 3) == 40, "the copies of the others")
    assert in_partitions(rig, 0, 1) == 20
    assert relay.metric("publisher_restarts_total") == 0
    assert relay.stop() == 0


@pytest.mark.parametrize("beside", [0, 4])
def test_a_lane_that_was_replaced_while_it_searched_no_longer_writes(make_relay: MakeRelay, beside: int) -> None:
    """`beside`: records that are read together with the one that cannot be carried."""
    rig = make_relay(destination={"extra": {"message.max.bytes": 3_000}})
    for servers in (rig.source, rig.destination):
        rig.create(servers)
    rig.create(rig.destination, f"{rig.name}.checkpoints", partitions=1)
    too_large(rig)
    rig.fill(beside)
    settings, stopping = load(rig.path).settings, threading.Event()
    replaced: list[float] = []

    def seen() -> float:
        """Asked when the records are there, and the transaction that holds them is not begun."""
        if not replaced:
            replaced.append(time.monotonic())
            successor.open(registered)
        return time.monotonic()

    def checkpoint(route: Route) -> Record:
        return record(settings.checkpoint_topic, b"position", str(route.next).encode())

    def lane_of() -> CopyWorker:
        ended = threading.Event()
        shared = WorkerContext(settings, checkpoint, seen, Context(), lambda _: None, 1_000_000, RateLimit(0), stopping, ended)
        return CopyWorker(shared, LaneState(0))

    registered = record(settings.checkpoint_topic, b"registration", b"")
    lane, successor = lane_of(), lane_of()
    lane.open(registered)
    lane.add([Route("eu", rig.topic, partition, rig.topic, 0) for partition in (0, 1)])
    lane.start()
    until(lambda: lane.join(0.1) or bool(lane.state.stopped), "the end of the lane")
    rig.fill(4)
    until(lambda: lane.join(0.1) or rig.copied() > 0, "the end of the lane, or a copy")
    stopping.set()
    assert isinstance(lane.failure, Fenced), lane.failure
    assert rig.copied() == 0
    assert {m.key() for m in auditor.read(rig.destination, f"{rig.name}.checkpoints")} == {b"registration"}
    successor.join(0)
