"""Run the audit of scores on Kafka. The order of the reads makes the counts valid on a live system."""

# The order is:
#
# 1. The committed offsets of the group: every event before them must be answered.
# 2. The ends of the answer topics, including records of open transactions, because a commit is visible in the group's offsets a
#    moment before it is visible in every output partition.
# 3. The ends of the inputs: an answer to a later offset is a phantom.
# 4. The records up to these ends, after waiting for open transactions. All dead letters are read before the inputs, so that a
#    batch that a dead letter names as unreadable is not read. Such a batch might crash this process too.
# 5. The committed offsets again: no answer may belong to an event at or after these offsets.

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from publisher.audit.audited_records import AsJson, DeletedTopicFilter, feed_dead_letters, feed_scores, feed_swaps
from publisher.audit.event_audit import Audit, EventReport, Window
from publisher.audit.report import Progress
from publisher.audit.skip_unreadable_batches import read, read_past
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.headers import headers_of
from publisher.kafka.partitions import Offsets, Partition
from publisher.kafka.reader import PartitionBatch, Range, TopicReader
from publisher.kafka.source_position import origin_of

CLIENT_ID = "scorestream-audit"
NEVER = 2**63 - 1  # later than every timestamp
ANSWER_SECONDS = 10.0  # the longest wait for one answer of a broker


@dataclass(frozen=True)
class AuditScope:
    """The topics and the time range to audit.

    Attributes:
        inputs: the input topics.
        outputs: the score topics.
        dead: the dead-letter topics.
        swaps: the topics of swap records; if empty, versions are ordered by their first score.
        group: the scorers' consumer group; if None, every unanswered event counts as missing.
        from_ms: the first timestamp of the audited inputs (Unix ms); None for no limit.
        to_ms: the timestamp before which the audited inputs end (Unix ms); None for no limit.
        as_json: converts the value of a score record to JSON.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    dead: Sequence[str] = ()
    swaps: Sequence[str] = ()
    group: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    as_json: AsJson = bytes


def audit(
    settings: KafkaSettings, plan: AuditScope, progress: Progress = lambda *_: None, answer_seconds: float = ANSWER_SECONDS
) -> EventReport:
    """Read the committed records of the topics in `plan` once, and count the events and their answers.

    Args:
        settings: the connection.
        plan: the topics and the time range.
        progress: called with the progress.
        answer_seconds: the longest wait for one answer of the broker.

    Raises:
        Fatal: with exit code 2 for a missing topic, a group without committed offsets, or an unknown client property. With 3 if
            the broker rejects the request, or a log is truncated while it is read. With 4 if the broker does not answer.
    """
    topics = TopicReader(settings, CLIENT_ID, answer_seconds)
    inputs = topics.partitions(plan.inputs)
    answering = {"outputs": plan.outputs, "dead": plan.dead, "swaps": plan.swaps}
    answer_topics = {kind: topics.partitions(names) for kind, names in answering.items()}
    committed = topics.committed(plan.group, inputs) if plan.group else None
    ends = {kind: topics.written(partitions) for kind, partitions in answer_topics.items()}
    logs = DeletedTopicFilter(topics.ids(plan.inputs))
    starts = {kind: topics.earliest(partitions) for kind, partitions in answer_topics.items()}
    windows = _windows(topics, plan, inputs, committed)
    count = Audit(windows)

    def answers(kind: str) -> Iterator[PartitionBatch]:
        return read(topics, kind, {p: (starts[kind][p], end) for p, end in ends[kind].items()}, progress)

    for batch in answers("swaps"):
        feed_swaps(count, batch, logs)
    unreadable: defaultdict[Partition, list[Range]] = defaultdict(list)
    for batch in answers("dead"):
        for partition, offsets in feed_dead_letters(count, batch, logs):
            unreadable[partition].append(offsets)
    spans = {p: (window.lo, window.hi) for p, window in windows.items()}
    inputs_read = read_past(
        topics, "inputs", spans, progress, unreadable, lambda p, offsets: count.add_unreadable_inputs(p, *offsets)
    )
    oldest = _feed_inputs(count, inputs_read, timed=plan.from_ms is not None)
    if plan.from_ms is not None:  # a score has the timestamp of its input, or a later one
        starts["outputs"] = topics.since(oldest, ends["outputs"])
    for batch in answers("outputs"):
        feed_scores(count, batch, logs, plan.as_json)
    if plan.group:
        for partition, offset in topics.committed(plan.group, inputs).items():
            count.set_committed(partition, offset)
    return count.report()


def _windows(
    topics: TopicReader, plan: AuditScope, inputs: list[Partition], committed: Offsets | None
) -> dict[Partition, Window]:
    ends = topics.visible(inputs)
    lows = topics.earliest(inputs) if plan.from_ms is None else topics.since(plan.from_ms, ends)
    highs = ends if plan.to_ms is None else topics.since(plan.to_ms, ends)
    return {
        partition: Window(
            lows[partition], highs[partition], ends[partition], None if committed is None else committed[partition]
        )
        for partition in inputs
    }


def _feed_inputs(count: Audit, batches: Iterable[PartitionBatch], *, timed: bool) -> int:
    """Add batches of input events to the audit, and return the smallest timestamp of these events (Unix ms).

    If `timed` is False, no timestamps are read, and the result is NEVER.
    """
    oldest = NEVER
    for batch in batches:
        offsets = np.array(batch.offsets, np.int64)
        count.add_inputs(batch.partition, offsets)
        headers, _ = headers_of(batch.messages)
        are_copies = [origin_of(each, batch.partition) is not None for each in headers]
        if any(are_copies):
            count.add_copies(batch.partition, offsets[np.array(are_copies, np.bool_)])
        if timed:
            oldest = min(oldest, *(message.timestamp()[1] for message in batch.messages))
    return oldest
