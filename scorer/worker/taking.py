"""Takes batches: as large as can be answered in time, and no more often than the broker can carry transactions."""

import time

from publisher.kafka.clients import LARGEST_BATCH
from publisher.runtime.context import now_ms
from scorer.decoding.batch import Batch
from scorer.models.servable import Servable
from scorer.worker.batching import Limiter, LookUpLimit, full
from scorer.worker.context import Collaborators
from scorer.worker.transaction_pacing import Pacing

FETCH_SECONDS = 0.004  # a fetch from a broker nearby, which begins when what was fetched before is taken


class Taking:
    """For one loop, which tells `pacing` and `limiter` what became of each batch."""

    def __init__(self, collaborators: Collaborators) -> None:
        settings, scoring = collaborators.settings, collaborators.scoring
        self._intake = collaborators.intake
        self._quarantine = collaborators.quarantine
        self._max_events = settings.batching.max_events
        target = settings.batching.latency_target_ms / 1_000
        self.pacing = Pacing(target)
        self.look_ups = LookUpLimit(self._max_events)
        self.limiter = Limiter(
            target=target,
            deadline=settings.model.deadline_ms / 1_000,
            max_events=self._max_events,
            request_bytes=min(LARGEST_BATCH, scoring.output.max_bytes, scoring.dead.max_bytes),
        )

    def take(self, servable: Servable, wait: float) -> Batch | None:
        """The next batch for this version; None where nothing came within `wait` seconds."""
        begin = self._begin()
        batch = self._intake.take(wait, lambda timestamp: self._limit(servable, timestamp), begin)
        if batch is not None:
            self.pacing.begin(time.monotonic(), full=full(batch.end, len(batch), self._max_events))
        return batch

    def _begin(self) -> float:
        """The broker pays for each transaction: leave some time between two. When the next may begin, a little later than now
        where there was time to leave, or more than a little where events wait: what is fetched meanwhile belongs to it."""
        now = time.monotonic()
        pause = self.pacing.wait(now)
        if pause > FETCH_SECONDS and not self.pacing.behind:
            time.sleep(pause - FETCH_SECONDS)
        return now + pause

    def _limit(self, servable: Servable, timestamp_ms: int) -> int:
        age = max(0.0, (now_ms() - timestamp_ms) / 1_000) if timestamp_ms > 0 else 0.0
        self.pacing.take(age)
        at_most = self._quarantine.most(self.look_ups.limit)
        return self.limiter.limit(servable.loaded.cost, servable.loaded.inference, age, at_most, self.pacing.interval)
