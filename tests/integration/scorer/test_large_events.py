"""Large events: each passes up to the largest that is allowed, larger ones are dead-lettered, and memory stays bounded."""

import base64
import json
import random
from pathlib import Path

from confluent_kafka import Producer

from tests.integration.scorer.rig import MakeRig, Rig, ScorerProcess, until

MIB = 1_024 * 1_024


def write(rig: Rig, sizes: list[int]) -> None:
    """Events of these sizes in bytes, which do not compress."""
    chance = random.Random(7)
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers, "message.max.bytes": 10 * MIB})
    for number, size in enumerate(sizes):
        event = {"id": f"e{number}", "a": number, "b": 0, "pad": ""}
        event["pad"] = base64.b64encode(chance.randbytes(size))[: size - len(json.dumps(event))].decode()
        producer.produce(rig.events_topic, json.dumps(event), partition=number % 4)
        producer.poll(0)
    assert producer.flush(60) == 0


def peak(scorer: ScorerProcess) -> int:
    """The most memory that the process has had resident, in bytes."""
    status = Path(f"/proc/{scorer.worker}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) * 1_024


def test_the_largest_event_is_scored_and_a_larger_one_dead_lettered(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    rig.start().ready()
    write(rig, [1_000_000, 1_000_001, 1_048_000, 100])
    until(lambda: rig.answered() == 4, "all answers")
    assert {record["id"] for record in rig.scores()} == {"e0", "e3"}
    assert [letter["reason"] for letter in rig.dead()] == ["oversize"] * 2


def test_a_backlog_of_large_events_does_not_fill_the_memory(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    small, count = 200, 400
    write(rig, [100] * small + [900_000] * count)
    scorer = rig.start().ready()
    before = peak(scorer)
    until(lambda: rig.answered() == small + count, "all answers")
    assert peak(scorer) - before < 0.5 * count * 900_000, "the backlog was held in memory"
