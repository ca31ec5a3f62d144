"""Pass the records of a batch to a producer, and find the records that the broker rejects.

A broker rejects a whole request for one record that is too large, has a timestamp out of bounds, or has no key for a compacted
topic. Publishing the same batch again would fail for ever, so the rejected record is searched for and dead-lettered.
"""

# 1. The transaction is aborted, and its producer gets a successor (librdkafka 2.16 may skip sequence numbers after a
#    rejection). For REPORTS_SECONDS each record has a delivery report.
# 2. The delivery reports of the next rejection name the failed records. The batch is then published in parts, in order, each
#    part with its offsets (`scorer/worker/broker_rejected_records.py`). librdkafka reports which records are invalid only if
#    two or more, but not all, records of the request are invalid. In all other cases the first failed record is published
#    alone. If it is rejected again, it is known to be a rejected record.
# 3. The event of the rejected record is dead-lettered. If the broker rejects the dead letter too, it is sent with the current
#    time, and then without value and headers, so that it only names the position of the event.

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from publisher.errors import Aborted, RecordRejected
from publisher.kafka.error_codes import NOT_NOW, UNFIT_NEIGHBOUR, UNFIT_RECORD
from publisher.transactions.session import PackedRecordBatch, Record, RecordParts
from publisher.transactions.transactional_ids import CALL_SECONDS

REPORTS_SECONDS = 300.0  # how long each record has a delivery report after a rejection: further invalid records are likely
CONFIRM_SECONDS = 0.05  # between checks whether a record was rejected


class RejectedRecords:
    """Collects the rejected records of one transaction or, in an at-least-once session, of all records in flight.

    Args:
        singly: whether the producer sends each record in a request of its own.
    """

    # A broker rejects a whole batch. Kafka's brokers name the invalid records of the batch; librdkafka (2.16) then reports
    # these as invalid, and the others with another code. If a broker names no records, all records of the batch have the same
    # code.

    def __init__(self, *, singly: bool = False) -> None:
        self._singly = singly
        self._reports: list[tuple[KafkaError, Record]] = []
        self._with_named_records: set[tuple[str, int]] = set()

    def __bool__(self) -> bool:
        return bool(self._reports)

    def note(self, record: Record, error: KafkaError) -> None:
        """Store a failed record, if `error` means that the broker or the client rejects the record. Ignore other errors."""
        if error in UNFIT_NEIGHBOUR:
            self._with_named_records.add((record[0], record[3]))
        elif error in UNFIT_RECORD:
            self._reports.append((error, record))

    def produce(
        self,
        producer: Producer,
        records: Iterable[Record],
        report: Callable[[Record, KafkaError, Message], None] | None,
        make_room: Callable[[], object],
    ) -> None:
        """Pass the records to the producer.

        Args:
            producer: the producer.
            records: the records, in order.
            report: called with the record, the error and the message of each delivery report; None for no reports.
            make_room: called if the producer's queue is full. It returns when there may be room.

        Raises:
            KafkaException: if the client itself rejects a record. The failure of the record is stored, as by `note`.
            BufferError: if the queue is still full after `make_room`.
        """
        produce = producer.produce
        record: Record | None = None
        try:
            for record in records if report else _records_to_produce(producer, records):
                topic, value, key, partition, timestamp, headers = record
                on_delivery = partial(report, record) if report else None
                try:
                    produce(topic, value, key, partition, on_delivery, None, timestamp, headers)
                except BufferError:
                    make_room()
                    produce(topic, value, key, partition, on_delivery, None, timestamp, headers)
        except KafkaException as error:
            if record is not None:
                self.note(record, error.args[0])
            raise

    def error(self) -> RecordRejected:
        """Return the error to raise. It names the records that are certainly rejected, or else all that may be rejected."""
        error, (topic, _, _, partition, *_) = self._reports[0]
        message = f"{topic}[{partition}] rejects a record: {error.str()}"
        if self._singly:
            return RecordRejected(message, [record for _, record in self._reports], certain=True)
        invalid = [record for error, record in self._reports if UNFIT_RECORD.reason(error) == "invalid-record"]
        certain = [record for record in invalid if (record[0], record[3]) in self._with_named_records]
        records = certain or [record for _, record in self._reports]
        return RecordRejected(message, records, certain=bool(certain), one_or_all=len(invalid) == len(self._reports))


def _records_to_produce(producer: Producer, records: Iterable[Record]) -> Iterator[Record]:
    """Yield the records that the caller must pass to `producer.produce` one by one.

    If the producer has a librdkafka handle, this function itself passes the records of a PackedRecordBatch to the producer. It
    yields only the records that the producer rejects, so that the caller's `produce` call raises the error. The parts of
    `RecordParts` are handled one after the other.
    """
    if isinstance(records, RecordParts):
        for part in records.parts:
            yield from _records_to_produce(producer, part)
        return
    if not isinstance(records, PackedRecordBatch) or not getattr(producer, "handle", None):
        yield from records
        return
    first = 0
    while (first := records.write(producer, first)) < len(records):
        yield records[first]
        first += 1


class RecordSender:
    """Sends the records of one transaction session. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._reports_until = float("-inf")

    def enable_delivery_reports(self) -> None:
        """Request delivery reports for all records of the next REPORTS_SECONDS.

        Call this method after the broker has rejected a record.
        """
        self._reports_until = self._clock() + REPORTS_SECONDS

    def send(self, producer: Producer, records: Iterable[Record]) -> None:
        """Produce the records. If delivery reports are enabled, wait until the broker has confirmed all records.

        Raises:
            RecordRejected: if the broker, or the client itself, rejects records.
            Aborted: if the records cannot be produced for another reason.
        """
        rejected = RejectedRecords()
        with_reports = self._clock() < self._reports_until

        def report(record: Record, error: KafkaError | None, _: Message) -> None:
            if error is not None:
                rejected.note(record, error)

        try:
            rejected.produce(producer, records, report if with_reports else None, lambda: producer.poll(CALL_SECONDS))
        except (BufferError, KafkaException) as error:
            if isinstance(error, KafkaException) and error.args[0] in NOT_NOW:
                self.enable_delivery_reports()
                if with_reports:  # an earlier record has failed, and its report has the reason
                    producer.flush(CONFIRM_SECONDS)
            raise rejected.error() if rejected else Aborted(f"could not produce a record: {error}") from error
        if with_reports:
            self._confirm(producer, rejected)

    def _confirm(self, producer: Producer, rejected: RejectedRecords) -> None:
        """Wait until the broker has confirmed every record, and raise RecordRejected at once if it rejects one.

        Returns after CALL_SECONDS at the latest; the commit then reports the outcome.
        """
        # After a rejection, the client no longer sends the later records, and the commit would wait 5 s for them.
        deadline = self._clock() + CALL_SECONDS
        while producer.flush(CONFIRM_SECONDS) and not rejected and self._clock() < deadline:
            pass
        if rejected:
            raise rejected.error()
