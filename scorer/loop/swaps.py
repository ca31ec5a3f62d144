"""The swap record: from which offset on a partition was scored by which version, written with that version's first batch."""

import orjson

from publisher.session.protocol import Record
from scorer.intake.partitions import Partitions
from scorer.loop.metering import Published
from scorer.settings import Settings


def swap_records(work: Published, partitions: Partitions, settings: Settings, at_ms: int) -> list[Record]:
    """For the topic `<name>.swaps`: a record for each partition of this batch that another version, or another revision, scored
    last. `at_ms` is the wall clock."""
    marks = {partition: partitions.mark(partition) for partition in work.batch.epochs}
    changed = {partition: mark for partition, mark in marks.items() if mark.served != work.mark.served}
    firsts = work.batch.first_offsets() if changed else {}
    origin = work.servable.encoder.provenance
    records: list[Record] = []
    for partition, before in changed.items():
        value: dict[str, object] = {
            "scorer": settings.owner,
            "topic": partition[0],
            "topic_id": before.topic_id,
            "partition": partition[1],
            "cut_over_offset": firsts[partition],  # the first that this version scored
            "from_version": before.version or None,
            "from_digest": before.digest or None,
            "version": origin["version"],
            "digest": origin["digest"],
            "role": origin["role"],
            "revision": work.servable.resolution.revision,
            "reason": work.servable.reason,
            "at_ms": at_ms,
        }
        if (answers := partitions.answers_from(partition)) is not None:
            value |= {"scores_from": answers.scores, "letters_from": answers.letters}
        records.append((settings.swaps_topic, orjson.dumps(value), "{}/{}".format(*partition).encode(), -1, at_ms, None))
    return records
