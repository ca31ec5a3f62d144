"""Large events: each passes up to the largest that is allowed, larger ones are dead-lettered, and memory stays bounded."""

import base64
import json
import random
from pathlib import Path

from confluent_kafka import Producer

from tests.integration.scorer.rig import MakeRig, Rig, ScorerProcess, until
from tests.support.waiting import STEP_SECONDS

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
    assert producer.flush(STEP_SECONDS) == 0


def peak(scorer: ScorerProcess) -> int:
    status = Path(f"/proc/{scorer.worker}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) * 1_024


def test_the_largest_events_are_scored_larger_ones_dead_lettered_and_a_backlog_does_not_fill_the_memory(
    make_rig: MakeRig,
) -> None:
    rig = make_rig().stocked()
    sizes = [1_000_000, 1_000_001, 1_048_000] + [100] * 200 + [900_000] * 400
    write(rig, sizes)
    scorer = rig.start().ready()
    before = peak(scorer)
    until(lambda: rig.answered() == len(sizes), "all answers")
    assert peak(scorer) - before < 0.5 * 400 * 900_000, "the backlog was held in memory"
    assert {record["id"] for record in rig.scores()} == {f"e{n}" for n in range(len(sizes)) if n not in (1, 2)}
    assert [letter["reason"] for letter in rig.dead()] == ["oversize"] * 2
