"""Compressed batches that expand: a relay passes each with a refusal, or stops its partition alone."""

from tests.integration.relay.counting import header
from tests.integration.relay.rig import MakeRelay, RelayRig
from tests.support import auditor
from tests.support.bombs import bomb
from tests.support.waiting import until

LIMIT, SIZE = 32 << 20, 160 << 20


def filled(rig: RelayRig, partition: int = 0) -> tuple[int, int]:
    rig.create(rig.source, max_message_bytes="50000000")
    rig.fill(100)
    place = bomb(rig.source, rig.topic, partition, "lz4", SIZE)
    rig.fill(100)
    return place


def test_batches_that_expand_go_to_the_refusal_topic(make_relay: MakeRelay) -> None:
    """One is there at the start, where it could have killed the process before; the client reports the other."""
    rig = make_relay(source={"expanded_bytes": LIMIT})
    refusals = f"{rig.name}.refusals"
    rig.configure(refusal_topic=refusals)
    first, last = filled(rig)
    relay = rig.start().ready()
    rig.wait_copied(200)
    later = bomb(rig.source, rig.topic, 1, "zstd", SIZE, records=10)
    rig.fill(100)
    rig.wait_copied(300)
    until(rig.at_rest, "the positions behind all of them")
    assert relay.metric("publisher_records_refused_total") == 2
    assert relay.metric("publisher_restarts_total") == 0
    assert relay.stop() == 0
    refused = {header(m, "refused.source").decode(): m for m in auditor.read(rig.destination, refusals)}
    assert set(refused) == {f"eu/{rig.topic}/0/{first}", f"eu/{rig.topic}/1/{later[0]}"}
    assert {header(m, "refused.reason") for m in refused.values()} == {b"unreadable-batch"}
    assert {m.value() for m in refused.values()} == {None}
    error = header(refused[f"eu/{rig.topic}/0/{first}"], "refused.error").decode()
    assert f"offsets {first} to {last} (lz4, " in error
    error = header(refused[f"eu/{rig.topic}/1/{later[0]}"], "refused.error").decode()
    assert f"offsets {later[0]} to {later[1]} (zstd, " in error
    report = rig.json("audit")
    counted = {name: report[name] for name in ("clean", "source", "copies", "refused")}
    assert counted == {"clean": True, "source": 311, "copies": 300, "refused": 11}


def test_without_a_refusal_topic_a_batch_that_expands_stops_its_partition_alone(make_relay: MakeRelay) -> None:
    rig = make_relay(source={"expanded_bytes": LIMIT})
    first, _ = filled(rig)
    relay = rig.start().ready()
    rig.wait_copied(175)
    until(lambda: relay.metric("publisher_partition_stopped") == 1, "the stop")
    status = rig.json("status", "--metrics", relay.endpoint)
    assert (
        f"{rig.topic}[0] stopped at offset {first}, which cannot be copied: unreadable-batch" in status["process"]["stopped"][0]
    )
    assert relay.metric("publisher_restarts_total") == 0
    assert relay.stop() == 0
