"""Producers and a coordinator that follow a script and fail in every way that a broker can cause."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from publisher.transactions.offset_commits import Done

RECORD = ("scores", b"{}", b"k", 0, 1, None)
OFFSETS = [TopicPartition("events", 0, 1, "{}")]

Fails = Callable[[str], tuple[KafkaError, bool] | None]
"""The error of a call, and whether the call takes effect despite the error."""


class Log:
    """A coordinator's view: the visible records in order, and the existing producers."""

    def __init__(self) -> None:
        self.visible: list[bytes] = []
        self.committed: list[int] = []
        self.positions: dict[tuple[str, int], tuple[int, str | None]] = {}
        self.live: dict[str, ScriptedProducer] = {}
        self.created: list[str] = []
        self.now = 0.0


class ScriptedProducer:
    """Follows the rules of transactions; `fails(call)` may return an error, and whether the call took effect before it."""

    def __init__(self, name: str, log: Log, fails: Fails) -> None:
        self.name, self.log, self.fails = name, log, fails
        self.open: list[bytes] | None = None
        self.offsets: list[TopicPartition] = []

    def __call__(self, call: str, effect: Callable[[], None]) -> None:
        failure = self.fails(call)
        if failure is None:
            effect()
            return
        error, applied = failure
        if applied:
            effect()
        raise KafkaException(error)

    def init_transactions(self, _: float) -> None:
        def effect() -> None:
            self.log.live[self.name] = self

        self("init", effect)

    def begin_transaction(self) -> None:
        assert self.log.live[self.name] is self, "a fenced producer was used"
        assert self.open is None, "a transaction was begun inside another"
        self.open, self.offsets = [], []

    def produce(self, _topic: str, value: bytes, *_: Any) -> None:
        assert self.open is not None
        self("produce", lambda: self.open.append(value))  # type: ignore[union-attr]

    def send_offsets_to_transaction(self, offsets: list[TopicPartition], group: Any, _: float) -> None:
        assert group == "metadata"
        self("offsets", lambda: self.offsets.extend(offsets))

    def commit_transaction(self, _: float) -> None:
        def effect() -> None:
            if self.open is not None:
                self.log.visible += self.open
                self.log.committed += [p.offset for p in self.offsets]
                self.log.positions |= {(p.topic, p.partition): (p.offset, p.metadata) for p in self.offsets}
            self.open = None

        self("commit", effect)

    def abort_transaction(self, _: float) -> None:
        if self.open is None:
            raise KafkaException(KafkaError(KafkaError._STATE))

        def effect() -> None:
            self.open = None

        self("abort", effect)

    def poll(self, _: float) -> int:
        return 0

    def flush(self, _: float) -> int:
        return 0


class ScriptedQueue:
    """A producer outside transactions. Records wait in it until a poll or a flush, of which each has its own fate.

    A failure at `deliver` is a record's: with its effect it arrives, and is reported as failed all the same. A failure at
    `flush` leaves the rest of the queue unconfirmed.
    """

    def __init__(self, log: Log, fails: Fails, on_delivery: Callable[[KafkaError, Any], None], room: int = 1_000) -> None:
        self.log, self.fails, self.on_delivery, self.room = log, fails, on_delivery, room
        self.queue: list[bytes] = []
        self.purged = False
        self.largest = 0

    def __len__(self) -> int:
        return len(self.queue)

    def topic(self) -> str:
        return "scores"

    def partition(self) -> int:
        return 0

    def produce(self, _topic: str, value: bytes, *_: Any) -> None:
        assert not self.purged, "a discarded producer was used"
        if failure := self.fails("produce"):
            raise KafkaException(failure[0])
        if len(self.queue) == self.room:
            raise BufferError("Local: Queue full")
        self.queue.append(value)
        self.largest = max(self.largest, len(self.queue))

    def deliver(self, count: int) -> None:
        for value in self.queue[:count]:
            failure = self.fails("deliver")
            if failure is None or failure[1]:
                self.log.visible.append(value)
            if failure is not None:
                self.on_delivery(failure[0], self)
        del self.queue[:count]

    def poll(self, _: float) -> int:
        self.deliver(1)
        return 0

    def flush(self, seconds: float) -> int:
        if self.fails("flush"):
            self.log.now += seconds
        else:
            self.deliver(len(self.queue))
        return len(self.queue)

    def purge(self) -> None:
        self.queue.clear()
        self.purged = True


class ScriptedCommits:
    """A coordinator that processes commits in the order in which they were sent.

    `answer` reports the outcome of a commit that does not wait, as a consumer's poll does.
    """

    def __init__(self, log: Log, fails: Fails) -> None:
        self.log, self.fails = log, fails
        self.unanswered: list[tuple[Sequence[TopicPartition], Done, KafkaError | None]] = []

    def commit(self, offsets: Sequence[TopicPartition]) -> None:
        if error := self._commit(offsets, self.fails("commit")):
            raise KafkaException(error)

    def begin(self, offsets: Sequence[TopicPartition], on_done: Done) -> None:
        self.unanswered.append((offsets, on_done, self._commit(offsets, self.fails("commit"))))

    def answer(self) -> None:
        while self.unanswered:
            _, on_done, error = self.unanswered.pop(0)
            on_done(error)

    def _commit(self, offsets: Iterable[TopicPartition], failure: tuple[KafkaError, bool] | None) -> KafkaError | None:
        if failure is None or failure[1]:
            self.log.committed += [p.offset for p in offsets]
            self.log.positions |= {(p.topic, p.partition): (p.offset, p.metadata) for p in offsets}
        return failure[0] if failure else None


def retriable(code: int) -> KafkaError:
    return KafkaError(code, retriable=True)


def abortable(code: int) -> KafkaError:
    return KafkaError(code, txn_requires_abort=True)


ERRORS = [
    retriable(KafkaError._TIMED_OUT),
    retriable(KafkaError.NOT_COORDINATOR),
    abortable(KafkaError.ILLEGAL_GENERATION),
    abortable(KafkaError.UNKNOWN_MEMBER_ID),
    abortable(KafkaError._INCONSISTENT),
    KafkaError(KafkaError._FENCED, fatal=True),
    KafkaError(KafkaError.INVALID_TXN_STATE, fatal=True),
    KafkaError(KafkaError._STATE),
]
