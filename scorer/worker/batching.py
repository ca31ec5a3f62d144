"""Collect batches: decide how many events the next batch may have, and when it is polled.

The size follows from the latency target and measured costs, up to `batching.max_events`. A scorer polls the available events
when the next transaction may begin (`transaction_pacing.py`), so batches grow under load. All code except `BatchCollector` is
pure.
"""

import time
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

from publisher.kafka.clients import LARGEST_BATCH
from publisher.runtime.context import now_ms
from publisher.transactions.session import Record
from scorer.consumer.consumer import EventConsumer
from scorer.crash_isolation.quarantine import Quarantine
from scorer.decoding.batch import Batch, End
from scorer.models.latency_model import LatencyModel
from scorer.models.servable import Servable
from scorer.native.produce_records import ColumnarRecords
from scorer.settings import Settings
from scorer.worker.transaction_pacing import TransactionPacing

FETCH_SECONDS = 0.004  # a fetch from a nearby broker, which starts when the previously fetched events are polled
MIN_EVENTS = 1_000  # events of a batch that record sizes do not reduce further: each transaction has a cost
FILL = 0.95  # the share of a produce request that records may fill
FEATURE_REQUEST_BYTES = 8_000_000  # feature records of a batch that may need several requests of a partition
SAMPLE = 64  # the size of every 64th record is measured
EWMA = 0.1  # the weight of a new observation that is lower than the estimate
PARTITION = itemgetter(0, 3)  # of a record: topic and number
RECORD_BYTES = 40  # the overhead of a record without key, value and headers, and the largest overhead of a header


class BatchCollector:
    """Polls batches that are as large as the latency target allows, and no faster than the broker can commit transactions.

    After each batch, the caller must report the outcome to `pacing`, `limiter` and `look_ups`. `largest_record` is the size
    limit of a record in bytes: the smallest limit among the topics that the scorer writes to.
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
        """Return the next batch, limited by the costs of `servable`; None if no event arrived within `wait` seconds."""
        begin = self._wait_for_turn()
        batch = self._intake.take(wait, lambda timestamp: self._limit(servable, timestamp), begin)
        if batch is not None:
            self.pacing.begin(time.monotonic(), full=is_full(batch.end, len(batch), self._max_events))
        return batch

    def _wait_for_turn(self) -> float:
        """Wait until shortly before the next transaction may begin. Return its earliest start in monotonic seconds.

        Each transaction costs the broker CPU time, so there is a pause between two transactions. Events that arrive during the
        wait become part of the next transaction. If events are already late (`TransactionPacing.is_behind`), there is no wait.
        """
        now = time.monotonic()
        pause = self.pacing.wait(now)
        if pause > FETCH_SECONDS and not self.pacing.is_behind:
            time.sleep(pause - FETCH_SECONDS)
        return now + pause

    def _limit(self, servable: Servable, timestamp_ms: int) -> int:
        age = max(0.0, (now_ms() - timestamp_ms) / 1_000) if timestamp_ms > 0 else 0.0
        self.pacing.record_age(age)
        at_most = self._quarantine.limit_events(self.look_ups.limit)
        return self.limiter.limit(servable.loaded.cost, servable.loaded.inference, age, at_most, self.pacing.interval)


class BatchLimiter:
    """Computes the maximum number of events of the next batch from measured costs and record sizes.

    `target` is the latency target, and `deadline` the time limit of the model for a batch, both in seconds. `max_events` is the
    configured maximum.

    For each output partition, the records of a batch should fit in one produce request of `request_bytes`. The limiter assumes
    that the partition with the most records gets the same share of the records as in recent batches. If its share is higher,
    the partition needs more than one request. Feature records of up to FEATURE_REQUEST_BYTES may need several requests.
    """

    # A single request avoids a busy loop: while one request of a partition is in flight and more records of that partition
    # wait, the thread of the Kafka client may spin. The loop lasts milliseconds, or as long as a broker does not answer.
    #
    # JSON feature records of 740 bytes would limit a batch to 1,300 events, and the smaller batches cost more than the loop: a
    # drain took 6.9 us of CPU time per event, instead of 4.7 us with several requests. With a round trip of 10 ms it was 8.1 us
    # and 9,300 events/s, instead of 5.8 us and 17,100 events/s. When a broker did not answer for 4 s, the thread spun once in
    # four times. While a killed broker was down, it never spun.

    def __init__(self, *, target: float, deadline: float, max_events: int, request_bytes: int) -> None:
        self._target = target
        self._deadline = deadline
        self._max_events = max_events
        self._request_bytes = request_bytes
        self._record_bytes = 0.0
        self._share = 1.0
        self._feature_bytes = 0.0
        self._feature_share = 1.0
        self._limit = self._largest = max_events

    def limit(self, cost: LatencyModel, inference: LatencyModel, oldest_age: float, at_most: int, interval: float = 0.0) -> int:
        """Return the maximum number of events, 1 to `at_most`, of a batch whose oldest event is `oldest_age` seconds old.

        `cost` predicts how long a batch takes from decoding to its commit, and `inference` how long the model alone takes.
        `interval` is the time in seconds from the start of this batch to the start of the next batch.
        """
        self._largest = min(self._within_requests(), at_most)
        most = within_deadline(inference, self._deadline, self._largest)
        self._limit = within_target(cost, self._target, oldest_age, most, interval)
        return self._limit

    def limited_by(self, end: End) -> str:
        """Return what limited the size of the batch that was fetched after the last call of `limit`.

        Args:
            end: the reason why the fetch stopped. It is "events" if the batch has as many events as `limit` allowed.

        Returns:
            `end`, if it is not "events". Otherwise the reason for the limit: "latency" for the latency target or the model's
            deadline, "size" for `max_events`, and "bytes" for the size of produce requests or for `at_most`.
        """
        if end != "events":
            return end
        if self._limit < self._largest:
            return "latency"
        return "size" if self._largest >= self._max_events else "bytes"

    def observe(self, records: Sequence[Record], end: End, features: Sequence[Sequence[Record]] = ()) -> None:
        """Update the estimates of record size and partition share with the records of a batch.

        A batch with fewer than MIN_EVENTS records is ignored, because it is far from any limit. The share of the partition with
        the most records is measured only in a full batch.

        Args:
            records: the scores and dead letters of the batch.
            end: the reason why the fetch of the batch stopped.
            features: the feature records of the batch, which are sent to another topic in requests of their own.
        """
        if len(records) < MIN_EVENTS:
            return
        self._record_bytes = _update_estimate(self._record_bytes, mean_wire_bytes(records))
        full = is_full(end, len(records), self._max_events)
        if full:
            self._share = _update_estimate(self._share, largest_share(records))
        if features:
            total_bytes = sum(len(part) * mean_wire_bytes(part) for part in features)
            self._feature_bytes = _update_estimate(self._feature_bytes, total_bytes / len(records))
            if full:
                self._feature_share = _update_estimate(self._feature_share, largest_share(max(features, key=len)))

    def _within_requests(self) -> int:
        """Return the largest batch whose records fit in their produce requests, according to the estimates."""
        record_share = self._record_bytes * self._share / self._request_bytes
        feature_share = min(
            self._feature_bytes * self._feature_share / self._request_bytes,
            self._feature_bytes / FEATURE_REQUEST_BYTES,
        )
        per_event = max(record_share, feature_share)  # the share of the available bytes that an event fills
        if not per_event:
            return self._max_events
        return min(self._max_events, max(MIN_EVENTS, int(FILL / per_event)))


class LookUpLimit:
    """A limit on the number of events in a batch, 1 to `max_events`, that falls while look-ups of event schemas are slow.

    If the schemas of a batch are not found in time, only half of its events are polled in the next batch. The look-ups continue
    meanwhile. Repeated halving ends at a batch of one event. Each answered batch doubles the limit.
    """

    def __init__(self, max_events: int) -> None:
        self._max_events = max_events
        self.limit = max_events

    def halve(self, events: int) -> None:
        """Set the limit to half of `events`, the size of a batch whose schemas were not found in time."""
        self.limit = max(1, events // 2)

    def double(self) -> None:
        """Double the limit, up to `max_events`, after a batch was answered."""
        self.limit = min(self._max_events, 2 * self.limit)


def _update_estimate(estimate: float, observed: float) -> float:
    """Return the new estimate. A higher observation replaces the estimate at once, a lower one reduces it gradually."""
    return max(observed, estimate + EWMA * (observed - estimate))


def is_full(end: End, events: int, max_events: int) -> bool:
    """Return whether a batch is full, so that a longer wait before the fetch would not have made the batch larger.

    A batch is full if its fetch stopped at the limit of bytes. A batch of at least MIN_EVENTS events (or `max_events`, if that
    is fewer) is also full if its fetch stopped at the limit of events.

    Args:
        end: the reason why the fetch of the batch stopped.
        events: the number of events in the batch.
        max_events: the configured maximum of events in a batch.
    """
    return end == "bytes" or (end == "events" and events >= min(MIN_EVENTS, max_events))


def within_target(cost: LatencyModel, target: float, oldest_age: float, max_events: int, interval: float = 0.0) -> int:
    """Return the largest batch, 1 to `max_events`, that meets the latency target (seconds) for its oldest event.

    If even a batch of one event cannot meet the target, there is a backlog. The result is then `max_events`, for throughput.

    A batch may always take up to `interval` seconds, even if the oldest event then misses the target. A smaller batch would
    leave events for the next batch, and these events would wait until it begins, `interval` seconds later.
    """
    a, b = cost.line()
    if target - oldest_age < a + b:
        return max_events
    budget = max(target - oldest_age, interval)
    return max_events if b * max_events <= budget - a else max(1, int((budget - a) / b))


def within_deadline(inference: LatencyModel, seconds: float, max_events: int) -> int:
    """Return the largest batch, 1 to `max_events`, with an expected inference time of at most `seconds`."""
    return inference.largest_batch(seconds, max_events)


def wire_bytes(record: Record) -> int:
    """Return the approximate size of a record in a produce request, before compression."""
    _, value, key, _, _, headers = record
    named = sum(RECORD_BYTES + len(name) + len(content or b"") for name, content in headers or ())
    return RECORD_BYTES + len(value or b"") + len(key or b"") + named


def mean_wire_bytes(records: Sequence[Record]) -> float:
    """Return the mean approximate size of a record in bytes. If the records are not stored as columns, a sample is measured."""
    if isinstance(records, ColumnarRecords):
        return RECORD_BYTES + records.mean_bytes()
    sample = records[::SAMPLE]
    return sum(map(wire_bytes, sample)) / len(sample)


def largest_share(records: Sequence[Record]) -> float:
    """Return the share of these records, up to 1.0, in the partition with the most records. `records` is not empty."""
    if isinstance(records, ColumnarRecords):
        return records.largest_share()
    return max(Counter(map(PARTITION, records)).values()) / len(records)
