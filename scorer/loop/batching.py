"""How many events to take now, and when the next transaction may begin. Pure: values and measured costs in, numbers out.

The cost of a batch is modelled as T(B) = a + b B seconds, fitted by least squares with forgetting over the batches seen; the
latency target is the one knob. There is no linger: a scorer takes what is there, and batches grow by themselves under load.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from publisher.session.protocol import Record
from scorer.loop.pacing import COMMIT_EWMA
from scorer.servables.cost import CostModel

FEWEST = 1_000  # events that a batch may have however large their records are: each transaction has its price
FILL = 0.95  # of a produce request
SAMPLE = 64  # one record of so many is measured
RECORD_BYTES = 40  # what a record takes beside key, value and headers, and a header beside name and value at most


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
