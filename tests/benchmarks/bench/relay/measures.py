"""The measurements of an engine: a drain, the latency at a steady rate, and the time to resume after a source outage."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from tests.benchmarks.bench.relay.engines import Job, Running
from tests.benchmarks.bench.relay.stage import LOOK_SECONDS, PARTITIONS, START_SECONDS, VALUE_BYTES, Stage
from tests.support.waiting import until

Engine = Callable[[Job], AbstractContextManager[Running]]
TICK_SECONDS = 0.005
BACK_SECONDS = 120.0
WARM_SECONDS = 15.0  # the broker's JVM compiles code for these requests, which the drains do not send


class Steady(threading.Thread):
    """Writes at a steady rate until `finish`; each value starts with its write time (monotonic ns)."""

    def __init__(self, stage: Stage, topic: str, rate: float) -> None:
        super().__init__(name="steady", daemon=True)
        self.written = 0
        self._producer = stage.producer(**{"linger.ms": 0})
        self._topic = topic
        self._rate = rate
        self._enough = threading.Event()

    def __enter__(self) -> "Steady":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self.join()

    def run(self) -> None:
        began = time.monotonic()
        while not self._enough.wait(TICK_SECONDS):
            for number in range(self.written, int((time.monotonic() - began) * self._rate)):
                value = time.monotonic_ns().to_bytes(8).ljust(VALUE_BYTES, b".")
                self._producer.produce(self._topic, value, b"%d" % number, number % PARTITIONS)
                self.written = number + 1
            self._producer.poll(0)

    def finish(self) -> None:
        self._enough.set()
        self.join()
        if unwritten := self._producer.flush(60):
            raise RuntimeError(f"{unwritten} records could not be written")


class Arrivals(threading.Thread):
    """Reads committed records from now on, and records the age of each, until `finish`."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(name="arrivals", daemon=True)
        self._ages: list[int] = []
        self._enough = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "bench-arrivals",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, OFFSET_END) for number in range(PARTITIONS)])

    def run(self) -> None:
        while not self._enough.is_set():
            for message in self._consumer.consume(1, 0.05):
                if message.error() is None:
                    self._ages.append(time.monotonic_ns() - int.from_bytes((message.value() or b"")[:8]))
        self._consumer.close()

    def finish(self) -> dict[str, float]:
        self._enough.set()
        self.join()
        ages = np.array(self._ages or [0], np.float64) / 1e6
        return {"p50": float(np.percentile(ages, 50)), "p99": float(np.percentile(ages, 99))}


def drain(stage: Stage, engine: Engine, topic: str, records: int) -> dict[str, float]:
    """Measure a copy of a full topic. The rate is that from the first readable record to the last."""
    job = stage.job(topic)
    began = time.monotonic()
    with engine(job) as running:
        times = stage.follow(topic, records, running, began)
        used, peak = running.cpu_seconds, running.peak_mb
    if (count := stage.count(topic)) != records:
        raise RuntimeError(f"{count} records at the destination, not {records}")
    return {
        "first_record_s": times["first"],
        "drain_per_s": records / max(1e-9, times["last"] - times["first"]),
        "cpu_s": used,
        "peak_mb": peak,
    }


def paced(stage: Stage, engine: Engine, rate: float, seconds: float) -> dict[str, float]:
    """Measure the latency that the copy adds: medians and 99th percentiles at both ends in ms, and their difference."""
    topic = _live_topic(stage)
    job = stage.job(topic)
    with Steady(stage, topic, rate) as load, engine(job) as running:
        _copying(stage, running, topic)
        time.sleep(min(WARM_SECONDS, seconds))
        with stage.at_source():
            source_reader = Arrivals(stage.source_nearby, topic)
        destination_reader = Arrivals(stage.destination, topic)
        for reader in (source_reader, destination_reader):
            reader.start()
        time.sleep(seconds)
        ages = [reader.finish() for reader in (source_reader, destination_reader)]
        load.finish()
    return {
        "p50_added_ms": ages[1]["p50"] - ages[0]["p50"],
        **{f"{name}_{end}_ms": ages[k][name] for k, end in enumerate(("source", "destination")) for name in ("p50", "p99")},
    }


def back(stage: Stage, engine: Engine, rate: float, outage_seconds: float) -> dict[str, float]:
    """Cut and heal the link under load; return the seconds from the healing to the next copy."""
    assert stage.link is not None
    topic = _live_topic(stage)
    job = stage.job(topic)
    with Steady(stage, topic, rate) as load, engine(job) as running:
        _copying(stage, running, topic)
        stage.link.cut()
        time.sleep(outage_seconds)
        before = stage.readable(topic)
        stage.link.heal()
        healed = time.monotonic()
        until(
            lambda: stage.readable(topic) > before or running.ended,
            "a copy after the link is back",
            BACK_SECONDS,
            LOOK_SECONDS,
        )
        seconds = time.monotonic() - healed
        load.finish()
        stage.follow(topic, load.written, running, healed)
    if (count := stage.count(topic)) != load.written:
        raise RuntimeError(f"{count} records at the destination, not {load.written}")
    return {"back_s": seconds}


def _live_topic(stage: Stage) -> str:
    topic = f"live-{time.monotonic_ns()}"
    stage.create(topic)
    return topic


def _copying(stage: Stage, running: Running, topic: str) -> None:
    until(lambda: running.ended or stage.readable(topic) > 0, "the first copy", START_SECONDS, LOOK_SECONDS)
    if running.ended:
        raise RuntimeError(f"it ended: {running.log_tail}")
