"""Delivery reports of records that the broker refuses, gathered until a session asks which ones they were."""

from confluent_kafka import KafkaError

from publisher.errors import RecordRefused
from publisher.kafka.error_codes import UNFIT_NEIGHBOUR, UNFIT_RECORD
from publisher.session.protocol import Record

CAREFUL_SECONDS = 300.0  # after a refusal each record is reported on for so long: producers go on as they have begun


class RefusedRecords:
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

    def error(self) -> RecordRefused:
        """The refusal, with those that it is for certain, or else with all that it may be."""
        error, (topic, _, _, partition, *_) = self._reports[0]
        why = f"{topic}[{partition}] refuses a record: {error.str()}"
        if self._singly:
            return RecordRefused(why, [record for _, record in self._reports], certain=True)
        invalid = [record for error, record in self._reports if UNFIT_RECORD.why(error) == "invalid-record"]
        certain = [record for record in invalid if (record[0], record[3]) in self._told_apart]
        records = certain or [record for _, record in self._reports]
        return RecordRefused(why, records, certain=bool(certain), one_or_all=len(invalid) == len(self._reports))
