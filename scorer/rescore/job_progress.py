"""The progress of a rescore job, stored in the compacted topic `<name>.rollouts`.

The record with the key `rescore/<job>` has the job's definition. The record with the key `rescore/<job>/<partition>` has the
job's position in that partition of the scores. A position is written in the same transaction as the corrections before it.
"""

from typing import Any

import msgspec
import orjson

from model_registry.untrusted_input import json_documents
from model_registry.untrusted_input.json_documents import Count
from publisher.errors import REFUSED, Fatal
from publisher.kafka.reader import TopicReader
from publisher.transactions.session import Record
from scorer.rescore.counts import RescoreCounts
from scorer.rescore.selection import ScoreSelection
from scorer.settings import Settings

OTHER_JOB = "choose another name with --job, or repeat the arguments of the first run to continue it"


class PartitionProgress(msgspec.Struct):
    """The next offset to process in one partition of the topic of scores, and the counts of the records before it."""

    next: Count
    tally: RescoreCounts


class JobProgress:
    """The progress of one rescore job.

    Attributes:
        definition: The definition of the job; None before its first transaction.
        places: The progress in each partition of the topic of scores; empty before the first transaction.
    """

    def __init__(self, settings: Settings, job: str) -> None:
        self.definition: dict[str, Any] | None = None
        self.places: dict[int, PartitionProgress] = {}
        self._topic = settings.rollouts_topic
        self._key = f"rescore/{job}"

    def read(self, reader: TopicReader) -> None:
        """Read the committed progress of the job from the topic.

        Raises:
            Fatal: If the topic cannot be read, or if a record of the job cannot be decoded.
        """
        for batch in reader.read(reader.spans(reader.partitions([self._topic]))):
            for message in batch.messages:
                self._apply(message.key() or b"", message.value() or b"")

    def _apply(self, key: bytes, value: bytes) -> None:
        name, _, partition = key.decode("utf-8", "replace").removeprefix(self._key).partition("/")
        if not key.startswith(self._key.encode()) or name:
            return
        try:
            if partition:
                self.places[int(partition)] = json_documents.decode(value, PartitionProgress)
            else:
                self.definition = json_documents.decode(value, dict[str, Any])
        except ValueError as error:
            message = f"{self._topic} has a record {key!r:.200} that is not the progress of a job: {error}"
            raise Fatal(message, "choose another name with --job", REFUSED) from error

    def check(self, job: str, requested: dict[str, Any]) -> None:
        """Check that the saved definition of the job, if there is one, equals the requested definition.

        Raises:
            Fatal: With exit code 3 and the differences, if the definitions differ.
        """
        saved = self.definition or requested
        differences = [
            f"{name} {saved.get(name)!r}, not {requested[name]!r}" for name in requested if saved.get(name) != requested[name]
        ]
        if differences:
            raise Fatal(f"job {job!r} was started with {'; '.join(differences)}", OTHER_JOB, REFUSED)

    def total(self) -> RescoreCounts:
        """Return the sum of the counts of all partitions."""
        counts = RescoreCounts()
        for place in self.places.values():
            counts.add(place.tally)
        return counts

    def begin(self, definition: dict[str, Any]) -> Record:
        """Set the definition of the job, and return the record that stores it."""
        self.definition = definition
        return self._topic, orjson.dumps(definition), self._key.encode(), -1, 0, None

    def move(self, partition: int, reached: int, tally: RescoreCounts) -> Record:
        """Advance a partition to the offset `reached`, add the counts `tally`, and return the record that stores both."""
        place = self.places.setdefault(partition, PartitionProgress(0, RescoreCounts()))
        place.tally.add(tally)
        place.next = reached
        return self._topic, msgspec.json.encode(place), f"{self._key}/{partition}".encode(), -1, 0, None


def definition(selection: ScoreSelection, version: str | None, output: str, topic_id: str) -> dict[str, Any]:
    """Return the definition of a job, which must not change while the job continues.

    Args:
        selection: The selection of score records.
        version: The digest of the version given by --with; None for the version of the channel.
        output: The topic of scores.
        topic_id: The id of that topic.
    """
    return {**selection.to_dict(), "with": version, "output": output, "topic_id": topic_id}
