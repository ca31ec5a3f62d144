"""The environment of a measurement of the whole scorer: a real broker, own topics, a registry, `scorer run` on its core."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import numpy as np
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from numpy.typing import NDArray

from publisher.kafka import clients as kafka
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.headers import Headers
from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.demo.processes import executable
from tests.benchmarks.bench.machine import Cores
from tests.benchmarks.bench.workload import Workload, configuration, key
from tests.support.waiting import within

PARTITIONS = 4
PATIENCE_SECONDS = 120.0
STAMPED = {"message.timestamp.type": "LogAppendTime"}


class Stage:
    """One broker for all measurements; every measurement has its own topics, group and configuration.

    This process, the broker and all other processes that it starts run on `cores.others` until the stage is closed.
    """

    def __init__(self, cores: Cores, workload: Workload, package: Callable[[Path, int], Path] | None = None) -> None:
        """Prepare a stage; `package` writes a model version for a seed, in place of the workload's model."""
        self.cores = cores
        self.workload = workload
        self._package = package or workload.package
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._cleanup.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
        os.sched_setaffinity(0, self.cores.others)
        self.folder = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="scorestream-bench-")))
        self.broker = self._cleanup.enter_context(EmbeddedBroker(heap_mb=1_024, quick_start=False))
        self.servers = self.broker.bootstrap_servers
        self.settings = KafkaSettings(bootstrap_servers=self.servers)
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        for seed, version in enumerate(("1.0.0", "2.0.0")):
            self.push(version, seed)
        self.promote("1.0.0")
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def command(self, *arguments: str) -> None:
        """Run a command of the product, which must succeed."""
        completed = subprocess.run(
            [executable(arguments[0]), *arguments[1:]], cwd=self.folder, capture_output=True, check=False
        )
        if completed.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)} ended with {completed.returncode}: {completed.stderr.decode()}")

    def push(self, version: str, seed: int) -> None:
        """Push a version; versions of one seed have the same weights."""
        package = self._package(self.folder / f"package-{version}", seed)
        self.command("model-registry", "push", str(package), f"oci:./registry/model:{version}")

    def promote(self, version: str, canary: str = "") -> None:
        """Promote a version in the channel `prod`; with `canary`, for this share of the keys only, such as `5%`."""
        share = ["--canary", canary] if canary else []
        self.command("model-registry", "promote", "oci:./registry/model", "--to", version, *share)

    def make(
        self,
        name: str,
        delivery: str,
        *,
        source: str | None = None,
        settings: Mapping[str, Any] | None = None,
        scores: Mapping[str, str] = STAMPED,
        features: Mapping[str, Any] | None = None,
        tables: Mapping[str, Any] | None = None,
    ) -> str:
        """Create topics and a configuration under a new name; return the name.

        Args:
            name: the first part of the new name.
            delivery: the delivery mode.
            source: the input topic; default: a topic of its own.
            settings: the settings of the input, in place of the usual ones.
            scores: the configuration of the output topic.
            features: the settings of the feature log; default: no feature log.
            tables: the settings of the tables by name; default: no tables.
        """
        name = f"{name}-{uuid.uuid4().hex[:6]}"
        futures = self.admin.create_topics([NewTopic(f"{name}.scores", PARTITIONS, 1, config=dict(scores))])
        futures[f"{name}.scores"].result(30)
        config = json.loads(configuration(name, self.servers, delivery))
        if source:
            config["input"]["topics"] = [source]
        if settings is not None:
            config["input"] = {"topics": config["input"]["topics"], **settings}
        if features is not None:
            config["features"] = {"topic": f"{name}.features", **features}
            config["schema_registry"] = {"url": self._registry_stub()}
        if tables is not None:
            config["tables"] = tables
        (self.folder / f"{name}.yaml").write_text(json.dumps(config))
        self.command("scorer", "check", f"{name}.yaml", "--create", "--partitions", str(PARTITIONS))
        return name

    def _registry_stub(self) -> str:
        """The address of a schema registry that accepts every schema under the id 1."""
        if not hasattr(self, "_registry"):
            self._registry = ThreadingHTTPServer(("127.0.0.1", 0), _AnySchema)
            self._cleanup.callback(self._registry.server_close)
            self._cleanup.callback(self._registry.shutdown)
            threading.Thread(target=self._registry.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._registry.server_port}"

    def fill(
        self,
        topic: str,
        events: Iterable[bytes],
        headers: Callable[[int], Headers] = lambda _: None,
        keys: Callable[[int], bytes] = key,
    ) -> None:
        """Create a topic and write these events to its partitions in turn; `headers` and `keys` are those of an event by its
        number."""
        self.admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 20, "log_level": 0})
        for number, value in enumerate(events):
            while len(producer) > 50_000:
                producer.poll(0.05)
            producer.produce(topic, value, keys(number), partition=number % PARTITIONS, headers=headers(number))
        if producer.flush(PATIENCE_SECONDS):
            raise RuntimeError(f"the broker did not take the events for {topic}")

    @contextlib.contextmanager
    def scorer(self, name: str, workers: int = 1, flags: Sequence[str] = ()) -> Iterator["Running"]:
        """Run `scorer run` on the scorer's core until the block ends; it must end with code 0."""
        log = self.folder / f"{name}{''.join(flags[:1])}.log"
        command = self.cores.pinned(executable("scorer"), "run", f"{name}.yaml", "--workers", str(workers), *flags)
        with log.open("wb") as output:
            process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        running = Running(process, log)
        try:
            yield running
            process.terminate()
            if code := process.wait(PATIENCE_SECONDS):
                raise RuntimeError(f"the scorer ended with code {code}: {running.said[-2_000:]}")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    @contextlib.contextmanager
    def reader(self, topic: str) -> Iterator["Reader"]:
        """Run a process that records when each score of a topic becomes readable."""
        path = self.folder / f"{topic}.npy"
        command = [sys.executable, "-m", "tests.benchmarks.bench.arrivals", self.servers, topic, str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            yield Reader(process, path)
        finally:
            process.kill()
            process.wait()

    def written(self, topic: str) -> int:
        """Return the sum of a topic's end offsets, which count records and the markers of transactions."""
        if not hasattr(self, "_ends"):
            self._ends = kafka.reader(self.settings, "bench-ends")
        return sum(self._ends.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1] for p in range(PARTITIONS))


class _AnySchema(BaseHTTPRequestHandler):
    """Answers the registration of every schema with the id 1."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b'{"id": 1}'
        self.send_response(200)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


class Running:
    """A started scorer."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.pid = process.pid
        self.log = log

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def until(self, condition: Callable[[], bool], effect: str, every_seconds: float = 0.05) -> None:
        """Wait for a condition. Raises RuntimeError if the scorer ends before, or after the timeout."""
        within(lambda: condition() or self.process.poll() is not None, PATIENCE_SECONDS, every=every_seconds)
        if not condition():
            code = self.process.poll()
            raise RuntimeError(f"{effect} did not happen in {PATIENCE_SECONDS:.0f} s, exit code {code}: {self.said[-2_000:]}")


class Reader:
    """A started `tests.benchmarks.bench.arrivals`."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path) -> None:
        self._process = process
        self._path = path
        self.seen = 0
        self._next()

    def _next(self) -> None:
        assert self._process.stdout is not None
        self.seen = int(self._process.stdout.readline() or self.seen)

    def wait(self, count: int) -> None:
        """Wait until it has read `count` scores, or nothing for half a minute."""
        idle_reads = 0
        while self.seen < count and idle_reads < 60:
            before = self.seen
            self._next()
            idle_reads = 0 if self.seen > before else idle_reads + 1

    def finish(self) -> NDArray[Any]:
        """End the reader; return ids, arrival times in Unix ms and version numbers: (3, n)."""
        self._process.communicate(b"\n")
        arrivals: NDArray[Any] = np.load(self._path)
        return arrivals
