"""`python -m tests rescore`: `scorer rescore` corrects each score of a wrong version once, despite `kill -9`, on a real broker.

`scorer run` scores the events with one version, `scorer rescore` corrects them with another and is killed at random moments. An
audit that shares no code with the product then compares each correction with its score. The exit code is 1 if a correction is
missing, duplicated, out of order, or wrong.
"""

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from scorer.demo.broker.embedded import EmbeddedBroker
from tests.integration.scorer.rig import Rig, command
from tests.support import auditor
from tests.support.processes import Program
from tests.support.waiting import until

PARTITIONS = 6
TIMEOUT_SECONDS = 1_800.0
LARGEST = 1_000_000  # whole numbers that float32 and the factors of the test models hold exactly


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests rescore", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    chance = random.Random(options.seed)
    with EmbeddedBroker(quick_start=False) as broker, tempfile.TemporaryDirectory() as folder:
        rig = Rig(broker.bootstrap_servers, Path(folder), "rescored").stocked(PARTITIONS, versions=2)
        with contextlib.closing(rig):
            digest = _scored(rig, options.events)
            began = time.monotonic()
            kills = _corrected(rig, digest, options.kills, chance)
            seconds = time.monotonic() - began
            counts = _count(rig, digest)
    damage = {name: number for name, number in counts.items() if name != "scores" and number}
    complete = counts["scores"] == options.events and kills == options.kills
    print(json.dumps({"events": options.events, "kills": kills, "seconds": round(seconds, 1), **counts}))
    return 0 if complete and not damage else 1


def _scored(rig: Rig, count: int) -> str:
    """Score `count` events with 1.0.0, then promote 2.0.0; return the digest of 1.0.0."""
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers, "linger.ms": 20, "partitioner": "murmur2_random"})
    for number in range(count):
        while len(producer) > 50_000:
            producer.poll(0.05)
        producer.produce(rig.events_topic, b'{"id":"e%d","a":%d,"b":0}' % (number, number % LARGEST), b"k%d" % (number % 1_000))
    if producer.flush(120):
        raise RuntimeError("the broker did not take the events")
    scorer = rig.start()
    until(lambda: rig.answered() >= count, "the scores", TIMEOUT_SECONDS)
    if code := scorer.stop():
        raise RuntimeError(f"the scorer ended with code {code}")
    rig.promote("2.0.0")
    first = next(auditor.read(rig.bootstrap_servers, rig.scores_topic))
    return str(json.loads(first.value() or b"")["digest"])


def _corrected(rig: Rig, digest: str, kills: int, chance: random.Random) -> int:
    """Rescore, and kill the process up to `kills` times after it has begun to write; return the number of kills."""
    killed = 0
    while True:
        before = _written(rig)
        program = Program([command("scorer"), "rescore", str(rig.path), "--digest", digest], rig.folder / "rescore.log")
        while killed < kills and not program.ended and _written(rig) == before:
            time.sleep(0.02)
        if killed < kills and not program.ended:
            time.sleep(chance.uniform(0.0, 0.5))
            program.kill()
            killed += 1
            continue
        if code := program.wait():
            raise RuntimeError(f"scorer rescore ended with code {code}: {program.said[-2_000:]}")
        return killed


def _written(rig: Rig) -> int:
    topic = f"{rig.name}.rollouts"
    consumer = Consumer({"bootstrap.servers": rig.bootstrap_servers, "group.id": "look"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
    finally:
        consumer.close()


def _count(rig: Rig, digest: str) -> dict[str, int]:
    """Count the scores of the digest, and the faults of their corrections."""
    scores: dict[tuple[int, int], tuple[str, int]] = {}
    for message in auditor.read(rig.bootstrap_servers, rig.scores_topic):
        record = json.loads(message.value() or b"")
        if record["digest"] == digest:
            scores[message.partition() or 0, message.offset() or 0] = record["id"], record["scored_ms"]
    counts = {"scores": len(scores), "missing": 0, "doubled": 0, "wrong": 0, "out_of_order": 0}
    corrected: set[tuple[int, int]] = set()
    last: dict[int, int] = {}
    for message in auditor.read(rig.bootstrap_servers, f"{rig.scores_topic}.corrections"):
        record, headers = json.loads(message.value() or b""), dict(message.headers() or ())
        *_, partition, offset = str(headers["corrects"], "ascii").split("/")  # type: ignore[arg-type]
        place = int(partition), int(offset)
        id_, scored_ms = scores.get(place, ("", 0))
        right = record["id"] == id_ and record["score"] == 3.0 * (int(id_[1:]) % LARGEST) and record["scored_ms"] > scored_ms
        counts["wrong"] += not right or message.partition() != place[0]
        counts["doubled"] += place in corrected
        counts["out_of_order"] += place[1] < last.get(place[0], -1)
        last[place[0]] = place[1]
        corrected.add(place)
    counts["missing"] = len(scores.keys() - corrected)
    return counts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
