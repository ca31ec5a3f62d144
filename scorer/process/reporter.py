"""Puts together what a scorer tells of itself."""

import os
import time

from publisher.kafka import clients as kafka
from publisher.session.protocol import Counters
from scorer.observe.progress import Progress
from scorer.observe.status import PartitionStatus, ScorerStatus, StatusReporter, Twins, VersionStatus
from scorer.servables.manager import VersionManager
from scorer.servables.servable import Servable
from scorer.settings import Settings


def reporter(
    settings: Settings, progress: Progress, counters: Counters, versions: VersionManager, twins: Twins
) -> StatusReporter:
    """Reads plain values that the owner thread keeps."""
    started_ms = time.time_ns() // 1_000_000

    def status(state: str) -> ScorerStatus:
        places = sorted(progress.lag.keys() | progress.paused.keys())
        aspired = versions.aspired_revision  # before the refusals: one of an earlier revision is not taken for its own
        return ScorerStatus(
            scorer=settings.owner,
            region=settings.region,
            state=state,
            heartbeat_ms=time.time_ns() // 1_000_000,
            started_ms=started_ms,
            pid=os.getpid(),
            partitions=[PartitionStatus(*at, progress.lag.get(at, 0), progress.paused.get(at, "")) for at in places],
            versions={role: _version(servable) for role, servable in versions.serving.items()},
            refused={refusal.version: refusal.reason for refusal in versions.refusals()},
            cost=versions.champion.loaded.cost.line(),
            counters={
                "events": progress.events,
                "batches": progress.batches,
                "recoveries": progress.recoveries,
                "aborts": counters.aborts,
                "rotations": counters.rotations,
            },
            tag=settings.model.tag,
            aspired_revision=aspired,
            instance=twins.instance,
            first=twins.first,
        )

    return StatusReporter(kafka.plain_producer(settings.kafka, settings.owner), settings.status_topic, status, twins)


def _version(servable: Servable) -> VersionStatus:
    origin = servable.encoder.provenance
    return VersionStatus(origin["model"], origin["version"], origin["digest"], servable.resolution.revision)
