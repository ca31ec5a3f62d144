"""Build the status records of a worker from its progress, counters and served versions, and write them to the status topic."""

import logging
import os
import threading
import uuid
from collections.abc import Callable
from dataclasses import asdict

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from publisher.runtime.context import now_ms
from publisher.runtime.dependency_wait import Outages
from publisher.transactions.counters import Counters
from scorer.models.servable import Servable
from scorer.models.version_manager import VersionManager
from scorer.observability.liveness import WorkerProgress
from scorer.observability.status_record import (
    HEARTBEAT_SECONDS,
    RUNNING,
    STOPPED,
    WAITING,
    PartitionStatus,
    ScorerStatus,
    TablePartitionStatus,
    VersionStatus,
)
from scorer.settings import Settings
from scorer.settings.shadow_worker import ShadowWorkerSettings
from scorer.tables.tables import Tables

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0  # between checks whether the start-up waits
ABANDON_SECONDS = 2.0  # how long to wait for the last record, and for the thread that writes the records of a start-up


class StatusReporter:
    """Writes a status record after a change of versions or partitions, after a recovery, and every HEARTBEAT_SECONDS.

    Args:
        producer: the producer of the records.
        topic: the status topic.
        current: a function that returns the current status. Its argument is the state to report, RUNNING or STOPPED.
        is_replaced: a function that returns whether another process has taken over the replica name of this worker.
    """

    def __init__(
        self, producer: Producer, topic: str, current: Callable[[str], ScorerStatus], is_replaced: Callable[[], bool]
    ) -> None:
        self._is_replaced = is_replaced
        self._producer = producer
        self._topic = topic
        self._current = current
        self._reported: object = None
        self._next = float("inf")

    def tick(self, now: float) -> None:
        """Write a record if the status has changed or HEARTBEAT_SECONDS have passed. Call this method about once a second.

        Args:
            now: the time in monotonic seconds.
        """
        self._producer.poll(0)
        status = self._current(RUNNING)
        partitions = [(p.topic, p.partition) for p in status.partitions]
        progress = status.versions, partitions, status.aspired_revision, status.counters["recoveries"]
        problems = status.refused, status.delayed, bool(status.waiting)
        summary = progress, problems
        if now < self._next and summary == self._reported:
            return
        self._reported = summary
        self._next = now + HEARTBEAT_SECONDS
        self._send(status)

    def close(self) -> None:
        """Write the record that this worker has stopped, unless another process has taken over the replica name."""
        # That process writes records with the same key.
        if not self._is_replaced():
            self._send(self._current(STOPPED))
            self._producer.flush(ABANDON_SECONDS)

    def _send(self, status: ScorerStatus) -> None:
        _send(self._producer, self._topic, status)


class StartUpReporter:
    """Writes status records with the state WAITING in a background thread, while the start-up of a worker waits.

    The worker must have checked that no other live process has its replica name.

    Args:
        open_producer: a function that creates the producer of the records. It is called when the first record is due.
        settings: the settings of the worker.
        waits_for: a function that returns the dependency for which the start-up waits; None if the start-up does not wait.
    """

    # Without these records, `scorer status` would show the last record of the previous process, `stopped`.

    def __init__(self, open_producer: Callable[[], Producer], settings: Settings, waits_for: Callable[[], str | None]) -> None:
        self._open_producer = open_producer
        self._settings = settings
        self._waits_for = waits_for
        self._started_ms = now_ms()
        self._producer: Producer | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="start-up-status", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the thread, because the start-up is complete. From now on, a StatusReporter writes the records."""
        self._closing.set()
        self._thread.join(ABANDON_SECONDS)
        if self._producer is not None:
            self._producer.flush(ABANDON_SECONDS)  # the next producer must not overtake its records
            self._producer = None

    def close(self) -> None:
        """End the thread. If it has written a record, write another one with the state `stopped`.

        Without that record, `scorer status` would show a stopped worker as waiting.
        """
        self._closing.set()
        self._thread.join(ABANDON_SECONDS)
        if self._producer is not None:
            _send(self._producer, self._settings.status_topic, self._status(STOPPED, ""))
            self._producer.flush(ABANDON_SECONDS)

    def _run(self) -> None:
        written_at = float("-inf")
        while not self._closing.wait(CHECK_SECONDS):
            waits_for = self._waits_for()
            now = now_ms() / 1_000
            if waits_for is None or now - written_at < HEARTBEAT_SECONDS:
                continue
            written_at = now
            if self._producer is None:
                self._producer = self._open_producer()
            _send(self._producer, self._settings.status_topic, self._status(WAITING, waits_for))

    def _status(self, state: str, waiting: str) -> ScorerStatus:
        settings = self._settings
        return ScorerStatus(
            scorer=settings.owner,
            region=settings.region,
            state=state,
            heartbeat_ms=now_ms(),
            started_ms=self._started_ms,
            pid=os.getpid(),
            partitions=[],
            versions={},
            refused={},
            cost=(0.0, 0.0),
            counters={},
            tag=settings.model.tag,
            shadow=isinstance(settings, ShadowWorkerSettings),
            waiting=waiting,
        )


def _send(producer: Producer, topic: str, status: ScorerStatus) -> None:
    try:
        producer.produce(topic, msgspec.json.encode(status), status.scorer.encode(), on_delivery=_log_failure)
        producer.poll(0)
    except (BufferError, KafkaException) as error:
        log.warning("cannot write the status record: %s", error)


def _log_failure(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        log.warning("the status record was not written to %s: %s", message.topic(), error)


def status_reporter(
    settings: Settings,
    producer: Producer,
    progress: WorkerProgress,
    counters: Counters,
    versions: VersionManager,
    outages: Outages,
    is_replaced: Callable[[], bool],
    tables: Tables | None = None,
) -> StatusReporter:
    """Create the writer of a worker's status records.

    `is_replaced()` returns whether another process has taken over the replica name of this worker. `tables` are the tables of
    the worker; None if no tables are configured.
    """
    started_ms = now_ms()
    instance = uuid.uuid4().hex

    def version(servable: Servable) -> VersionStatus:
        origin = servable.encoder.provenance
        return VersionStatus(origin["model"], origin["version"], origin["digest"], servable.resolution.revision)

    def status(state: str) -> ScorerStatus:
        partitions = sorted(progress.lag.keys() | progress.paused.keys())
        aspired = versions.aspired_revision  # read before the refusals, which must not be of an earlier revision
        return ScorerStatus(
            scorer=settings.owner,
            region=settings.region,
            state=state,
            heartbeat_ms=now_ms(),
            started_ms=started_ms,
            pid=os.getpid(),
            partitions=[PartitionStatus(*at, progress.lag.get(at, 0), progress.paused.get(at, "")) for at in partitions],
            versions={role: version(servable) for role, servable in versions.serving.items()},
            refused={refusal.version: refusal.reason for refusal in versions.refusals()},
            cost=versions.champion.loaded.cost.line(),
            counters={
                "events": progress.events,
                "batches": progress.batches,
                "dead_letters": progress.dead_letters,
                "recoveries": progress.recoveries,
                "aborts": counters.aborts,
                "rotations": counters.rotations,
            },
            tag=settings.model.tag,
            aspired_revision=aspired,
            instance=instance,
            shadow=isinstance(settings, ShadowWorkerSettings),
            waiting=outages.summary() or "",
            delayed={delay.version: delay.reason for delay in versions.delays()},
            tables=[TablePartitionStatus(**asdict(each)) for each in tables.status()] if tables is not None else [],
        )

    return StatusReporter(producer, settings.status_topic, status, is_replaced)
