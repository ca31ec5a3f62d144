"""Hands the records of a batch to a transactional producer, and finds out which of them the broker refuses."""

from collections.abc import Callable, Iterable
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from publisher.errors import Aborted
from publisher.kafka.error_codes import NOT_NOW
from publisher.session.protocol import Record
from publisher.session.refused_records import CAREFUL_SECONDS, RefusedRecords
from publisher.session.transactional_ids import CALL_SECONDS

CONFIRM_SECONDS = 0.05  # between looks whether a record was refused


class Producing:
    """For one session. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._careful_until = float("-inf")

    def be_careful(self) -> None:
        """Have each record reported on for some time: the broker has refused one."""
        self._careful_until = self._clock() + CAREFUL_SECONDS

    def produce(self, producer: Producer, records: Iterable[Record]) -> None:
        """Produce them; while careful, return once the broker has taken them all. Raises RecordRefused for those that it
        refuses, or Aborted."""
        produce = producer.produce
        refused = RefusedRecords()
        careful = self._clock() < self._careful_until
        record: Record | None = None
        try:
            for record in records:
                topic, value, key, partition, timestamp, headers = record
                report = partial(_report, refused, record) if careful else None
                try:
                    produce(topic, value, key, partition, report, None, timestamp, headers)
                except BufferError:
                    producer.poll(CALL_SECONDS)
                    produce(topic, value, key, partition, report, None, timestamp, headers)
        except (BufferError, KafkaException) as error:
            if record is not None and isinstance(error, KafkaException):
                refused.note(record, error.args[0])
                if error.args[0] in NOT_NOW:  # one that was sent before has failed: its report says why
                    self.be_careful()
                    if careful:
                        producer.flush(CONFIRM_SECONDS)
            raise refused.error() if refused else Aborted(f"could not produce: {error}") from error
        if careful:
            self._confirm(producer, refused)

    def _confirm(self, producer: Producer, refused: RefusedRecords) -> None:
        """Return once the broker has taken every record, or does not say so in time: the commit tells then. A commit that meets
        a refusal waits for the records behind it, which are not sent any more, until its call is over."""
        deadline = self._clock() + CALL_SECONDS
        while producer.flush(CONFIRM_SECONDS) and not refused and self._clock() < deadline:
            pass
        if refused:
            raise refused.error()


def _report(refused: RefusedRecords, record: Record, error: KafkaError | None, _: Message) -> None:
    if error is not None:
        refused.note(record, error)
