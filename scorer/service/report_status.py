"""Build the status records of a worker from its progress, counters and served versions, and write them to the status topic."""

import logging
import os
import uuid
from collections.abc import Callable

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from publisher.runtime.context import now_ms
from publisher.transactions.counters import Counters
from scorer.models.servable import Servable
from scorer.models.version_manager import VersionManager
from scorer.observability.liveness import WorkerProgress
from scorer.observability.status_record import HEARTBEAT_SECONDS, PartitionStatus, ScorerStatus, VersionStatus
from scorer.settings import Settings
from scorer.settings.shadow_worker import ShadowWorkerSettings

log = logging.getLogger(__name__)


class StatusReporter:
    """Writes a status record after a change of versions or partitions, after a recovery, and every HEARTBEAT_SECONDS.

    Args:
        producer: the producer of the records.
        topic: the status topic.
        current: returns the current status. Its argument is the state to report, `running` or `stopped`.
        is_replaced: returns whether another process has taken over the replica name of this worker.
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
        status = self._current("running")
        partitions = [(p.topic, p.partition) for p in status.partitions]
        summary = status.versions, partitions, status.refused, status.aspired_revision, status.counters["recoveries"]
        if now < self._next and summary == self._reported:
            return
        self._reported = summary
        self._next = now + HEARTBEAT_SECONDS
        self._send(status)

    def close(self) -> None:
        """Write the record that this worker has stopped.

        Write no record if another process has taken over the replica name, because it writes records with the same key.
        """
        if not self._is_replaced():
            self._send(self._current("stopped"))
            self._producer.flush(2)

    def _send(self, status: ScorerStatus) -> None:
        try:
            self._producer.produce(self._topic, msgspec.json.encode(status), status.scorer.encode(), on_delivery=_log_failure)
            self._producer.poll(0)
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
    is_replaced: Callable[[], bool],
) -> StatusReporter:
    """Create the writer of a worker's status records.

    `is_replaced()` returns whether another process has taken over the replica name of this worker.
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
        )

    return StatusReporter(producer, settings.status_topic, status, is_replaced)
