"""Decide which events of a batch belong to the canary, and whether the candidate may answer them.

A scorer answers every event, however late the event is. A shadow instead scores a sample of the events and skips late events
(`shadow_sampling.py`).
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
UNAVAILABLE = "away"
"""REFUSED, BREAKER, CRASH and UNAVAILABLE are the reasons why the champion answers an event of the canary.

If the candidate has failed for the event, the reason is instead the code of a dead letter; see `dead_letters/reasons.py`.
"""


@dataclass(frozen=True, slots=True)
class Arms:
    """The assignment of the events of a batch to two arms, the champion and the canary.

    A scorer leaves `sampled` and `absent` at their defaults. A shadow process (`scorer run --shadow`) sets them.

    Attributes:
        canary: (B,) booleans, whether each event belongs to the canary.
        candidate: the version that answers the canary's events; None if the champion answers these events too.
        reason: why `candidate` is None: REFUSED, BREAKER, CRASH or UNAVAILABLE; "" if there is a candidate.
        sampled: (B,) booleans, whether the shadow process scores each event.
        absent: the version and digest of the candidate. The shadow's records name this version even if it is not loaded.
        alike: whether champion and candidate decode an event to the same input tensors.
    """

    canary: NDArray[np.bool_]
    candidate: Servable | None
    reason: str = ""
    sampled: NDArray[np.bool_] | None = None
    absent: tuple[str, str] = ("", "")
    alike: bool = False


class ArmAssigner:
    """Assigns the events of each batch to the champion or the canary, and suspends a candidate that fails on many events."""

    def __init__(self, quarantine: Quarantine, clock: Callable[[], float] = time.monotonic) -> None:
        self._quarantine = quarantine
        self._clock = clock
        self._breaker = CircuitBreaker()

    def arms(self, batch: Batch, canary: CanaryArm | None) -> Arms | None:
        """Assign the events of this batch to champion and canary. Return None if all events belong to the champion."""
        if canary is None:
            return None
        selected = canary.split.canary(batch)
        if not selected.any():
            return None
        if canary.servable is None:
            return Arms(selected, None, REFUSED)
        if not self._quarantine.allows_candidate():
            return Arms(selected, None, CRASH)
        allowed = self._breaker.is_closed(canary.digest, self._clock())
        return Arms(selected, canary.servable, alike=canary.alike) if allowed else Arms(selected, None, BREAKER)

    def too_late(self, _lag_seconds: Mapping[Partition, float], /) -> Collection[Partition]:
        """Return the partitions whose backlog is skipped: none, because a scorer answers every event."""
        return ()

    def observe(self, label: str, requested: int, failed: int) -> None:
        """Record that the candidate failed for `failed` of the `requested` events of a batch.

        The champion has answered the failed events. If the candidate fails for too many events, it is suspended.
        `label` names the candidate in the log.
        """
        if self._breaker.observe(requested, failed, self._clock()):
            message = "the champion answers for %d s instead: the candidate %s failed for %d of %d events"
            log.warning(message, OPEN_SECONDS, label, failed, requested)
