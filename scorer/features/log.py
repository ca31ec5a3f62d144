"""Search the feature log for the records of given scores, without a consumer group.

A score and its feature record are written in the same transaction. The feature record is in the partition with the number of
the input partition (modulo the number of partitions of the log), and has the timestamp of the event. The score and the feature
record contain the same event position, version and time of scoring. These values distinguish the two feature records of an
event that was scored twice.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import Message

from publisher.errors import USAGE, Fatal
from publisher.kafka.partitions import Partition
from publisher.kafka.reader import TopicReader
from publisher.kafka.skipped_records import SkippedRecords
from scorer.dead_letters.reasons import Poison
from scorer.features.read import LATEST_MS, AvroFeatureReader, FeatureRecord, ReadFeatures, UnreadableFeatures, decode_json
from scorer.settings import Settings

log = logging.getLogger(__name__)


class ScoredEvent(NamedTuple):
    """A score to find in the feature log: position and time of its event, time of scoring (Unix ms), digest of its version."""

    topic: str
    partition: int
    offset: int
    event_ms: int
    scored_ms: int
    digest: str


class LoggedInputs(NamedTuple):
    """A feature record, and the Kafka message that contains it."""

    record: FeatureRecord
    message: Message


@dataclass(slots=True)
class _PartitionSearch:
    """The scores of one input partition whose feature records are searched.

    Attributes:
        missing: the scores whose feature records have not been found yet.
        last_offset: the largest offset of the events of all these scores.
        last_ms: the latest time of scoring of all these scores, in Unix ms.
    """

    missing: set[ScoredEvent] = field(default_factory=set)
    last_offset: int = 0
    last_ms: int = 0


class LogSearch:
    """A search for the feature records of given scores in one partition of the feature log. Pure.

    Call `add` for each of these scores. Then pass the records of the partition to `take`, in the order of their offsets.
    """

    def __init__(self) -> None:
        self.earliest_ms = LATEST_MS
        self._partitions: dict[Partition, _PartitionSearch] = {}

    def add(self, scored: ScoredEvent) -> None:
        """Add a score whose feature record is to be found."""
        search = self._partitions.setdefault((scored.topic, scored.partition), _PartitionSearch())
        search.missing.add(scored)
        search.last_offset = max(search.last_offset, scored.offset)
        search.last_ms = max(search.last_ms, scored.scored_ms)
        self.earliest_ms = min(self.earliest_ms, scored.event_ms)

    def take(self, record: FeatureRecord) -> ScoredEvent | None:
        """Process the next record of the log. Return the added score to which the record belongs; None if there is none."""
        scored = ScoredEvent(*record.position, record.event_ms, record.scored_ms, record.digest)
        partition = (scored.topic, scored.partition)
        search = self._partitions.get(partition)
        if search is None:
            return None
        wanted = scored if scored in search.missing else None
        search.missing.discard(scored)
        # An input partition has one owner at a time, which scores its events in order. After a larger offset, a smaller one
        # follows only if the scorers have moved back, and then with a later time of scoring.
        is_beyond = scored.offset > search.last_offset and scored.scored_ms >= search.last_ms
        if is_beyond or not search.missing:
            del self._partitions[partition]
        return wanted

    @property
    def is_complete(self) -> bool:
        """Whether no later record of the log can belong to an added score."""
        return not self._partitions


class FeatureLog:
    """The feature log of one scorer: the topic `features.topic`, which must be configured.

    Attributes:
        skipped: The counter of unreadable records, which are skipped. Each may be the record of a score to find.
    """

    def __init__(self, settings: Settings, reader: TopicReader) -> None:
        """Open the log. Raises Fatal, with exit code 2 if the topic does not exist."""
        if settings.features.topic is None:
            raise Fatal("no feature log is configured", "set features.topic", USAGE)
        self.topic = settings.features.topic
        self.skipped = SkippedRecords(log)
        self._reader = reader
        self._partitions = len(reader.partitions([self.topic]))
        self._decode = create_reader(settings)

    def find(self, wanted: Collection[ScoredEvent]) -> dict[ScoredEvent, LoggedInputs]:
        """Find the inputs of these scores. A score without a record in the log is absent from the result.

        Raises:
            Fatal: The log cannot be read.
            DependencyUnavailable: The schema registry is unavailable.
        """
        searches: dict[Partition, LogSearch] = {}
        for scored in wanted:
            partition = (self.topic, scored.partition % self._partitions)
            searches.setdefault(partition, LogSearch()).add(scored)
        inputs: dict[ScoredEvent, LoggedInputs] = {}
        ends = self._reader.visible(searches)
        spans: dict[Partition, tuple[int, int]] = {}
        for partition, search in searches.items():
            end = {partition: ends[partition]}
            earliest = search.earliest_ms
            start = (self._reader.since(earliest, end) if earliest > 0 else self._reader.earliest(end))[partition]
            spans[partition] = start, ends[partition]
        for batch in self._reader.read(spans):  # one consumer for all partitions: opening one takes longer than a short read
            partition = batch.partition
            for message in batch.messages if partition in searches else ():
                if (logged := self._decoded(partition, message)) is None:
                    continue
                search = searches[partition]
                if (match := search.take(logged.record)) is not None:
                    inputs[match] = logged
                if search.is_complete:
                    del searches[partition]
                    break
            if not searches:
                break
        return inputs

    def _decoded(self, partition: Partition, message: Message) -> LoggedInputs | None:
        """Return the record of a message; None if it cannot be read and is skipped."""
        try:
            return LoggedInputs(self._decode(message.value()), message)
        except UnreadableFeatures as error:
            self.skipped.skip(*partition, message.offset() or 0, error)
            return None


def create_reader(settings: Settings) -> ReadFeatures:
    """Return the function that decodes the records of the configured log."""
    if settings.features.format == "json":
        return decode_json
    from scorer.decoding.schema_formats.schema import SchemaId
    from scorer.decoding.schema_formats.schema_registry import SchemaRegistry

    registry = SchemaRegistry(settings.schema_registry)

    def schema(number: int) -> str:
        try:
            text = registry.schema(SchemaId("id", number), "avro").text
        except Poison as error:
            raise UnreadableFeatures(str(error)) from None
        return text if isinstance(text, str) else text.decode()

    return AvroFeatureReader(schema)
