"""`python -m tests.benchmarks.judge.kafka_load`: the cost of `scorer judge` per event, on a real broker.

Writes scores, and scores of a shadow for a share of the events, and runs the judge. The figures are those of the whole process,
start included. With `--rate`, the judge follows events at that rate; the figures are its share of a core and its lag.
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
console = Console(stderr=True, highlight=False)
OLD = RecordEncoder(model="flight-delay", version="1.0.0", digest="sha256:" + "a" * 64, role="champion", region="eu")
NEW = RecordEncoder(model="flight-delay", version="2.0.0", digest="sha256:" + "b" * 64, role="shadow", region="eu")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.judge.kafka_load", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--shadow", type=int, default=20, help="percent of the events that the shadow answers")
    parser.add_argument("--rate", type=int, default=0, help="events per second; 0: write all before the judge starts")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="scorestream-judge-") as name, EmbeddedBroker() as broker:
        rig = Rig(broker.bootstrap_servers, Path(name), "judged")
        topics = [NewTopic(topic, PARTITIONS) for topic in ("judged.scores", "judged.scores.shadow", "judged.dead")]
        settle(rig.admin.create_topics(topics))
        console.print(f"writing {options.events:,} scores, and the shadow's of {options.shadow} %")
        if options.rate:
            figures = _followed(rig, options.events, options.shadow, options.rate)
        else:
            _write(broker.bootstrap_servers, range(options.events), options.shadow)
            figures = _judged(rig, options.events)
    print(json.dumps(figures))
    return int(figures["pairs"] != sum(_sampled(n, options.shadow) for n in range(int(figures["events"]))))


def _sampled(n: int, percent: int) -> bool:
    return n % KEYS % 100 < percent


def _write(servers: str, events: range, percent: int, rate: int = 0) -> None:
    began = time.monotonic()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for start in range(0, len(events), CHUNK):
        chunk, now = events[start : start + CHUNK], int(time.time() * 1_000)
        for topic, encoder, numbers in (
            ("judged.scores", OLD, chunk),
            ("judged.scores.shadow", NEW, [n for n in chunk if _sampled(n, percent)]),
        ):
            places, offsets = [("judged.events", n % PARTITIONS) for n in numbers], [n // PARTITIONS for n in numbers]
            scores = [b"0.%06d" % (n % 1_000_000) for n in numbers]
            names = ["late" if n % 2 else "on time" for n in numbers]
            values = encoder.encode(
                [f"flight-{n}" for n in numbers], scores, names, places, offsets, [now] * len(numbers), "scored", now
            )
            for n, value in zip(numbers, values, strict=True):
                producer.produce(topic, value, b"key-%d" % (n % KEYS), n % PARTITIONS, timestamp=now)
        while len(producer) > 20 * CHUNK:
            producer.poll(0.1)
        if rate:
            time.sleep(max(0.0, began + (start + CHUNK) / rate - time.monotonic()))
    if producer.flush(120):
        raise RuntimeError("the broker did not take the records")


def _judged(rig: Rig, events: int) -> dict[str, float]:
    script = "import resource,subprocess,sys;subprocess.run(sys.argv[1:]);u=resource.getrusage(resource.RUSAGE_CHILDREN);"
    script += "print(u.ru_utime+u.ru_stime,u.ru_maxrss,file=sys.stderr)"  # a small process: a child has its parent's peak
    arguments = [command("scorer"), "judge", "scorer.yaml", "--json"]
    began = time.monotonic()
    completed = subprocess.run([sys.executable, "-c", script, *arguments], cwd=rig.folder, capture_output=True, check=True)
    seconds, judgement = time.monotonic() - began, json.loads(completed.stdout)
    cpu, peak = map(float, completed.stderr.split()[-2:])
    return {
        "events": events,
        "pairs": judgement["rules"][0]["pairs"],
        **judgement["dropped"],
        "seconds": round(seconds, 2),
        "cpu_s": round(cpu, 2),
        "cpu_us_per_event": round(cpu / events * 1e6, 3),
        "peak_mib": round(peak / 1_024),
    }


def _followed(rig: Rig, events: int, percent: int, rate: int) -> dict[str, float]:
    """Run a judge that follows the events, after the events of the first second; its share of a core excludes its start."""
    first, rest = range(rate), range(rate, rate + events)
    _write(rig.bootstrap_servers, first, percent)
    path = rig.folder / "judge.jsonl"
    arguments = [command("scorer"), "judge", "scorer.yaml", "--json", "--follow", "--bake", "1h"]
    with path.open("wb") as out, subprocess.Popen(arguments, cwd=rig.folder, stdout=out) as judge:
        until(lambda: path.stat().st_size, "the first judgement")
        before, began = _cpu_seconds(judge.pid), time.monotonic()
        _write(rig.bootstrap_servers, rest, percent, rate)
        share = (_cpu_seconds(judge.pid) - before) / (seconds := time.monotonic() - began)
        written = sum(_sampled(n, percent) for n in range(rest.stop))
        until(lambda: _pairs(path) == written, "all pairs")
        peak = next(line.split()[1] for line in _status(judge.pid) if line.startswith("VmHWM"))
        judge.terminate()
    lags = [row["behind_seconds"] for row in map(json.loads, path.read_text().splitlines())]
    return {
        "events": rest.stop,
        "pairs": _pairs(path),
        "rate": round(events / seconds),
        "cores": round(share, 3),
        "lag_p50_s": sorted(lags)[len(lags) // 2],
        "lag_max_s": max(lags),
        "peak_mib": round(int(peak) / 1_024),
    }


def _pairs(path: Path) -> int:
    *_, last = path.read_text().splitlines()
    pairs: int = json.loads(last)["rules"][0]["pairs"]
    return pairs


def _status(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/status").read_text().splitlines()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
