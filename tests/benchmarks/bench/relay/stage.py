"""Two real clusters, the source local or at the far end of a link, with filled topics and counts of readable copies."""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from publisher.kafka.error_codes import ABSENT, ANSWERED_LATER
from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.demo.broker.kraft_config import HOST, free_ports
from tests.benchmarks.bench.relay.engines import Job, Running
from tests.benchmarks.bench.relay.link import FAR, Link
from tests.support import auditor
from tests.support.waiting import until

PARTITIONS = 8
VALUE_BYTES = 200
WAIT_SECONDS = 60.0
START_SECONDS = 180.0  # for the first copy, on a busy machine
LOOK_SECONDS = 0.02
REST_SECONDS = 2.0  # a copy is complete after this time without a new record
NOT_YET = ABSENT | ANSWERED_LATER | {KafkaError._NOENT: "the client does not know it"}
QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda _: None}
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Stage:
    """Both clusters. With a `link`, the source's broker runs at its far end, with the address `source`."""

    def __init__(self, link: Link | None) -> None:
        self.link = link
        self._exits = contextlib.ExitStack()
        self.folder = Path(self._exits.enter_context(tempfile.TemporaryDirectory(prefix="scorestream-bench-relay-")))
        self._jobs = 0
        self._existing_topics: set[str] = set()
        port, _ = free_ports()
        self._far_port = port

    def __enter__(self) -> "Stage":
        with self.at_source():
            broker = EmbeddedBroker(properties=self._far_listener if self.link else None, quick_start=False)
            self._exits.callback(self._stop_source, broker)
            broker.start()
        self.source_nearby = broker.bootstrap_servers
        self.source = f"{FAR}:{self._far_port}" if self.link else self.source_nearby
        self.destination = self._exits.enter_context(EmbeddedBroker(quick_start=False)).bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": self.destination, **QUIET})
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    @contextlib.contextmanager
    def at_source(self) -> Iterator[None]:
        """Create the clients of this block at the source's end."""
        with self.link.inside() if self.link else contextlib.nullcontext():
            yield

    def job(self, topic: str) -> Job:
        """Return a new copy of a topic; delete the topic of an earlier one at the destination."""
        if topic in self._admin.list_topics(timeout=WAIT_SECONDS).topics:
            self._admin.delete_topics([topic])[topic].result()
            self._existing_topics.discard(topic)
            until(lambda: topic not in self._admin.list_topics(timeout=WAIT_SECONDS).topics, "the end of the old copy")
        self._jobs += 1
        return Job(self._jobs, self.source, self.destination, topic, self.folder)

    def create(self, topic: str) -> None:
        with self.at_source():
            admin = AdminClient({"bootstrap.servers": self.source_nearby, **QUIET})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()

    def producer(self, **properties: Any) -> Producer:
        with self.at_source():
            return Producer(
                {"bootstrap.servers": self.source_nearby, "linger.ms": 5, "compression.type": "lz4", **QUIET, **properties}
            )

    def fill(self, topic: str, records: int) -> None:
        """Write records of 200 bytes with two headers to all partitions."""
        self.create(topic)
        producer = self.producer(**{"linger.ms": 50, "batch.num.messages": 10_000, "enable.idempotence": True})
        headers: list[tuple[str, str | bytes | None]] = [("decision", b"late"), ("model", b"flight-delay")]
        for number in range(records):
            value = b"%d:" % number + bytes(number * k % 251 for k in range(1, 25))
            while True:
                try:
                    producer.produce(
                        topic, value.ljust(VALUE_BYTES, b"."), b"%d" % number, number % PARTITIONS, headers=headers
                    )
                except BufferError:
                    producer.poll(0.1)
                else:
                    break
        if unwritten := producer.flush(WAIT_SECONDS):
            raise RuntimeError(f"{unwritten} records could not be written")

    def readable(self, topic: str) -> int:
        """Return the sum of the stable offsets at the destination, which count records and markers of transactions.

        It is 0 until the topic exists: only its name is requested before, because the client caches missing offsets.
        """
        if topic not in self._existing_topics:
            if topic not in self._admin.list_topics(timeout=WAIT_SECONDS).topics:
                return 0
            self._existing_topics.add(topic)
        futures = self._admin.list_offsets(
            {TopicPartition(topic, number): LATEST for number in range(PARTITIONS)},
            isolation_level=IsolationLevel.READ_COMMITTED,
        )
        try:
            return sum(max(0, answer.result().offset) for answer in futures.values())
        except KafkaException as error:
            if error.args[0].code() in NOT_YET:
                self._existing_topics.discard(topic)
                return 0
            raise

    def follow(self, topic: str, records: int, running: Running, began: float) -> Mapping[str, float]:
        """Return the seconds from `began` to the first readable record and to the last one."""
        first = last = 0.0
        readable, deadline = 0, time.monotonic() + START_SECONDS + records / 2_000
        while readable < records or time.monotonic() - last < REST_SECONDS:
            now = time.monotonic()
            if running.ended or now > deadline:
                raise RuntimeError(f"{readable} of {records} records came: {running.log_tail}")
            if (now_readable := self.readable(topic)) > readable:
                readable, last, first = now_readable, now, first or now
            time.sleep(LOOK_SECONDS)
        return {"first": first - began, "last": last - began}

    def count(self, topic: str) -> int:
        """Count the committed records at the destination."""
        return sum(1 for _ in auditor.read(self.destination, topic))

    def _far_listener(self, ports: tuple[int, int]) -> Mapping[str, str]:
        """Return the settings of a second listener on the link, with socket buffers sized by TCP for its long round trip."""
        link = f"FAR://{FAR}:{self._far_port}"
        near, control = f"PLAINTEXT://{HOST}:{ports[0]}", f"CONTROLLER://{HOST}:{ports[1]}"
        return {
            "listeners": f"{near},{link},{control}",
            "advertised.listeners": f"{near},{link}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,FAR:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "socket.send.buffer.bytes": "-1",
            "socket.receive.buffer.bytes": "-1",
        }

    def _stop_source(self, broker: EmbeddedBroker) -> None:
        with self.at_source():
            broker.stop()
