"""The progress of a job in the compacted topic `<name>.rollouts`.

`rescore/<job>` holds its definition, `rescore/<job>/<partition>` its position in each partition of the scores, written in the
transaction of
the corrections up to it.
"""

from typing import Any

import msgspec
import orjson

from model_registry.untrusted_input import documents
from model_registry.untrusted_input.documents import Count
from publisher.errors import REFUSED, Fatal
from publisher.kafka.reader import TopicReader
from publisher.transactions.protocol import Record
from scorer.rescore.counts import RescoreCounts
from scorer.rescore.selection import ScoreSelection
from scorer.settings import Settings

OTHER_JOB = "give this one another name with --job; or repeat the arguments of the first, and it goes on"


class PartitionProgress(msgspec.Struct):
    """The next offset in one partition of the scores, and the counts of those before it."""

    next: Count
    tally: RescoreCounts


class JobProgress:
    """The progress of one job: `definition` is None and `places` is empty before its first transaction."""

    def __init__(self, settings: Settings, job: str) -> None:
        self.definition: dict[str, Any] | None = None
        self.places: dict[int, PartitionProgress] = {}
        self._topic = settings.rollouts_topic
        self._key = f"rescore/{job}"

    def read(self, reader: TopicReader) -> None:
        """Read the committed progress. Raises Fatal."""
        for batch in reader.read(reader.spans(reader.partitions([self._topic]))):
            for message in batch.messages:
                self._hear(message.key() or b"", message.value() or b"")

    def _hear(self, key: bytes, value: bytes) -> None:
        name, _, partition = key.decode("utf-8", "replace").removeprefix(self._key).partition("/")
        if not key.startswith(self._key.encode()) or name:
            return
        try:
            if partition:
                self.places[int(partition)] = documents.decode(value, PartitionProgress)
            else:
                self.definition = documents.decode(value, dict[str, Any])
        except ValueError as error:
            said = f"{self._topic} has a record {key!r:.200} that is none of a job: {error}"
            raise Fatal(said, "name another job with --job", REFUSED) from error

    def check(self, job: str, asked: dict[str, Any]) -> None:
        """Compare with the requested arguments. Raises Fatal (3) with the differences."""
        known = self.definition or asked
        other = [f"{name} {known.get(name)!r}, not {asked[name]!r}" for name in asked if known.get(name) != asked[name]]
        if other:
            raise Fatal(f"job {job!r} was begun with {'; '.join(other)}", OTHER_JOB, REFUSED)

    def total(self) -> RescoreCounts:
        found = RescoreCounts()
        for place in self.places.values():
            found.add(place.tally)
        return found

    def begin(self, definition: dict[str, Any]) -> Record:
        """Return the record with the definition of the job."""
        self.definition = definition
        return self._topic, orjson.dumps(definition), self._key.encode(), -1, 0, None

    def move(self, partition: int, reached: int, tally: RescoreCounts) -> Record:
        """Return the record with the position `reached` and the counts up to it."""
        place = self.places.setdefault(partition, PartitionProgress(0, RescoreCounts()))
        place.tally.add(tally)
        place.next = reached
        return self._topic, msgspec.json.encode(place), f"{self._key}/{partition}".encode(), -1, 0, None


def definition(selection: ScoreSelection, version: str | None, output: str, topic_id: str) -> dict[str, Any]:
    """Return the definition of a job.

    Args:
        selection: The selected scores.
        version: The digest of --with, None for the channel's version.
        output: The topic of scores.
        topic_id: The id of that topic.
    """
    return {**selection.to_dict(), "with": version, "output": output, "topic_id": topic_id}
