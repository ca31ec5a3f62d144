"""Prevent that a partition is scored by an older revision than before.

If a newer revision has scored an assigned partition, the partition is paused until this scorer serves that revision, or a time
limit ends the wait.
"""

import logging
import math
from collections.abc import Callable

from prometheus_client import Counter

from publisher.kafka.partitions import Partition, in_ranges
from scorer.consumer.consumer import EventConsumer

log = logging.getLogger(__name__)

WAIT_SECONDS = 30.0  # the longest wait of a partition for the revision that scored it last; then an alarm is raised
POLL_SECONDS = 0.5  # between two polls of the registry while partitions wait


class VersionFence:
    """Pauses the assigned partitions of one scorer that a newer revision has scored.

    `poll_registry` polls the registry at once. `timeouts` counts the partitions that waited for WAIT_SECONDS although this
    scorer did not reach their revision. `clock` returns monotonic seconds.
    """

    def __init__(
        self, intake: EventConsumer, poll_registry: Callable[[], None], timeouts: Counter, clock: Callable[[], float]
    ) -> None:
        self._intake = intake
        self._poll_registry = poll_registry
        self._timeouts = timeouts
        self._clock = clock
        self._until: dict[Partition, float] = {}
        self._poll_at = 0.0

    def admit(self, revision: int) -> None:
        """Admit newly assigned partitions, and pause those that a newer revision than the served `revision` has scored."""
        partitions = self._intake.partitions
        arrivals = partitions.arrivals()
        partitions.admit(arrivals)
        ahead = {p for p in arrivals if partitions.metadata(p).revision > revision}
        if ahead:
            log.warning(
                "waiting for a newer revision than %d, because a newer revision has scored events of %s",
                revision,
                in_ranges(ahead),
            )
            self._intake.pause(ahead, "revision")
            self._until |= dict.fromkeys(ahead, self._clock() + WAIT_SECONDS)

    def check(self, revision: int, trusted: float = math.inf) -> None:
        """Resume paused partitions whose revision the served `revision` has reached, or that have waited for WAIT_SECONDS.

        A partition keeps waiting if its revision is greater than `trusted`, the highest revision that this scorer accepts.
        Another scorer has accepted that revision, but the channel no longer has it, for example because an older state of the
        registry was restored.
        """
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
                "the newer revision was not served within %d s, and its move is not accepted; these partitions still wait: %s",
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
        self._intake.resume(reached | late, "revision")
        for partition in reached | late:
            del self._until[partition]
        if self._until and now >= self._poll_at:
            self._poll_at = now + POLL_SECONDS
            self._poll_registry()
