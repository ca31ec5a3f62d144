"""Build the status records of a worker from its progress, counters and served versions."""

import os
import uuid
from collections.abc import Callable

from confluent_kafka import Producer

from publisher.runtime.context import now_ms
from publisher.transactions.counters import Counters
from scorer.models.servable import Servable
from scorer.models.version_manager import VersionManager
from scorer.observability.liveness import WorkerProgress
from scorer.observability.status_record import PartitionStatus, ScorerStatus, StatusReporter, VersionStatus
from scorer.settings import Settings
from scorer.settings.shadow_worker import ShadowWorkerSettings


def status_reporter(
    settings: Settings,
    producer: Producer,
    progress: WorkerProgress,
    counters: Counters,
    versions: VersionManager,
    is_replaced: Callable[[], bool],
) -> StatusReporter:
    """Create the writer of a worker's status records. `is_replaced()` returns whether another process has the replica."""
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
