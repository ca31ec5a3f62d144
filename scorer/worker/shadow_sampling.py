"""Select the events that a shadow scores: a share of the keys, regardless of the version that answers them in production.

If the lag of a partition exceeds the lag limit of the shadow, the backlog of the partition is skipped.
"""

import logging
from collections.abc import Collection, Mapping

import numpy as np
from confluent_kafka import TopicPartition

from publisher.kafka.partitions import Partition
from publisher.transactions.session import Session
from scorer.consumer.consumer import EventConsumer
from scorer.crash_isolation.quarantine import Quarantine
from scorer.decoding.batch import Batch
from scorer.models.servable import CanaryArm
from scorer.models.traffic_split import TrafficSplit
from scorer.settings.shadow import ShadowSettings
from scorer.worker.canary_routing import REFUSED, ArmAssigner, Arms

log = logging.getLogger(__name__)


class ShadowSampler(ArmAssigner):
    """Assigns the events of each batch to champion and canary, and selects the events that the shadow scores."""

    def __init__(self, quarantine: Quarantine, settings: ShadowSettings) -> None:
        super().__init__(quarantine)
        self._settings = settings
        self._sampled: tuple[str, int] | None = None
        self._sample = TrafficSplit(0, 0)

    def arms(self, batch: Batch, canary: CanaryArm | None) -> Arms | None:
        """Assign the events of this batch to champion and canary, and select the sample. Return None if the sample is empty."""
        if canary is None:
            self._begin("", 0)
            return None
        self._begin(canary.digest, canary.pairs or self._settings.share)
        sampled = self._sample.canary(batch)
        if not sampled.any():
            return None
        candidate_rows = np.zeros(len(batch), np.bool_)
        if canary.split.below:
            candidate_rows = canary.split.canary(batch)
        candidate = canary.servable
        if candidate is not None and self._quarantine.refusal_reason(candidate.resolution.identity):
            candidate = None
        return Arms(candidate_rows, candidate, "" if candidate else REFUSED, sampled, (canary.version, canary.digest))

    def _begin(self, digest: str, share: int) -> None:
        """Sample `share` percent of the keys from now on. `digest` identifies the candidate; "" if there is no candidate."""
        if (digest, share) == self._sampled:
            return
        self._sampled = (digest, share)
        self._sample = TrafficSplit.sample(digest, share)
        if digest:
            log.info("sampling %d %% of the keys to compare %s with the champion", share, digest)
        else:
            log.info("the channel has neither a canary nor a shadow: nothing is scored")

    def too_late(self, lag_seconds: Mapping[Partition, float], /) -> Collection[Partition]:
        limit = self._settings.max_lag_seconds
        return [partition for partition, seconds in lag_seconds.items() if seconds > limit]

    def observe(self, label: str, requested: int, failed: int) -> None:
        """Do nothing. A shadow never suspends a failing candidate, because it measures the candidate's failures."""


def skip_to_end(partitions: Collection[Partition], intake: EventConsumer, session: Session, owner: str) -> int:
    """Commit the end offsets of these partitions, and continue to read there. Return the number of skipped offsets.

    Partitions that are not assigned are ignored. The metadata of the committed offsets is kept, except for the name of the
    owner, which becomes `owner`. Call this function only if the outcome of all published batches is known. If the call raises
    Aborted, the caller must repeat it after the recovery.
    """
    lag = {place: records for place, records in intake.lag().items() if place in partitions and records}
    positions = []
    for position in intake.partitions.ownership_positions(lag, owner):
        place = position.topic, position.partition
        positions.append(TopicPartition(*place, (intake.partitions.next(place) or 0) + lag[place], position.metadata))
    if positions:
        session.publish([], positions, intake.group)
        session.checkpoint()
        intake.follow(lag)
    return sum(lag.values())
