"""`python -m tests.proofs.judge.bus`: what `scorer judge` costs an event, on a real broker.

Writes answers and a shadow's answers to a share of the events, and has them judged. Figures of the whole process, its start
included.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from rich.console import Console

from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.scores.record import RecordEncoder
from tests.integration.scorer.rig import Rig
from tests.support.processes import command
from tests.support.topics import settle

PARTITIONS, KEYS, CHUNK = 6, 20_000, 10_000
talk = Console(stderr=True, highlight=False)
OLD = RecordEncoder(model="flight-delay", version="1.0.0", digest="sha256:" + "a" * 64, role="champion", region="eu")
NEW = RecordEncoder(model="flight-delay", version="2.0.0", digest="sha256:" + "b" * 64, role="shadow", region="eu")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proofs.judge.bus", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--shadow", type=int, default=20, help="percent of the events that the shadow answers")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="scorestream-judge-") as name, EmbeddedBroker() as broker:
        rig = Rig(broker.bootstrap_servers, Path(name), "judged")
        made = [NewTopic(topic, PARTITIONS) for topic in ("judged.scores", "judged.scores.shadow", "judged.dead")]
        settle(rig.admin.create_topics(made))
        talk.print(f"writing {options.events:,} scores, and the shadow's of {options.shadow} %")
        _write(broker.bootstrap_servers, options.events, options.shadow)
        found = _judged(rig, options.events)
    print(json.dumps(found))
    return int(found["pairs"] != sum(_sampled(n, options.shadow) for n in range(options.events)))


def _sampled(n: int, percent: int) -> bool:
    return n % KEYS % 100 < percent


def _write(servers: str, count: int, percent: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    now = int(time.time() * 1_000)
    for start in range(0, count, CHUNK):
        some = range(start, min(start + CHUNK, count))
        for topic, encoder, mine in (
            ("judged.scores", OLD, some),
            ("judged.scores.shadow", NEW, [n for n in some if _sampled(n, percent)]),
        ):
            places, offsets = [("judged.events", n % PARTITIONS) for n in mine], [n // PARTITIONS for n in mine]
            scores = [b"0.%06d" % (n % 1_000_000) for n in mine]
            names = ["late" if n % 2 else "on time" for n in mine]
            made = encoder.encode(
                [f"flight-{n}" for n in mine], scores, names, places, offsets, [now] * len(mine), "scored", now
            )
            for n, value in zip(mine, made, strict=True):
                producer.produce(topic, value, b"key-%d" % (n % KEYS), n % PARTITIONS, timestamp=now)
        while len(producer) > 20 * CHUNK:
            producer.poll(0.1)
    if producer.flush(120):
        raise RuntimeError("the broker did not take the records")


def _judged(rig: Rig, events: int) -> dict[str, float]:
    timed = "import resource,subprocess,sys;subprocess.run(sys.argv[1:]);u=resource.getrusage(resource.RUSAGE_CHILDREN);"
    timed += "print(u.ru_utime+u.ru_stime,u.ru_maxrss,file=sys.stderr)"  # a small process: a child has its parent's peak
    verb = [command("scorer"), "judge", "scorer.yaml", "--json"]
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", timed, *verb], cwd=rig.folder, capture_output=True, check=True)
    seconds, found = time.monotonic() - began, json.loads(done.stdout)
    cpu, peak = map(float, done.stderr.split()[-2:])
    return {
        "events": events,
        "pairs": found["rules"][0]["pairs"],
        **found["dropped"],
        "seconds": round(seconds, 2),
        "cpu_s": round(cpu, 2),
        "cpu_us_per_event": round(cpu / events * 1e6, 3),
        "peak_mib": round(peak / 1_024),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
