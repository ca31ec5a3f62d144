"""How many events to take now, and when the next transaction may begin. Pure: values and measured costs in, numbers out.

The cost of a batch is modelled as T(B) = a + b B seconds, fitted by least squares with forgetting over the batches seen; the
latency target is the one knob. There is no linger: a scorer takes what is there, and batches grow by themselves under load.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from publisher.session import Record

BATCH_BYTES = 16 * 1_024 * 1_024  # what the events of a batch may hold together; one of any size is always taken
FORGET = 0.98  # weight of the past at each new batch: about the last fifty count
MINIMUM_INTERVAL = 0.005  # seconds between transactions: measured, p99 200 -> 17 ms at 1,000 events/s for 1 ms of p50
MAXIMUM_INTERVAL = 0.050
COMMIT_MULTIPLE = 2.0  # at least this many usual commit times lie between two transactions,
QUIET_COMMIT = 0.005  # and more in proportion where commits take longer than this: then the broker is busy
COMMIT_EWMA = 0.1
OVERLAP_SECONDS = 0.001  # what is overlapped takes at least so long: handing over to another thread costs a tenth of it
OVERLAP_SHARE = 2 / 3  # of a usual commit
FEWEST = 1_000  # events that a batch may have however large their records are: each transaction has its price
FILL = 0.95  # of a produce request
SAMPLE = 64  # one record of so many is measured
RECORD_BYTES = 40  # what a record takes beside key, value and headers, and a header beside name and value at most


@dataclass(slots=True)
class CostModel:
    """T(B) = a + b B, from exponentially forgotten sums of (1, B, T, B*B, B*T)."""

    weight: float = 0.0
    b: float = 0.0
    t: float = 0.0
    bb: float = 0.0
    bt: float = 0.0

    @classmethod
    def of(cls, samples: Iterable[tuple[int, float]]) -> "CostModel":
        """From (batch size, seconds) pairs, as measured at warm-up."""
        model = cls()
        for size, seconds in samples:
            model.observe(size, seconds)
        return model

    def observe(self, size: int, seconds: float) -> None:
        """One batch of `size` events took `seconds`."""
        self.weight = self.weight * FORGET + 1
        self.b = self.b * FORGET + size
        self.t = self.t * FORGET + seconds
        self.bb = self.bb * FORGET + size * size
        self.bt = self.bt * FORGET + size * seconds

    def line(self) -> tuple[float, float]:
        """(a, b) in seconds, neither negative. With sizes all alike the whole cost counts as per event."""
        if not self.weight:
            return 0.0, 0.0
        mean_b, mean_t = self.b / self.weight, self.t / self.weight
        variance = self.bb / self.weight - mean_b * mean_b
        if variance <= 1e-9 * max(mean_b * mean_b, 1.0):
            return 0.0, mean_t / mean_b if mean_b else 0.0
        slope = max((self.bt / self.weight - mean_b * mean_t) / variance, 0.0)
        intercept = mean_t - slope * mean_b
        return (intercept, slope) if intercept >= 0 else (0.0, mean_t / mean_b)

    def seconds(self, size: int) -> float:
        """What a batch of `size` events is expected to take."""
        a, b = self.line()
        return a + b * size


def take_limit(cost: CostModel, *, target: float, oldest_age: float, max_events: int) -> int:
    """The largest batch that still meets the latency target (seconds) for its oldest event, 1 to `max_events`.

    Where even one event cannot meet it any more there is a backlog: then throughput rules, and the limit is `max_events`.
    """
    a, b = cost.line()
    budget = target - oldest_age
    if budget < a + b:
        return max_events
    if b * max_events <= budget - a:
        return max_events
    return max(1, int((budget - a) / b))


def full(end: str, events: int) -> bool:
    """Whether a batch of so many events, which stopped at `end` (see `Batch`), is worth a transaction at once."""
    return end == "bytes" or (end == "events" and events >= FEWEST)


def limited_by(end: str, asked: int, largest: int, max_events: int) -> str:
    """What kept a batch from being larger: `end` is what it stopped at (see `scorer.events.batch.End`). One that has all the
    events it `asked` for was limited by the latency target, or by the deadline that follows from it, unless these allow for
    the `largest`: that is `max_events`, the size, or what fits a produce request, the bytes."""
    if end != "events":
        return end
    if asked < largest:
        return "latency"
    return "size" if largest >= max_events else "bytes"


def within(inference: CostModel, seconds: float, max_events: int) -> int:
    """The largest batch, 1 to `max_events`, whose inference is expected to take no more than `seconds`: it has a deadline.

    What a batch costs whatever its size counts for half of that at most: smaller batches would not make it less.
    """
    a, b = inference.line()
    room = max(seconds - a, seconds / 2)
    return max(1, int(room / b)) if b * max_events > room else max_events


def chunk(events: int, size: int, largest: int) -> int:
    """How many more events to read at once: at most `events`, and in all no more than BATCH_BYTES bytes are expected.

    `size` bytes were read so far, `largest` is the largest event among them. 0 where the batch is full.
    """
    if events <= 0 or size >= BATCH_BYTES:
        return 0
    return max(1, min(events, (BATCH_BYTES - size) // max(1, largest)))


@dataclass(slots=True)
class RecordSize:
    """How many records fit one produce request, from those of the last batches; `usual` is the size of one in bytes.

    While one request of a partition is on its way and more of its records wait, the Kafka client's thread spins: for the
    milliseconds of a request as a rule, for seconds after a broker's restart, and several scorers then keep that broker from
    coming back.
    """

    usual: float = 0.0

    def observe(self, records: Sequence[Record]) -> None:
        """A batch became these records. Few of them are not looked at: they are far from any limit."""
        if len(records) < FEWEST:
            return
        sample = records[::SAMPLE]
        mean = sum(map(wire_bytes, sample)) / len(sample)
        self.usual = max(mean, self.usual + COMMIT_EWMA * (mean - self.usual))

    def most(self, request_bytes: int, max_events: int) -> int:
        """The largest batch whose records travel in one request even where they are all of one partition; never too few."""
        if not self.usual:
            return max_events
        return min(max_events, max(FEWEST, int(FILL * request_bytes / self.usual)))


def wire_bytes(record: Record) -> int:
    """About what a record takes in a produce request, before compression."""
    _, value, key, _, _, headers = record
    named = sum(RECORD_BYTES + len(name) + len(held or b"") for name, held in headers or ())
    return RECORD_BYTES + len(value or b"") + len(key or b"") + named


@dataclass(slots=True)
class Pacing:
    """When the next transaction may begin: the broker pays milliseconds of CPU for each, whatever is in it."""

    usual_commit: float = 0.0
    began: float = float("-inf")

    def begin(self, now: float, *, full: bool = False) -> None:
        """A transaction begins at `now` (monotonic seconds); `full`: waiting had not made it larger."""
        self.began = float("-inf") if full else now

    def committed(self, seconds: float) -> None:
        """Its commit took `seconds`."""
        self.usual_commit += COMMIT_EWMA * (seconds - self.usual_commit)

    def overlap(self, scoring: float) -> bool:
        """Whether a commit had better be waited for while the next batch, of `scoring` seconds, is decoded and scored.

        With s to score and c to commit an event waits 1.5 (s + c) on average if nothing overlaps, and 2.5 max(s, c) or
        1.5 s + c if it does: the gain begins at s = 2/3 c. Below that the next batch would only be taken too early.
        """
        return scoring >= max(OVERLAP_SECONDS, OVERLAP_SHARE * self.usual_commit)

    def wait(self, now: float) -> float:
        """Seconds until the next may begin, 0 where it may at once."""
        busy = max(1.0, self.usual_commit / QUIET_COMMIT)
        interval = min(max(MINIMUM_INTERVAL, COMMIT_MULTIPLE * self.usual_commit * busy), MAXIMUM_INTERVAL)
        return max(0.0, self.began + interval - now)
