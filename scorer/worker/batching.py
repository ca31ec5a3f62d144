"""Collect batches: how many events the next one may have, and when it is polled.

The latency target is the only setting. A scorer polls the available events when the next transaction may begin
(`transaction_pacing.py`), so batches grow under load. Except for `BatchCollector` everything here is pure: values and measured
costs in, numbers out.
"""

import time
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

from publisher.kafka.clients import LARGEST_BATCH
from publisher.runtime.context import now_ms
from publisher.transactions.protocol import Record
from scorer.consumer.consumer import EventConsumer
from scorer.crash_isolation.quarantine import Quarantine
from scorer.decoding.batch import Batch, End
from scorer.models.latency_model import LatencyModel
from scorer.models.servable import Servable
from scorer.native.produce_records import ColumnarRecords
from scorer.settings import Settings
from scorer.worker.transaction_pacing import TransactionPacing

FETCH_SECONDS = 0.004  # a fetch from a nearby broker, which starts when the previously fetched events are polled
FEWEST = 1_000  # events of a batch regardless of the size of their records: each transaction has a cost
FILL = 0.95  # of a produce request
SAMPLE = 64  # one of this many records is measured
EWMA = 0.1
PARTITION = itemgetter(0, 3)  # of a record: topic and number
RECORD_BYTES = 40  # the overhead of a record without key, value and headers, and the largest overhead of a header


class BatchCollector:
    """Polls batches: as large as can be answered in time, and no more often than the broker can carry transactions.

    The caller reports the outcome of each batch to `pacing`, `limiter` and `look_ups`. `largest_record` is the smallest limit
    of a record in the output topics, in bytes.
    """

    def __init__(self, settings: Settings, intake: EventConsumer, quarantine: Quarantine, largest_record: int) -> None:
        self._intake = intake
        self._quarantine = quarantine
        self._max_events = settings.batching.max_events
        target = settings.batching.latency_target_ms / 1_000
        self.pacing = TransactionPacing(target)
        self.look_ups = LookUpLimit(self._max_events)
        self.limiter = BatchLimiter(
            target=target,
            deadline=settings.model.deadline_ms / 1_000,
            max_events=self._max_events,
            request_bytes=min(LARGEST_BATCH, largest_record),
        )

    def take(self, servable: Servable, wait: float) -> Batch | None:
        """Return the next batch for this version; None if no event arrived within `wait` seconds."""
        begin = self._wait_for_turn()
        batch = self._intake.take(wait, lambda timestamp: self._limit(servable, timestamp), begin)
        if batch is not None:
            self.pacing.begin(time.monotonic(), full=full(batch.end, len(batch), self._max_events))
        return batch

    def _wait_for_turn(self) -> float:
        """Wait until shortly before the next transaction may begin, and return the time when it may.

        Each transaction costs the broker CPU, so some time passes between two. Events that arrive during the wait are part of
        the next transaction.
        """
        now = time.monotonic()
        pause = self.pacing.wait(now)
        if pause > FETCH_SECONDS and not self.pacing.behind:
            time.sleep(pause - FETCH_SECONDS)
        return now + pause

    def _limit(self, servable: Servable, timestamp_ms: int) -> int:
        age = max(0.0, (now_ms() - timestamp_ms) / 1_000) if timestamp_ms > 0 else 0.0
        self.pacing.take(age)
        at_most = self._quarantine.limit_events(self.look_ups.limit)
        return self.limiter.limit(servable.loaded.cost, servable.loaded.inference, age, at_most, self.pacing.interval)


class BatchLimiter:
    """The limits of one scorer's batches.

    `target` (of latency) and `deadline` (of the model) are in seconds, `max_events` is the configured maximum. The records of
    a batch for one partition are sent in one produce request of `request_bytes`, as long as the fullest partition's share does
    not grow.

    While one request of a partition is in flight and more of its records wait, the thread of the Kafka client spins: usually
    for the milliseconds of a request, after a broker's restart for seconds, and several scorers then keep that broker from
    starting.
    """

    def __init__(self, *, target: float, deadline: float, max_events: int, request_bytes: int) -> None:
        self._target = target
        self._deadline = deadline
        self._max_events = max_events
        self._request_bytes = request_bytes
        self._record_bytes = 0.0
        self._share = 1.0
        self._limit = self._largest = max_events

    def limit(self, cost: LatencyModel, inference: LatencyModel, oldest_age: float, at_most: int, interval: float = 0.0) -> int:
        """Return the largest batch, 1 to `at_most`, whose oldest event is `oldest_age` seconds old.

        `cost` is the time of a batch from decoding to its commit, `inference` that of the model. The next batch begins after
        `interval` seconds.
        """
        self._largest = min(self._in_one_request(), at_most)
        most = within_deadline(inference, self._deadline, self._largest)
        self._limit = within_target(cost, self._target, oldest_age, most, interval)
        return self._limit

    def limited_by(self, end: End) -> str:
        """Return what limited the batch of the last `limit`, if it stopped at `end`.

        A batch with all allowed events was limited by the latency target or the deadline derived from it ("latency"), by
        `max_events` ("size"), or by the size of a produce request ("bytes").
        """
        if end != "events":
            return end
        if self._limit < self._largest:
            return "latency"
        return "size" if self._largest >= self._max_events else "bytes"

    def observe(self, records: Sequence[Record], end: End) -> None:
        """Record the records of a batch that stopped at `end`.

        Small batches are ignored: they are far from any limit. The share of the fullest partition counts only for a full
        batch.
        """
        if len(records) < FEWEST:
            return
        self._record_bytes = _risen(self._record_bytes, mean_wire_bytes(records))
        if full(end, len(records), self._max_events):
            self._share = _risen(self._share, largest_share(records))

    def _in_one_request(self) -> int:
        if not self._record_bytes:
            return self._max_events
        return min(self._max_events, max(FEWEST, int(FILL * self._request_bytes / (self._record_bytes * self._share))))


class LookUpLimit:
    """The maximum number of events, 1 to `max_events`, while the lookups of their schemas are slow.

    A batch whose schemas are not found in time is polled again with half the events. Lookups continue meanwhile, so a batch
    completes at the latest when it is one event. Each answered batch doubles the limit.
    """

    def __init__(self, max_events: int) -> None:
        self._max_events = max_events
        self.limit = max_events

    def exceeded(self, events: int) -> None:
        """Record that a batch of this size has waited long enough."""
        self.limit = max(1, events // 2)

    def answered(self) -> None:
        """Record that a batch has its records."""
        self.limit = min(self._max_events, 2 * self.limit)


def _risen(estimate: float, observed: float) -> float:
    """Return an estimate that rises at once and falls gradually."""
    return max(observed, estimate + EWMA * (observed - estimate))


def full(end: End, events: int, max_events: int) -> bool:
    """Return whether a batch of this size, which stopped at `end`, is worth a transaction: large, or at its maximum."""
    return end == "bytes" or (end == "events" and events >= min(FEWEST, max_events))


def within_target(cost: LatencyModel, target: float, oldest_age: float, max_events: int, interval: float = 0.0) -> int:
    """Return the largest batch, 1 to `max_events`, that meets the latency target (seconds) for its oldest event.

    If even one event cannot meet it, there is a backlog: throughput then decides, and the limit is `max_events`. A batch that
    takes no longer than the `interval` (seconds) to the next one is not cut: the remaining events would wait for that.
    """
    a, b = cost.line()
    if target - oldest_age < a + b:
        return max_events
    budget = max(target - oldest_age, interval)
    return max_events if b * max_events <= budget - a else max(1, int((budget - a) / b))


def within_deadline(inference: LatencyModel, seconds: float, max_events: int) -> int:
    """Return the largest batch, 1 to `max_events`, with an expected inference time of at most `seconds`."""
    return inference.within(seconds, max_events)


def wire_bytes(record: Record) -> int:
    """Return the approximate size of a record in a produce request, before compression."""
    _, value, key, _, _, headers = record
    named = sum(RECORD_BYTES + len(name) + len(content or b"") for name, content in headers or ())
    return RECORD_BYTES + len(value or b"") + len(key or b"") + named


def mean_wire_bytes(records: Sequence[Record]) -> float:
    """Return the mean size of these records: of a sample, unless their columns have it."""
    if isinstance(records, ColumnarRecords):
        return RECORD_BYTES + records.mean_bytes()
    sample = records[::SAMPLE]
    return sum(map(wire_bytes, sample)) / len(sample)


def largest_share(records: Sequence[Record]) -> float:
    """Return the share of the records (at least one) in the largest partition."""
    if isinstance(records, ColumnarRecords):
        return records.largest_share()
    return max(Counter(map(PARTITION, records)).values()) / len(records)
