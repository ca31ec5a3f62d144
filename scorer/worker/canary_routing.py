"""Decide which events of a batch belong to the canary, and whether the candidate may answer them.

All events are answered, however late they are; a shadow samples (`shadow_sampling.py`).
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from publisher.kafka.partitions import Partition
from scorer.crash_isolation.quarantine import Quarantine
from scorer.decoding.batch import Batch
from scorer.models.servable import CanaryArm, Servable
from scorer.worker.circuit_breaker import OPEN_SECONDS, CircuitBreaker

log = logging.getLogger(__name__)

REFUSED = "refused"
BREAKER = "breaker"
CRASH = "crash"
AWAY = "away"
"""The reasons, besides those of dead letters, why the champion answers events of the canary."""


@dataclass(frozen=True, slots=True)
class Arms:
    """The arms of a batch.

    Attributes:
        canary: (B,), whether each event belongs to the canary.
        candidate: the version that answers the canary's events; if None, the champion answers them.
        reason: the reason if `candidate` is None.
        sampled: (B,), whether a shadow scores each event.
        absent: the version and digest of a candidate that the shadow could not load.
        alike: whether both versions decode an event to the same tensors.
    """

    canary: NDArray[np.bool_]
    candidate: Servable | None
    reason: str = ""
    sampled: NDArray[np.bool_] | None = None
    absent: tuple[str, str] = ("", "")
    alike: bool = False


class ArmAssigner:
    """Assigns the arms for one scorer."""

    def __init__(self, quarantine: Quarantine, clock: Callable[[], float] = time.monotonic) -> None:
        self._quarantine = quarantine
        self._clock = clock
        self._breaker = CircuitBreaker()

    def arms(self, batch: Batch, canary: CanaryArm | None) -> Arms | None:
        """Return the arms; None if every event is the champion's."""
        if canary is None:
            return None
        selected = canary.split.canary(batch)
        if not selected.any():
            return None
        if canary.servable is None:
            return Arms(selected, None, REFUSED)
        if not self._quarantine.allows_candidate():
            return Arms(selected, None, CRASH)
        allowed = self._breaker.allows(canary.digest, self._clock())
        return Arms(selected, canary.servable, alike=canary.alike) if allowed else Arms(selected, None, BREAKER)

    def too_late(self, _lag_seconds: Mapping[Partition, float], /) -> Collection[Partition]:
        """Return the partitions whose backlog is skipped."""
        return ()

    def observe(self, label: str, requested: int, failed: int) -> None:
        """Record a batch in which the candidate failed on some of its events, which the champion answered."""
        if self._breaker.observe(requested, failed, self._clock()):
            message = "the champion answers for %d s instead: the candidate %s failed for %d of %d events"
            log.warning(message, OPEN_SECONDS, label, failed, requested)
