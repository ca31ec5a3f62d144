"""Records that a relay cannot carry: why, how one is found among others, and what is kept of it in the refusal topic. Pure.

A broker refuses a whole request for one record of it, and what it answers to the requests behind that hides the reason. So a
transaction that fails so is taken back and repeated with fewer records, and only a record that was alone in one is refused.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message

from publisher.kafka.error_codes import UNFIT_RECORD
from publisher.kafka.partitions import Partition
from publisher.kafka.source_position import COPIED_TO, Position
from publisher.relay.transform import Headers, Route

UNREADABLE = "unreadable-headers"
UNREADABLE_BATCH = "unreadable-batch"
SOURCE = "refused.source"
LAST = "refused.last"
LARGEST_KEY = 1_024  # bytes, of a record that is kept without its value


class TransactionRejected(Exception):
    """The open transaction of `written` records holds one that the destination does not take. `reason`: None where not told."""

    def __init__(self, code: int, written: int) -> None:
        super().__init__(KafkaError(code).str())
        self.reason = UNFIT_RECORD.get(code)
        self.written = written


class TransactionLimit:
    """How many records the next transaction may hold: `most`, and fewer while a record is looked for that cannot be carried.

    The partitions of a failed transaction are suspects up to where it went. Larger transactions are tried when all of that is
    behind, or the record is found, not earlier: what others commit in the meantime says nothing of it.
    """

    def __init__(self, most: int) -> None:
        self.now = self._most = most
        self._suspects: dict[Partition, int] = {}

    def failed(self, count: int, suspects: Mapping[Partition, int]) -> None:
        """A transaction of so many records failed for the reason of one of them; `suspects` are the offsets that follow it."""
        self.now, self._suspects = max(1, min(self.now, count) // 2), dict(suspects)

    def found(self) -> None:
        """The record that was looked for stands alone: the others are suspects no more."""
        self._suspects.clear()

    def passed(self, active: Mapping[Partition, Route]) -> None:
        """A transaction did not fail; a partition that is not in `active` is copied no more."""
        if self.now < self._most:
            left = self._suspects.items()
            self._suspects = {p: end for p, end in left if p in active and active[p].committed < end}
            if not self._suspects:
                self.now = min(self._most, 2 * self.now)


class RejectedRecord(NamedTuple):
    """A record that cannot be copied: where it stands, and why. `headers` is None where they cannot be read.

    It may stand for several records: `last` is then the offset of the last one, and `source` the position of the first.
    """

    message: Message
    source: Position
    reason: str
    error: str
    headers: Headers | None
    last: int | None = None

    def letter(self, *, bare: bool) -> dict[str, Any]:
        """What is produced to the refusal topic, as Producer.produce takes it. `bare` is the last resort: without value and
        headers, without a long key, and with the time of the broker's clock."""
        key, stamp = self.message.key(), self.message.timestamp()[1]
        lacking = ["headers"] if self.headers is None or bare else []
        if bare:
            lacking.append("value")
            if key is not None and len(key) > LARGEST_KEY:
                lacking.append("key")
        own = {"refused.reason": self.reason, "refused.error": self.error, SOURCE: str(self.source)}
        if self.last is not None:
            own[LAST] = str(self.last)
        if lacking:
            own["refused.without"] = ",".join(lacking)
        return {
            "value": None if bare else self.message.value(),
            "key": None if "key" in lacking else key,
            "timestamp": 0 if bare else max(stamp, 0),
            "headers": [*(h for h in self.headers or () if not bare and h[0] != COPIED_TO), *own.items()],
        }
