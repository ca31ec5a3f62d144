"""The swap record: from which offset on a partition was scored by which version, written with that version's first batch."""

import orjson

from publisher.kafka.partitions import Partition
from publisher.session.protocol import Record
from scorer.intake.marks import Mark
from scorer.intake.partitions import Partitions
from scorer.loop.metering import Published
from scorer.servables.servable import Servable
from scorer.settings import Settings


def swap_records(work: Published, partitions: Partitions, settings: Settings, at_ms: int) -> list[Record]:
    """For the topic `<name>.swaps`: a record for each partition of this batch that another version, or another revision, scored
    last. `at_ms` is the wall clock."""
    before = {partition: partitions.mark(partition) for partition in work.batch.epochs}
    changed = [partition for partition, mark in before.items() if mark.served != work.mark.served]
    if not changed:
        return []
    firsts, topic = work.batch.first_offsets(), settings.swaps_topic
    records: list[Record] = []
    for partition in changed:
        value = _encoded(settings.owner, partition, firsts[partition], before[partition], work.servable, at_ms)
        if (answers := partitions.answers_from(partition)) is not None:
            value |= {"scores_from": answers.scores, "letters_from": answers.letters}
        records.append((topic, orjson.dumps(value), "{}/{}".format(*partition).encode(), -1, at_ms, None))
    return records


def _encoded(
    owner: str, partition: Partition, cut_over_offset: int, before: Mark, servable: Servable, at_ms: int
) -> dict[str, object]:
    """`cut_over_offset` is the first offset that the new version scored. `before.topic_id` is the topic's id."""
    origin = servable.encoder.provenance
    return {
        "scorer": owner,
        "topic": partition[0],
        "topic_id": before.topic_id,
        "partition": partition[1],
        "cut_over_offset": cut_over_offset,
        "from_version": before.version or None,
        "from_digest": before.digest or None,
        "version": origin["version"],
        "digest": origin["digest"],
        "role": origin["role"],
        "revision": servable.resolution.revision,
        "reason": servable.reason,
        "at_ms": at_ms,
    }
