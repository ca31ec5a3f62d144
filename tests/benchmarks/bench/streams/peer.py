"""Kafka Streams as a peer of the joined drain: a GlobalKTable join and ONNX Runtime, exactly once, on the scorer's core.

`StreamsPeer.java` is the program. A JDK compiles it before a measurement; its jars are those of `streams_jars.txt`.
"""

import contextlib
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import orjson
from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic
from numpy.typing import NDArray

from publisher.kafka import clients as kafka
from scorer.demo.broker.jars import Jar, classpath, jar_list
from tests.benchmarks.bench import counting, joined, tables
from tests.benchmarks.bench.counting import Figures
from tests.benchmarks.bench.machine import Sampler, memory
from tests.benchmarks.bench.stage import PARTITIONS, PATIENCE_SECONDS, STAMPED, Running, Stage
from tests.benchmarks.bench.whole import MIDDLE

HERE = Path(__file__).parent
SOURCE = HERE / "StreamsPeer.java"
HEAP = "1g"
LAST_SECONDS = 2.0  # without a record after all events are read
FIRST_SECONDS = 15.0
CHECKED = 1_000
TOLERANCE = 1e-4
JDK_MISSING = "javac was not found: install a JDK of version 17 or later (apt-get install openjdk-17-jdk-headless)"


class Results(NamedTuple):
    """The results in a topic: the numbers of the events (int64), append times (Unix ms) and scores, each (n,)."""

    ids: NDArray[np.int64]
    stamps: NDArray[np.float64]
    scores: NDArray[np.float64]


def peer_jars() -> tuple[Jar, ...]:
    """Return the jars of the peer, and those of the embedded broker, which include the Kafka clients and Jackson."""
    return (*jar_list((HERE / "streams_jars.txt").read_text()), *jar_list())


def compile_peer(folder: Path) -> list[str]:
    """Compile the peer into `folder`, and return the start of its command line.

    Raises:
        RuntimeError: there is no JDK, or the compiler rejects the program.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        raise RuntimeError(JDK_MISSING)
    jars = [str(path) for path in classpath(jars=peer_jars())]
    folder.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-d", str(folder), "-cp", os.pathsep.join(jars), str(SOURCE)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise RuntimeError(f"{SOURCE.name} does not compile: {completed.stderr}")
    java = Path(compiler).with_name("java")
    return [str(java), f"-Xms{HEAP}", f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-cp", os.pathsep.join([str(folder), *jars])]


@contextlib.contextmanager
def running_peer(stage: Stage, java: list[str], source: str, target: str) -> Iterator[Running]:
    """Run the peer on the scorer's core until the block ends. It joins `source` with the table of `joined`."""
    model = stage.folder / f"package-{joined.JOINED_VERSION}" / "model.onnx"
    columns = str(len(joined.EVENT.names)), str(len(joined.JOINED))
    arguments = [
        stage.servers,
        target,
        source,
        joined.TOPIC,
        target,
        str(model),
        str(stage.folder / f"{target}.state"),
        *columns,
    ]
    log = stage.folder / f"{target}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            stage.cores.pinned(*java, "StreamsPeer", *arguments), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield Running(process, log)
        process.terminate()
        process.wait(PATIENCE_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def drain(stage: Stage, java: list[str], source: str, events: int, expected: NDArray[np.float64]) -> Figures:
    """Measure the peer as `whole.drain` measures the scorer.

    Args:
        stage: the broker, the registry and the table.
        java: the result of `compile_peer`.
        source: the topic of the events, which is full.
        events: the number of events in the topic.
        expected: the scores of the first events.

    Returns:
        The figures; `wrong` is the number of the first events whose score is not the expected one.
    """
    target = f"streams-{uuid.uuid4().hex[:6]}.scores"
    stage.admin.create_topics([NewTopic(target, PARTITIONS, 1, config=dict(STAMPED))])[target].result(30)
    began = time.time()
    with running_peer(stage, java, source, target) as running:
        sampler = Sampler(running.pid, stage.broker.pid, stage.cores)
        running.until(lambda: _is_written(stage, target, events), "the last result", 0.1)
        used = memory(running.pid)
        results = read_results(stage, target, events)
        sampler.stop()
    low, high = np.quantile(results.stamps, MIDDLE) / 1_000
    share = MIDDLE[1] - MIDDLE[0]
    return {
        "events": events,
        "events_per_s": round(events * share / max(high - low, 1e-3)),
        **sampler.usage(low, high, events * share),
        "first_append_s": round(float(results.stamps.min()) / 1_000 - began, 2),
        **used,
        **counting.count(results.ids, events),
        "wrong": count_wrong(results, expected),
    }


def _is_written(stage: Stage, topic: str, events: int) -> bool:
    try:
        return stage.written(topic) >= events
    except KafkaException:  # the new topic has no leader yet
        return False


def read_results(stage: Stage, topic: str, events: int) -> Results:
    """Read all results that a read_committed consumer finds; wait for `events` of them."""
    consumer = kafka.reader(stage.settings, "bench-read-results")
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    columns: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    while messages := consumer.consume(5_000, LAST_SECONDS if len(columns[0]) >= events else FIRST_SECONDS):
        for message in messages:
            if message.error() is None:
                record = orjson.loads(message.value() or b"{}")
                row = int(record["id"]), message.timestamp()[1], record["score"]
                for column, value in zip(columns, row, strict=True):
                    column.append(value)
    consumer.close()
    ids, stamps, scores = columns
    return Results(np.array(ids, np.int64), np.array(stamps, np.float64), np.array(scores, np.float64))


def expected_scores(stage: Stage, rows: int, count: int = CHECKED) -> NDArray[np.float64]:
    """Return the scores of the first `count` joined events, computed by ONNX Runtime in this process."""
    values = {key: orjson.loads(value) for key, value in tables.rows(rows)}
    events = joined.JoinedEvents(rows)
    matrix = [
        [*(event[name] for name in joined.EVENT.names), *(values[events.key(number)][name] for name in joined.JOINED)]
        for number, event in enumerate(map(orjson.loads, events.values(count)))
    ]
    session = onnxruntime.InferenceSession(stage.folder / f"package-{joined.JOINED_VERSION}" / "model.onnx")
    scores: NDArray[np.float64] = session.run(["y"], {"x": np.array(matrix, np.float32)})[0].ravel().astype(np.float64)
    return scores


def count_wrong(results: Results, expected: NDArray[np.float64]) -> int:
    """Return how many results of the first events differ from the expected scores by more than TOLERANCE."""
    first = results.ids < len(expected)
    differences = np.abs(results.scores[first] - expected[results.ids[first]])
    return int(np.count_nonzero(~(differences <= TOLERANCE)))
