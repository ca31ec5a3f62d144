"""Version change records. Each record states the version that scores a partition from a given offset on.

The records are published with the first batch that a revision of the channel scores in a partition. There is one record for
each role, champion or canary, that answers keys. The records contain the share of keys of each role. From the shares, a reader
can determine which version must answer an event, without a registry (`models/traffic_split.py`). A canary that this scorer
refuses also gets a record, because another scorer of the group may accept the canary and later own the partition.
"""

import orjson

from model_registry.channels.roles import CANARY, CHAMPION
from publisher.transactions.session import Record
from scorer.consumer.assignment import AssignedPartitions
from scorer.settings import Settings
from scorer.worker.batch_metrics import PendingBatch


def version_change_records(work: PendingBatch, partitions: AssignedPartitions, settings: Settings, at_ms: int) -> list[Record]:
    """Return the version change records of a batch, for the topic `<name>.swaps`.

    A partition gets one record for each role if another version or revision scored the previous batch of the partition. After
    a channel was recreated, its revisions count as other revisions, even if the numbers are equal. Without such a partition,
    the list is empty. In a shadow the list is always empty, because a shadow writes no version change records.

    Args:
        work: the scored batch.
        partitions: the assigned partitions, with the version that scored their previous batch.
        settings: the settings of the scorer.
        at_ms: the wall clock in Unix ms.
    """
    if settings.swaps_topic not in settings.answer_topics:
        return []
    marks = {partition: partitions.metadata(partition) for partition in work.batch.epochs}
    history = work.metadata.history
    changed = {
        partition: mark
        for partition, mark in marks.items()
        if mark.served != work.metadata.served or mark.is_of_other_history(history)
    }
    firsts = work.batch.first_offsets() if changed else {}
    shares = _shares(work) if changed else {}
    origin = work.servable.encoder.provenance
    owners = [(origin["role"], origin["version"], origin["digest"])]
    if work.canary:
        owners.append((CANARY, work.canary.version, work.canary.digest))
    records: list[Record] = []
    for partition, before in changed.items():
        for role, version, digest in owners:
            value: dict[str, object] = {
                "scorer": settings.owner,
                "topic": partition[0],
                "topic_id": before.topic_id,
                "partition": partition[1],
                "cut_over_offset": firsts[partition],  # the first that this version may have scored
                "from_version": before.version or None,
                "from_digest": before.digest or None,
                "version": version,
                "digest": digest,
                "role": role,
                "revision": work.servable.resolution.revision,
                **({"history": history} if history else {}),
                **shares,
                "reason": work.servable.reason,
                "at_ms": at_ms,
            }
            if (answers := partitions.answers_from(partition)) is not None:
                value |= {"scores_from": answers.scores, "letters_from": answers.letters}
            key = "{}/{}".format(*partition).encode()
            records.append((settings.swaps_topic, orjson.dumps(value), key, -1, at_ms, None))
    return records


def _shares(work: PendingBatch) -> dict[str, object]:
    """Return the fields with the percentage of keys of each role and, if there is a canary, the seed of the hash of keys."""
    if (canary := work.canary) is None:
        return {"shares": {CHAMPION: 100}}
    return {"shares": {CHAMPION: 100 - canary.percent, CANARY: canary.percent}, "seed": f"{canary.split.seed:016x}"}
