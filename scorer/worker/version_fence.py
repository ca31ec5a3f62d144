"""Prevent a partition from being scored by an older revision of the channel than before.

If a newer revision has scored an assigned partition, the partition is paused until this scorer serves that revision, or a time
limit ends the wait.

The wait is useless if the channel no longer has the revision that scored the partition. There are two such cases:
- The channel was recreated, so its revisions start again at 1. The fence recognizes this case at once, because the channel's
  history has a new id.
- The registry was restored from a backup. The fence recognizes this case when the first wait reaches the time limit.

In both cases, messages and metrics call the channel younger than its partitions.
"""

import logging
import math
from collections.abc import Callable

from prometheus_client import Counter, Gauge

from model_registry.channels.channel import Resolution
from publisher.kafka.partitions import Partition, in_ranges
from scorer.consumer.consumer import EventConsumer

log = logging.getLogger(__name__)

WAIT_SECONDS = 30.0  # the longest wait of a partition for the revision that scored it last; then an alarm is raised
COPY_HINT = "`model-registry copy` moves a channel to another registry with its history and revisions"
POLL_SECONDS = 0.5  # between two polls of the registry while partitions wait


class VersionFence:
    """Pauses the assigned partitions of one scorer that a newer revision has scored.

    Args:
        intake: the consumer.
        poll_registry: a function that polls the registry at once.
        timeouts: the counter of partitions whose wait reached WAIT_SECONDS, because this scorer did not serve the newer
            revision in that time.
        younger: a gauge that is 1 while the channel does not have the revision that has scored an assigned partition, because
            the channel was recreated or restored.
        clock: a function that returns monotonic seconds.
    """

    def __init__(
        self,
        intake: EventConsumer,
        poll_registry: Callable[[], None],
        timeouts: Counter,
        younger: Gauge,
        clock: Callable[[], float],
    ) -> None:
        self._intake = intake
        self._poll_registry = poll_registry
        self._timeouts = timeouts
        self._younger = younger
        self._clock = clock
        self._until: dict[Partition, float] = {}
        self._poll_at = 0.0
        self._absent_revision = 0  # the highest revision that partitions waited for and that the registry does not have
        self._highest_foreign = 0  # the highest revision of partitions that are older than the channel

    def admit(self, served: Resolution, trusted: float = math.inf, polled: float = math.inf) -> None:
        """Admit the newly assigned partitions. Pause each partition that was scored by a newer revision than the served one.

        Exception: if the channel no longer has the newer revision, the partition is not paused, unless the newer revision is
        greater than `trusted`.

        Args:
            served: the state of the channel that this scorer serves.
            trusted: the highest revision that this scorer accepts; infinity accepts every revision. See `check`.
            polled: the current revision of the channel in the registry; infinity if it is unknown.
        """
        partitions = self._intake.partitions
        arrivals = partitions.arrivals()
        partitions.admit(arrivals)
        revision = served.revision
        ahead = {p for p in arrivals if partitions.metadata(p).revision > revision}
        older = {p for p in ahead if self._is_older_than_channel(p, served, polled)}
        self._report_older({p for p in older if partitions.metadata(p).revision <= trusted}, revision)
        ahead = {p for p in ahead if p not in older or partitions.metadata(p).revision > trusted}
        if ahead:
            log.warning(
                "waiting for a newer revision of the channel than %d: a newer revision has already scored events of %s",
                revision,
                in_ranges(ahead),
            )
            self._intake.pause(ahead, "revision")
            self._until |= dict.fromkeys(ahead, self._clock() + WAIT_SECONDS)

    def _is_older_than_channel(self, partition: Partition, served: Resolution, polled: float) -> bool:
        """Return whether the channel no longer has the revision that scored the partition, so that a wait for it is useless.

        The result is True in two cases:
        - The revision belongs to another history of the channel, because the channel was recreated.
        - An earlier partition waited without success for this or a higher revision, and the channel in the
          registry still has a lower one.
        """
        mark = self._intake.partitions.metadata(partition)
        return mark.is_of_other_history(served.history) or polled < mark.revision <= self._absent_revision

    def _report_older(self, older: set[Partition], revision: int) -> None:
        if not older or revision == 0:  # a version's own tag has no revisions
            return
        highest = max(self._intake.partitions.metadata(p).revision for p in older)
        self._highest_foreign = max(self._highest_foreign, highest)
        self._younger.set(1)
        log.warning(
            "the channel is younger than its partitions: it was recreated or restored and is at revision %d, and revision %d "
            "has scored events of %s; scoring continues (hint: %s)",
            revision,
            highest,
            in_ranges(older),
            COPY_HINT,
        )

    def check(self, revision: int, trusted: float = math.inf, polled: float = math.inf) -> None:
        """Resume the paused partitions whose revision is now served, and the partitions that have waited for WAIT_SECONDS.

        Args:
            revision: the served revision. It ends the wait for this and for lower revisions.
            trusted: the highest revision that this scorer accepts. Partitions with a greater revision wait longer than
                WAIT_SECONDS. Another scorer has accepted that revision, but the channel no longer has it, for example because
                an older state of the registry was restored.
            polled: the current revision of the channel in the registry; infinity if it is unknown. If a partition has waited
                without success for a greater revision, later partitions do not wait for that revision.
        """
        if self._highest_foreign and revision >= self._highest_foreign:
            self._highest_foreign = 0
            self._younger.set(0)
        if not self._until:
            return
        now = self._clock()
        partitions = self._intake.partitions
        self._until = {p: until for p, until in self._until.items() if p in partitions}
        reached = {p for p in self._until if partitions.metadata(p).revision <= revision}
        late = {p for p, until in self._until.items() if now >= until} - reached
        held_back = {p for p in late if partitions.metadata(p).revision > trusted}
        if held_back:
            log.error(
                "the newer revision was not served within %d s, and this scorer has not accepted its channel move; "
                "these partitions still wait: %s",
                WAIT_SECONDS,
                in_ranges(held_back),
            )
            self._timeouts.inc(len(held_back))
            self._until |= dict.fromkeys(held_back, now + WAIT_SECONDS)
            late -= held_back
        if late:
            log.error(
                "the newer revision was not served within %d s; scoring with revision %d: %s",
                WAIT_SECONDS,
                revision,
                in_ranges(late),
            )
            self._timeouts.inc(len(late))
            absent = {p for p in late if partitions.metadata(p).revision > polled}
            self._absent_revision = max([self._absent_revision, *(partitions.metadata(p).revision for p in absent)])
            self._report_older(absent, revision)
        self._intake.resume(reached | late, "revision")
        for partition in reached | late:
            del self._until[partition]
        if self._until and now >= self._poll_at:
            self._poll_at = now + POLL_SECONDS
            self._poll_registry()
