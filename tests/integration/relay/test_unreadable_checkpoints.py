"""Unreadable records of the checkpoint topic: others' are skipped, a relay's own stop it with the way out."""

from confluent_kafka import Producer

from publisher.relay import checkpoints
from tests.integration.relay.counting import CLEAN
from tests.integration.relay.rig import MakeRelay, RelayRig
from tests.support.hostile_records import BYTES, KEYS

OTHER = (
    checkpoints.encode_key("another", "eu", "t", 0),
    checkpoints.encode_key("another"),
    checkpoints.encode_key("another", checkpoints.SOURCE_SNAPSHOT),
    *(key for key in KEYS if key is not None),
)
KINDS = ("deep array", "400 digits", "invalid UTF-8", "null", "binary", "deep object")


def test_foreign_records_in_the_checkpoints_stop_no_relay(make_relay: MakeRelay) -> None:
    rig = make_relay(lanes=2).run_once(400)
    for kind in KINDS:
        write(rig, *((key, BYTES[kind]) for key in OTHER))
    relay = rig.start().ready()
    rig.fill(100)
    rig.wait_copied(500)
    assert relay.metric("publisher_unreadable_checkpoints") == 6, (
        "three keys of another relay, and three that are names of relays"
    )
    status = rig.json("status")
    assert status["error"] is None
    assert "checkpoints[0]@" in rig.run("status").stderr
    assert rig.audit() == CLEAN
    assert relay.stop() == 0


def test_an_own_unreadable_position_is_named_and_can_be_set_or_forgotten(make_relay: MakeRelay) -> None:
    rig = make_relay(lanes=2).run_once(400)
    position = checkpoints.encode_key(rig.name, "eu", rig.topic, 1)
    write(rig, (position, BYTES["deep object"]))
    message = rig.refused()
    assert f"the position of {rig.topic}[1] is unreadable: {rig.name}.checkpoints[0]@" in message, message
    assert f"publisher checkpoint set CONFIG --topic {rig.topic} --partition 1 --to OFFSET" in message.split('"hint": ')[1], (
        message
    )
    for command in (("status",), ("audit",)):
        assert "is unreadable" in rig.run(*command, code=3).stderr
    moves = rig.json("checkpoint", "set", "--topic", rig.topic, "--partition", "1", "--to", "100")["positions"]
    assert [move["after"] for move in moves] == [100]

    write(rig, (position, BYTES["NaN"]))
    forgotten = rig.json("checkpoint", "reset")["positions"]
    assert len(forgotten) == 4
    rig.json("checkpoint", "set", "--topic", rig.topic, "--to", "100")

    write(rig, (checkpoints.encode_key(rig.name), BYTES["deep array"]))
    assert f"the registration of relay {rig.name!r} is unreadable" in rig.refused()
    rig.json("checkpoint", "set", "--topic", rig.topic, "--to", "100")
    relay = rig.start().ready()
    rig.fill(100)
    rig.wait_copied(500)
    assert relay.stop() == 0


def write(rig: RelayRig, *records: tuple[bytes, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": rig.destination, "message.max.bytes": 2_000_000})
    for key, value in records:
        producer.produce(f"{rig.name}.checkpoints", value, key, partition=0)
    assert producer.flush(20) == 0
