"""Puts together what a scorer tells of itself: its status record and whether it is ready."""

import os
import time

from publisher.kafka import clients as kafka
from publisher.session.protocol import Counters
from scorer.observe.progress import Progress
from scorer.observe.status import PartitionStatus, ScorerStatus, StatusReporter, Twins, VersionStatus
from scorer.servables.manager import VersionManager
from scorer.servables.servable import Servable
from scorer.settings import Settings


class Reporter:
    """Reads plain values that the owner thread keeps; see `StatusReporter` for when it writes."""

    def __init__(
        self, settings: Settings, progress: Progress, counters: Counters, versions: VersionManager, twins: Twins
    ) -> None:
        self._settings = settings
        self._progress = progress
        self._counters = counters
        self._versions = versions
        self._twins = twins
        self._started_ms = time.time_ns() // 1_000_000
        producer = kafka.plain_producer(settings.kafka, settings.owner)
        self._records = StatusReporter(producer, settings.status_topic, self.status, twins)

    def tick(self) -> None:
        """Called about once a second."""
        self._records.tick(time.monotonic())

    def close(self) -> None:
        """Tell that this scorer has stopped, unless another goes on under its name."""
        if not self._twins.older:
            self._records.close()

    def status(self, state: str) -> ScorerStatus:
        """The status record of now."""
        serving, progress = self._versions.serving, self._progress
        places = sorted(progress.lag.keys() | progress.paused.keys())
        aspired = self._versions.aspired_revision  # before the refusals: one of an earlier revision is not taken for its own
        return ScorerStatus(
            scorer=self._settings.owner,
            region=self._settings.region,
            state=state,
            heartbeat_ms=time.time_ns() // 1_000_000,
            started_ms=self._started_ms,
            pid=os.getpid(),
            partitions=[
                PartitionStatus(*place, progress.lag.get(place, 0), progress.paused.get(place, "")) for place in places
            ],
            versions={role: _version(servable) for role, servable in serving.items()},
            refused={refusal.version: refusal.reason for refusal in self._versions.refusals()},
            cost=self._versions.champion.loaded.cost.line(),
            counters={
                "events": progress.events,
                "batches": progress.batches,
                "recoveries": progress.recoveries,
                "aborts": self._counters.aborts,
                "rotations": self._counters.rotations,
            },
            tag=self._settings.model.tag,
            aspired_revision=aspired,
            instance=self._twins.instance,
            first=self._twins.first,
        )


def _version(servable: Servable) -> VersionStatus:
    origin = servable.encoder.provenance
    return VersionStatus(origin["model"], origin["version"], origin["digest"], servable.resolution.revision)
