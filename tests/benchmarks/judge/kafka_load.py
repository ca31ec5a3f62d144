"""`python -m tests.benchmarks.judge.kafka_load`: what `scorer judge` costs an event, on a real broker.

Writes answers and a shadow's answers to a share of the events, and has them judged. Figures of the whole process, its start
included; with `--rate` of a judge that follows while so many events a second come: its share of a core, and its lag.
"""

import argparse
import json
import os
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
from tests.support.waiting import until

PARTITIONS, KEYS, CHUNK = 6, 20_000, 10_000
talk = Console(stderr=True, highlight=False)
OLD = RecordEncoder(model="flight-delay", version="1.0.0", digest="sha256:" + "a" * 64, role="champion", region="eu")
NEW = RecordEncoder(model="flight-delay", version="2.0.0", digest="sha256:" + "b" * 64, role="shadow", region="eu")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.judge.kafka_load", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--shadow", type=int, default=20, help="percent of the events that the shadow answers")
    parser.add_argument("--rate", type=int, default=0, help="events a second; 0: all are there before the judge begins")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="scorestream-judge-") as name, EmbeddedBroker() as broker:
        rig = Rig(broker.bootstrap_servers, Path(name), "judged")
        made = [NewTopic(topic, PARTITIONS) for topic in ("judged.scores", "judged.scores.shadow", "judged.dead")]
        settle(rig.admin.create_topics(made))
        talk.print(f"writing {options.events:,} scores, and the shadow's of {options.shadow} %")
        if options.rate:
            found = _followed(rig, options.events, options.shadow, options.rate)
        else:
            _write(broker.bootstrap_servers, range(options.events), options.shadow)
            found = _judged(rig, options.events)
    print(json.dumps(found))
    return int(found["pairs"] != sum(_sampled(n, options.shadow) for n in range(int(found["events"]))))


def _sampled(n: int, percent: int) -> bool:
    return n % KEYS % 100 < percent


def _write(servers: str, events: range, percent: int, rate: int = 0) -> None:
    began = time.monotonic()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for start in range(0, len(events), CHUNK):
        some, now = events[start : start + CHUNK], int(time.time() * 1_000)
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
        if rate:
            time.sleep(max(0.0, began + (start + CHUNK) / rate - time.monotonic()))
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


def _followed(rig: Rig, events: int, percent: int, rate: int) -> dict[str, float]:
    """The judge begins when the first second's events are there; its share of a core is that of the time after its start."""
    first, rest = range(rate), range(rate, rate + events)
    _write(rig.bootstrap_servers, first, percent)
    told = rig.folder / "judge.jsonl"
    verb = [command("scorer"), "judge", "scorer.yaml", "--json", "--follow", "--bake", "1h"]
    with told.open("wb") as out, subprocess.Popen(verb, cwd=rig.folder, stdout=out) as judge:
        until(lambda: told.stat().st_size, "the first judgement")
        before, began = _cpu_seconds(judge.pid), time.monotonic()
        _write(rig.bootstrap_servers, rest, percent, rate)
        share = (_cpu_seconds(judge.pid) - before) / (seconds := time.monotonic() - began)
        written = sum(_sampled(n, percent) for n in range(rest.stop))
        until(lambda: _pairs(told) == written, "all pairs")
        peak = next(line.split()[1] for line in _status(judge.pid) if line.startswith("VmHWM"))
        judge.terminate()
    lags = [row["behind_seconds"] for row in map(json.loads, told.read_text().splitlines())]
    return {
        "events": rest.stop,
        "pairs": _pairs(told),
        "rate": round(events / seconds),
        "cores": round(share, 3),
        "lag_p50_s": sorted(lags)[len(lags) // 2],
        "lag_max_s": max(lags),
        "peak_mib": round(int(peak) / 1_024),
    }


def _pairs(told: Path) -> int:
    *_, last = told.read_text().splitlines()
    pairs: int = json.loads(last)["rules"][0]["pairs"]
    return pairs


def _status(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/status").read_text().splitlines()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
