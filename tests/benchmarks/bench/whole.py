"""Measurements of the whole scorer, as users run it, on a core of its own beside a real broker.

Drain: everything is in the topic before the scorer starts; the middle 80 % of the results, by the broker's append time, counts.
Paced: open loop; each event has a time at which it is due, and its latency counts from there to the read_committed reader,
however late the load was. CPU time is that of the scorer's process and its workers.
"""

import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson
from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition
from numpy.typing import NDArray

from model_registry.channels.roles import CANARY
from publisher.kafka import clients as kafka
from scorer.demo.processes import executable
from tests.benchmarks.bench import counting
from tests.benchmarks.bench import kafka_client as bus_alone
from tests.benchmarks.bench.counting import Figures
from tests.benchmarks.bench.joined import JoinedEvents, RestoreWatch
from tests.benchmarks.bench.machine import Sampler, cpu_seconds, memory
from tests.benchmarks.bench.stage import PARTITIONS, PATIENCE_SECONDS, Reader, Running, Stage
from tests.benchmarks.bench.workload import event, key

MIDDLE = (0.1, 0.9)
LINGER_MS = 5.0  # of the load's producer: the default of Kafka clients since 4.0
WARM_SECONDS = 2.0  # of load that is not counted
POLL_EVENTS = 100  # a delivery report is taken at least so often


def drain(
    stage: Stage,
    delivery: str,
    source: str,
    events: int,
    workers: int = 1,
    settings: Mapping[str, Any] | None = None,
    features: Mapping[str, Any] | None = None,
    tables: Mapping[str, Any] | None = None,
    table_rows: int = 0,
) -> Figures:
    """Measure throughput, CPU time and memory of a scorer that reads a full topic.

    Args:
        stage: the broker and the registry.
        delivery: the delivery mode.
        source: the topic.
        events: the number of events in the topic.
        workers: the number of workers.
        settings: the settings of the input, in place of the usual ones.
        features: the settings of the feature log; default: no feature log.
        tables: the settings of one table by its name; default: no table. The figures of its restore are added.
        table_rows: the number of rows of the table.
    """
    name = stage.make("drain", delivery, source=source, settings=settings, features=features, tables=tables)
    began = time.time()
    with stage.scorer(name, workers) as running:
        watch = RestoreWatch(running, table_rows) if tables is not None else None
        sampler = Sampler(running.pid, stage.broker.pid, stage.cores)
        running.until(lambda: stage.written(f"{name}.scores") >= events, "the last score", 0.1)
        used = memory(running.pid)
        restored = watch.stop() if watch is not None else {}
        ids, stamps, canary = read_back(stage, f"{name}.scores", events)
        sampler.stop()
    low, high = np.quantile(stamps, MIDDLE) / 1_000
    share = MIDDLE[1] - MIDDLE[0]
    return {
        "delivery": delivery,
        "workers": workers,
        "events": events,
        "events_per_s": round(events * share / max(high - low, 1e-3)),
        **sampler.usage(low, high, events * share),
        "first_append_s": round(float(stamps.min()) / 1_000 - began, 2),
        **used,
        **counting.count(ids, events),
        **({"canary_share": round(canary / events, 4)} if canary else {}),
        **restored,
    }


def read_back(stage: Stage, topic: str, events: int) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Of all scores that a read_committed consumer finds: the numbers of their events, by where these stood, append times
    (Unix ms), and how many a canary answered. It waits for `events` of them."""
    consumer = kafka.reader(stage.settings, "bench-read-back")
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    ids: list[int] = []
    stamps: list[int] = []
    canary = 0
    while messages := consumer.consume(5_000, 2.0 if len(ids) >= events else 15.0):
        good = [message for message in messages if message.error() is None]
        records = [orjson.loads(message.value() or b"{}") for message in good]
        ids += [_number(record["source"]) for record in records]
        stamps += [message.timestamp()[1] for message in good]
        canary += sum(record["role"] == CANARY for record in records)
    consumer.close()
    return np.array(ids), np.array(stamps, np.float64), canary


def _number(source: Mapping[str, int]) -> int:
    """Of the event at this position, as `Stage.fill` dealt them."""
    return source["offset"] * PARTITIONS + source["partition"]


class Load:
    """Sends numbered events at a steady rate; `due_ms` has for each the Unix time at which it was due."""

    def __init__(self, stage: Stage, topic: str, events: JoinedEvents | None = None) -> None:
        """Prepare to send to `topic` the events of the stage's workload, or `events`."""
        self._topic = topic
        pool = stage.workload.bodies()
        self._value = events.value if events is not None else lambda number: event(pool, number)
        self._key = events.key if events is not None else key
        properties = {"linger.ms": LINGER_MS, "socket.nagle.disable": True, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": stage.servers, **properties})
        self._due: list[float] = []
        self._late: list[float] = []
        self._prepared: deque[tuple[bytes, bytes, int]] = deque()

    @property
    def sent(self) -> int:
        return len(self._due)

    @property
    def due_ms(self) -> NDArray[Any]:
        return np.array(self._due) * 1_000

    def prepare(self, rate: float, seconds: float) -> None:
        """Make the next events in advance, so that the load uses less of the broker's core while it sends them."""
        first = self.sent + len(self._prepared)
        self._prepared.extend(map(self._record, range(first, first + round(rate * seconds))))

    def run(self, rate: float, seconds: float, between: Callable[[], None] = lambda: None) -> tuple[float, float]:
        """Send for so long; when the first and the last were due (Unix seconds). `between` is called now and then."""
        began = time.time() + 0.05
        for number in range(round(rate * seconds)):
            due = began + number / rate
            while (wait := due - time.time()) > 0:
                self._producer.poll(0)
                between()
                time.sleep(min(wait, 0.001))
            value, record_key, partition = self._prepared.popleft() if self._prepared else self._record(self.sent)
            self._late.append(time.time() - due)
            self._producer.produce(self._topic, value, record_key, partition=partition)
            if number % POLL_EVENTS == 0:  # also if the load is late and never waits
                self._producer.poll(0)
            self._due.append(due)
        return began, began + seconds

    def _record(self, number: int) -> tuple[bytes, bytes, int]:
        return self._value(number), self._key(number), number % PARTITIONS

    def late_p99_ms(self, first: int, last: int) -> float:
        """How late these events were handed to the client: latency that is the load's own doing."""
        return round(float(np.percentile(self._late[first:last], 99)) * 1_000, 2)

    def close(self) -> None:
        """Everything is at the broker. Raises RuntimeError where it takes too long."""
        if self._producer.flush(PATIENCE_SECONDS):
            raise RuntimeError(f"the broker did not take the events for {self._topic}")


def paced(
    stage: Stage,
    delivery: str,
    rates: list[float],
    seconds: float,
    events: JoinedEvents | None = None,
    tables: Mapping[str, Any] | None = None,
) -> list[Figures]:
    """Measure latency and cost at each rate with one scorer for all rates, and the cost of the scorer without load.

    `events` are sent in place of the workload's; `tables` are the settings of the tables by name.
    """
    name = stage.make("paced", delivery, tables=tables)
    spans = []
    with stage.scorer(name) as running, stage.reader(f"{name}.scores") as reader:
        sampler = Sampler(running.pid, stage.broker.pid, stage.cores)
        load = Load(stage, f"{name}.events", events)
        _first_score(running, reader, load)
        for rate in rates:
            load.prepare(rate, min(WARM_SECONDS, seconds) + seconds)
            load.run(rate, min(WARM_SECONDS, seconds))
            spans.append((rate, load.sent, *load.run(rate, seconds), load.sent))
            load.close()
            reader.wait(load.sent)
        arrivals = reader.finish()
        idle = cpu_seconds(running.pid)
        time.sleep(seconds)
        idle = cpu_seconds(running.pid) - idle
        sampler.stop()
    ids, late = counting.delays(arrivals, load.due_ms)
    rows = []
    for rate, first, began, ended, last in spans:
        chosen = (ids >= first) & (ids < last)
        figures = {"delivery": delivery, "rate": rate, **counting.latency(late[chosen])}
        figures |= sampler.usage(began, ended, last - first) | {"load_late_p99_ms": load.late_p99_ms(first, last)}
        rows.append(figures | {"missing": int(last - first - chosen.sum()), "duplicates": 0})
    rows[-1]["duplicates"] = counting.count(arrivals[0], load.sent)["duplicates"]
    rows.append({"delivery": delivery, "rate": 0.0, "idle_core_share": round(idle / seconds, 4), "missing": 0, "duplicates": 0})
    return rows


def shadowed(stage: Stage, rate: float, seconds: float, share: int) -> Figures:
    """Latency of a scorer alone, and beside a shadow of this share (percent) on the same core, which scores another version."""
    name = stage.make("shadowed", "exactly-once")
    stage.command("model-registry", "promote", "oci:./registry/model", "--to", "1.0.0", "--shadow", "2.0.0")
    flags = ("--shadow", "--share", f"{share}%", "--set", "shadow.listen=127.0.0.1:0")
    windows: list[tuple[int, int]] = []
    with stage.scorer(name) as running, stage.reader(f"{name}.scores") as reader:
        load = Load(stage, f"{name}.events")

        def window() -> None:
            load.prepare(rate, min(WARM_SECONDS, seconds) + seconds)
            load.run(rate, min(WARM_SECONDS, seconds))
            first = load.sent
            load.run(rate, seconds)
            windows.append((first, load.sent))
            load.close()
            reader.wait(load.sent)

        _first_score(running, reader, load)
        window()
        with stage.scorer(name, flags=flags) as shadow:
            shadow.until(lambda: "assigned: " in shadow.said, "the shadow's partitions")
            spent, began = cpu_seconds(shadow.pid), load.sent
            window()
            spent, events = cpu_seconds(shadow.pid) - spent, load.sent - began
            shadow.until(lambda: stage.written(f"{name}.scores.shadow") >= 0.9 * events * share / 100, "what it scored")
            left_out = shadow.said.count("too far behind")
        arrivals = reader.finish()
    stage.promote("1.0.0")
    ids, late = counting.delays(arrivals, load.due_ms)
    alone, beside = (counting.latency(late[(ids >= first) & (ids < last)]) for first, last in windows)
    return {
        "rate": rate,
        "share": share,
        **_beside(alone, beside),
        "shadow_cpu_us_per_event": round(spent / events * 1e6, 1),
        "times_left_out": left_out,
        **counting.count(arrivals[0], load.sent),
    }


def _beside(alone: Figures, beside: Figures) -> Figures:
    """Both latencies, and how many times the second 99th percentile is the first."""
    named = {f"{name}_{figure}": value for name, row in (("alone", alone), ("beside", beside)) for figure, value in row.items()}
    return {**named, "p99_ratio": round(float(beside["p99_ms"] or 0) / float(alone["p99_ms"] or 1), 3)}


def _first_score(running: Running, reader: Reader, load: Load) -> None:
    """One event, answered: the scorer is through its start."""
    load.run(1.0, 1.0)
    load.close()
    reader.wait(load.sent)
    if running.process.poll() is not None or reader.seen < load.sent:
        raise RuntimeError(f"the scorer did not answer: {running.said[-2_000:]}")


def swap(stage: Stage, delivery: str, rate: float, seconds: float) -> Figures:
    """A version promoted under load, after a third of the time: latency before, during and around the flip."""
    name = stage.make("swap", delivery)
    asked: list[float] = []

    def promote() -> None:
        """Once, when its time has come; beside the load, on the other core."""
        if time.time() >= promote_at and not asked:
            asked.append(time.time() * 1_000)
            command = [executable("scorer"), "promote", f"{name}.yaml", "--to", "2.0.0"]
            moves.append(subprocess.Popen(command, cwd=stage.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    moves: list[subprocess.Popen[bytes]] = []
    with stage.scorer(name) as running, stage.reader(f"{name}.scores") as reader:
        load = Load(stage, f"{name}.events")
        _first_score(running, reader, load)
        load.prepare(rate, WARM_SECONDS + seconds)
        load.run(rate, WARM_SECONDS)
        counted = load.sent
        promote_at = time.time() + seconds / 3
        load.run(rate, seconds, promote)
        load.close()
        reader.wait(load.sent)
        arrivals = reader.finish()
    stage.promote("1.0.0")
    if not moves or moves[0].wait():
        raise RuntimeError("the promotion failed")
    ids, late = counting.delays(arrivals, load.due_ms)
    new = arrivals[1][arrivals[2] == 2]
    flipped = float(new.min()) if len(new) else float("nan")
    chosen = ids >= counted
    return {
        "delivery": delivery,
        "rate": rate,
        "flip_after_ms": round(flipped - asked[0], 1),
        **counting.swap(ids[chosen], late[chosen], load.due_ms, asked[0], flipped),
        **counting.count(arrivals[0], load.sent),
    }


def start(stage: Stage, delivery: str, source: str) -> Figures:
    """From the start of the process, with a warm cache, to the first score that can be read, and the CPU that took."""
    name = stage.make("start", delivery, source=source)
    with stage.reader(f"{name}.scores") as reader:
        began = time.time()
        with stage.scorer(name) as running:
            running.until(lambda: stage.written(f"{name}.scores") > 0, "the first score", 0.01)
            spent = cpu_seconds(running.pid)
            reader.wait(1)
            used = memory(running.pid)
        arrivals = reader.finish()
    first = float(arrivals[1].min()) / 1_000 - began
    return {"delivery": delivery, "first_score_s": round(first, 3), "cpu_s": round(spent, 3), **used}


def bus(
    stage: Stage, source: str, events: int, settings: Mapping[str, Any] | None = None, batch: int = bus_alone.BATCH
) -> Figures:
    """Consume and produce alone, in a process on the scorer's core, in transactions of `batch` events."""
    name = stage.make("bus", "exactly-once", source=source, settings=settings)
    command = stage.cores.pinned(
        sys.executable,
        "-m",
        "tests.benchmarks.bench.kafka_client",
        stage.servers,
        source,
        f"{name}.scores",
        str(events),
        "--batch",
        str(batch),
    )
    found: Figures = orjson.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found
