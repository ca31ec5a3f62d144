"""Hands the records of a batch to a producer, and finds out which of them the broker refuses."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from publisher.errors import Aborted, RecordRejected
from publisher.kafka.error_codes import NOT_NOW, UNFIT_NEIGHBOUR, UNFIT_RECORD
from publisher.transactions.protocol import PackedRecordBatch, Record
from publisher.transactions.transactional_ids import CALL_SECONDS

CAREFUL_SECONDS = 300.0  # after a refusal each record is reported on for so long: producers go on as they have begun
CONFIRM_SECONDS = 0.05  # between looks whether a record was refused


class RejectedRecords:
    """For one transaction, or for the records under way. `singly`: each travels by itself, so that each report is its own.

    Records travel in batches of a partition, and a broker refuses a batch. Where it names the guilty records in a batch, which
    Kafka's brokers do for invalid ones, librdkafka (2.16) reports those as invalid and their neighbours with a code of their
    own. Where one of them is guilty, or all are, they are reported alike.
    """

    def __init__(self, *, singly: bool = False) -> None:
        self._singly = singly
        self._reports: list[tuple[KafkaError, Record]] = []
        self._told_apart: set[tuple[str, int]] = set()

    def __bool__(self) -> bool:
        return bool(self._reports)

    def note(self, record: Record, error: KafkaError) -> None:
        """This record has failed."""
        if error in UNFIT_NEIGHBOUR:
            self._told_apart.add((record[0], record[3]))
        elif error in UNFIT_RECORD:
            self._reports.append((error, record))

    def produce(
        self,
        producer: Producer,
        records: Iterable[Record],
        report: Callable[[Record, KafkaError, Message], None] | None,
        make_room: Callable[[], object],
    ) -> None:
        """Hand the records to the producer, which calls `report`, if there is one, for each; `make_room` is called where its
        queue is full. Raises KafkaException, noted before, and BufferError."""
        produce = producer.produce
        record: Record | None = None
        try:
            for record in records if report else _singly(producer, records):
                topic, value, key, partition, timestamp, headers = record
                told = partial(report, record) if report else None
                try:
                    produce(topic, value, key, partition, told, None, timestamp, headers)
                except BufferError:
                    make_room()
                    produce(topic, value, key, partition, told, None, timestamp, headers)
        except KafkaException as error:
            if record is not None:
                self.note(record, error.args[0])
            raise

    def error(self) -> RecordRejected:
        """The refusal, with those that it is for certain, or else with all that it may be."""
        error, (topic, _, _, partition, *_) = self._reports[0]
        why = f"{topic}[{partition}] refuses a record: {error.str()}"
        if self._singly:
            return RecordRejected(why, [record for _, record in self._reports], certain=True)
        invalid = [record for error, record in self._reports if UNFIT_RECORD.why(error) == "invalid-record"]
        certain = [record for record in invalid if (record[0], record[3]) in self._told_apart]
        records = certain or [record for _, record in self._reports]
        return RecordRejected(why, records, certain=bool(certain), one_or_all=len(invalid) == len(self._reports))


def _singly(producer: Producer, records: Iterable[Record]) -> Iterator[Record]:
    """The records that are to be handed over one by one. Packed ones are handed over here, but for those that the producer does
    not take so: by themselves they tell why."""
    if not isinstance(records, PackedRecordBatch) or not getattr(producer, "handle", None):
        yield from records
        return
    first = 0
    while (first := records.write(producer, first)) < len(records):
        yield records[first]
        first += 1


class RecordSender:
    """For one transaction session. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._careful_until = float("-inf")

    def enable_delivery_reports(self) -> None:
        """Have each record reported on for some time: the broker has refused one."""
        self._careful_until = self._clock() + CAREFUL_SECONDS

    def produce(self, producer: Producer, records: Iterable[Record]) -> None:
        """Produce them; while careful, return once the broker has taken them all. Raises RecordRejected for those that it
        refuses, or Aborted."""
        refused = RejectedRecords()
        careful = self._clock() < self._careful_until

        def report(record: Record, error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.note(record, error)

        try:
            refused.produce(producer, records, report if careful else None, lambda: producer.poll(CALL_SECONDS))
        except (BufferError, KafkaException) as error:
            if isinstance(error, KafkaException) and error.args[0] in NOT_NOW:
                self.enable_delivery_reports()
                if careful:  # one that was sent before has failed: its report says why
                    producer.flush(CONFIRM_SECONDS)
            raise refused.error() if refused else Aborted(f"could not produce: {error}") from error
        if careful:
            self._confirm(producer, refused)

    def _confirm(self, producer: Producer, refused: RejectedRecords) -> None:
        """Return once the broker has taken every record, or does not say so in time: the commit tells then. A commit that meets
        a refusal waits for the records behind it, which are not sent any more, until its call is over."""
        deadline = self._clock() + CALL_SECONDS
        while producer.flush(CONFIRM_SECONDS) and not refused and self._clock() < deadline:
            pass
        if refused:
            raise refused.error()
