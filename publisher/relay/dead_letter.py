"""Handle records that cannot be copied: produce them to the refusal topic, or stop their partition alone.

A record with unreadable headers is handled at once; `rejection_records.py` finds the records that the destination rejects.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

from confluent_kafka import Consumer, Message, TopicPartition

from publisher.errors import Aborted
from publisher.kafka.headers import headers_of_one
from publisher.kafka.partitions import Partition
from publisher.kafka.sandboxed_reads import UnreadableBatch
from publisher.kafka.source_position import Position
from publisher.relay.rejection_records import (
    UNREADABLE,
    UNREADABLE_BATCH,
    RejectedRecord,
    TransactionLimit,
    TransactionRejected,
)
from publisher.relay.sandboxed_partitions import SandboxedPartitions
from publisher.relay.settings import RelaySettings
from publisher.relay.status import LaneState
from publisher.relay.transform import Route
from publisher.transactions.exactly_once import Produce

log = logging.getLogger(__name__)

WAYS_ON = (
    "let the destination topic take it and start the relay again, or name a refusal_topic, or leave it out: "
    "publisher checkpoint set"
)
Fill = Callable[[Produce], tuple[int, int]]
"""Writes the records of a transaction: how many records were read for it, and the bytes of their values."""


class Refusing:
    """Of one lane. `active` are the partitions that it copies, `room` says how many records a transaction may hold.

    `publish` makes a transaction of what is written, and raises TransactionRejected; `recover` gives the open one up. Both
    may end the lane.
    """

    def __init__(
        self,
        settings: RelaySettings,
        state: LaneState,
        publish: Callable[[Fill], tuple[int, int]],
        recover: Callable[[], None],
        suspects: SandboxedPartitions,
    ) -> None:
        self.active: dict[Partition, Route] = {}
        self.room = TransactionLimit(settings.transaction_records)
        self._settings = settings
        self._state = state
        self._publish = publish
        self._recover = recover
        self._suspects = suspects
        self._before: dict[Partition, Route] = {}
        self._written: list[RejectedRecord] = []

    def begin(self) -> None:
        self._before = dict(self.active)
        self._written.clear()

    def committed(self) -> None:
        for found in self._written:
            what = f"{found.source}: {found.reason} ({found.error})"
            log.warning("lane %d cannot carry %s", self._state.number, what)

    def aborted(self) -> None:
        """It will be aborted. What was stopped in it is to be copied once more, up to there."""
        for place in self._before.keys() - self.active.keys():
            self.active[place] = self._before[place]
            del self._state.stopped[place]

    def unread(self, consumer: Consumer, produce: Produce, message: Message, error: Exception) -> None:
        """Refuse a record whose headers cannot be read, within the open transaction."""
        found = self._refusal(message, UNREADABLE, repr(error.__cause__ or error), readable=False)
        if (found.source.topic, found.source.partition) not in self.active:
            return
        if self._settings.refusal_topic:
            self._write(found, False, produce)
        else:
            self._stop(consumer, found)

    def unreadable(self, consumer: Consumer, batch: UnreadableBatch, now_ms: int) -> None:
        """Refuse a whole batch, in a transaction of its own. `now_ms` is the wall clock."""
        topic, number = batch.partition
        last = Message(topic=topic, partition=number, offset=batch.last, timestamp=(1, now_ms))
        source = Position(self._settings.source.region, topic, number, batch.first)
        self._refuse(consumer, RejectedRecord(last, source, UNREADABLE_BATCH, str(batch), None, batch.last), (True,))

    def take_back(self, consumer: Consumer, messages: list[Message], unfit: TransactionRejected) -> None:
        """Give up a transaction that holds an unfit record, and go on with fewer; refuse one that was alone (`messages`)."""
        alone = self._written[0] if self._written else None
        suspects = {place: route.next for place, route in self.active.items() if route.settle()}
        for route in self._state.routes.values():
            route.rewind()
        self._recover()
        if self.room.now > 1:
            log.info("lane %d: one of %d records cannot be copied: %s", self._state.number, unfit.written, unfit)
            self.room.failed(unfit.written, suspects)
        elif unfit.reason is None or not any(not m.error() and (m.topic(), m.partition()) in self.active for m in messages):
            raise Aborted(f"lane {self._state.number}: {unfit}")
        else:
            self.room.found()
            if alone is not None:  # it is the refusal topic that does not take it
                self._refuse(consumer, alone, (True,))
            else:
                self._refuse(consumer, self._refusal(messages[0], unfit.reason, str(unfit)), (False, True))
        for place in [place for place in self.active if place in self._suspects]:
            self._suspects.add(self.active[place])
        consumer.assign(places(route for place, route in self.active.items() if place not in self._suspects))

    def _refuse(self, consumer: Consumer, found: RejectedRecord, forms: tuple[bool, ...]) -> None:
        """Refuse a record in a transaction of its own, bare as the last resort."""
        for bare in forms if self._settings.refusal_topic else ():
            try:
                self._publish(partial(self._write, found, bare))
                return
            except TransactionRejected as again:
                log.warning("lane %d: the refusal topic does not take %s: %s", self._state.number, found.source, again)
                self.active[found.source.topic, found.source.partition].rewind()
                self._recover()
        self._stop(consumer, found)

    def _refusal(self, message: Message, reason: str, error: str, *, readable: bool = True) -> RejectedRecord:
        place = cast("Partition", (message.topic(), message.partition()))
        source = Position(self._settings.source.region, *place, message.offset() or 0)
        return RejectedRecord(message, source, reason, error, headers_of_one(message) or [] if readable else None)

    def _write(self, found: RejectedRecord, bare: bool, produce: Produce) -> tuple[int, int]:
        self.active[found.source.topic, found.source.partition].passed = found.message
        self._written.append(found)
        produce(self._settings.refusal_topic, **found.letter(bare=bare))
        self._state.tally.refused += 1
        return 1, 0

    def _stop(self, consumer: Consumer, found: RejectedRecord) -> None:
        """Copy no more of this partition in this life: nothing is lost, and what lies behind the record waits."""
        place = found.source.topic, found.source.partition
        del self.active[place]
        if place in self._suspects:
            self._suspects.forget(place)
        else:
            consumer.incremental_unassign([TopicPartition(*place)])
        why = f"stopped at offset {found.source.offset}, which cannot be copied: {found.reason} ({found.error})"
        self._state.stopped[place] = why
        log.error("lane %d: %s[%d] %s; %s", self._state.number, *place, why, WAYS_ON)


def places(routes: Iterable[Route]) -> list[TopicPartition]:
    """What a consumer is assigned for these routes."""
    return [TopicPartition(route.topic, route.partition, route.next, leader_epoch=route.epoch) for route in routes]
