"""Fix the offset ranges of events and labels to train on (the freeze), and copy the records of these ranges to files.

With `snapshot.from: features`, the records of the feature log take the place of the events.

Topics are only read, and no consumer group is joined. The ranges cover the events since the start of the window, by their Kafka
timestamps, and all retained labels. They end at the last stable offsets at the time of the freeze. Two copies of the same
ranges are byte-identical, unless a compacted topic loses records between the copies.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from publisher.errors import REFUSED, USAGE, Fatal, retriable_as_fatal
from publisher.kafka.connection import ANSWER_SECONDS, connect
from publisher.kafka.partitions import Partition, Spans
from publisher.kafka.reader import TopicReader
from publisher.kafka.topics import Bounds, Topics
from scorer.evaluation.join_labels import labels_topic
from scorer.settings import Settings
from training.settings import TrainingSettings
from training.snapshot.files import KINDS, Copied, Frozen, Kind, PartitionFile, finish, path_of, verified

GROUPS_BYTES = 32 << 20  # of records held in memory, all partitions together
MIN_GROUP_BYTES = 1 << 16
AGAIN = "remove the folder of the snapshot, and run again: this freezes the records that exist now"
Progress = Callable[[int, int], None]
"""Reports the number of copied records, and the number of offsets to copy."""


def freeze(settings: Settings, training: TrainingSettings, now_ms: int) -> Frozen:
    """Determine the offset ranges of a snapshot; `now_ms` (Unix ms) is the time of the freeze.

    Raises:
        Fatal: Exit code 2 if a topic is missing, 4 if the broker is unreachable.
    """
    reader = TopicReader(settings.kafka, _client(settings))
    inputs = _input_topics(settings, training)
    topics = [*inputs, labels_topic(settings)]
    spans = reader.spans(reader.partitions(topics))
    events = {partition: bounds for partition, bounds in spans.items() if partition[0] in inputs}
    firsts = reader.since(now_ms - training.snapshot.window, {partition: bounds.high for partition, bounds in events.items()})
    begun = {partition: Bounds(max(low, firsts[partition]), high) for partition, (low, high) in events.items()}
    ranges = _by_topic({**spans, **begun})
    cluster_id, ids = _identities(settings, topics)
    return Frozen(now_ms, cluster_id, ids, {name: ranges[name] for name in topics[:-1]}, {topics[-1]: ranges[topics[-1]]})


def copy(settings: Settings, frozen: Frozen, folder: Path, progress: Progress = lambda _done, _of: None) -> Copied:
    """Copy the records of the frozen ranges to a folder, unless the folder has a complete copy of the same ranges.

    The folder appears only when the copy is complete.

    Raises:
        Fatal: Exit code 3 if the records cannot be written to the disk, or the broker has lost some of the records; exit code 4
            if the broker is unreachable.
    """
    with contextlib.suppress(Fatal):
        return verified(folder, frozen)
    part = folder.with_name(f"{folder.name}.part")
    try:
        with _fresh(part):
            copied = _copy(settings, frozen, part, progress)
            shutil.rmtree(folder, ignore_errors=True)
            part.rename(folder)
    except OSError as error:
        raise Fatal(
            f"the snapshot cannot be written to {folder}: {error}",
            "check the disk space and the permissions, and run again",
            REFUSED,
        ) from error
    return copied


def _copy(settings: Settings, frozen: Frozen, folder: Path, progress: Progress) -> Copied:
    reader = TopicReader(settings.kafka, _client(settings))
    spans_by_kind: dict[Kind, Spans] = {kind: frozen.spans(kind) for kind in KINDS}
    of = sum(stop - start for spans in spans_by_kind.values() for start, stop in spans.values())
    done = 0
    records = dict[str, int]()
    for kind, spans in spans_by_kind.items():
        _check_still_there(settings, reader, frozen, spans)
        room = max(MIN_GROUP_BYTES, GROUPS_BYTES // max(1, len(spans)))
        files = {partition: PartitionFile(folder / path_of(kind, partition), room) for partition in spans}
        for batch in reader.read(spans):
            files[batch.partition].add(batch)
            progress(done := done + len(batch.offsets), of)
        for partition, file in files.items():
            file.close()
            if file.records:
                records[path_of(kind, partition)] = file.records
    return finish(folder, frozen, records)


def _check_still_there(settings: Settings, reader: TopicReader, frozen: Frozen, spans: Spans) -> None:
    """Check that cluster and topics are those of the snapshot `frozen`, and that the topics still have the offsets in `spans`.

    Raises Fatal (exit code 3) otherwise.
    """
    topics = dict.fromkeys(topic for topic, _ in spans)
    cluster_id, ids = _identities(settings, topics)
    if cluster_id != frozen.cluster_id:
        raise Fatal(
            f"the Kafka cluster is {cluster_id}, but the snapshot is of the cluster {frozen.cluster_id}", AGAIN, REFUSED
        )
    for topic in topics:
        if ids.get(topic) != frozen.ids[topic]:
            event = "recreated" if topic in ids else "deleted"
            raise Fatal(f"topic {topic} was {event} since the snapshot was frozen", AGAIN, REFUSED)
    for (topic, number), (low, high) in reader.spans(spans).items():
        start, stop = spans[topic, number]
        if start < stop and (low > start or high < stop):
            lost = f"offsets {start} to {min(low, stop)} were deleted" if low > start else f"it ends at {high}"
            raise Fatal(f"{topic}[{number}] no longer has the snapshot's offsets {start} to {stop}: {lost}", AGAIN, REFUSED)


def _input_topics(settings: Settings, training: TrainingSettings) -> list[str]:
    """Return the topics that `snapshot.from` selects: the input topics or the feature log.

    Raises Fatal (exit code 2) if the feature log is selected but not configured.
    """
    if training.snapshot.from_ == "events":
        return list(settings.input.topics)
    if settings.features.topic is None:
        raise Fatal(
            "snapshot.from is features, but the scorer has no feature log",
            "set features.topic in the scorer's configuration, or snapshot.from: events",
            USAGE,
        )
    return [settings.features.topic]


def _identities(settings: Settings, topics: Mapping[str, None] | list[str]) -> tuple[str, dict[str, str]]:
    """Return the id of the cluster, and the id of each existing topic in `topics`, by name. Raises Fatal."""
    admin = connect(settings.kafka, _client(settings))
    topics_client = Topics(settings.kafka, _client(settings), "the broker", ANSWER_SECONDS, admin)
    with retriable_as_fatal("see the broker's log, and try again"):
        return topics_client.id(), {name: topic.id for name, topic in topics_client.topics(topics).items()}


def _by_topic(spans: Mapping[Partition, Bounds]) -> dict[str, list[tuple[int, int]]]:
    spans_by_topic: dict[str, list[tuple[int, int]]] = {}
    for (topic, _), (low, high) in sorted(spans.items()):
        spans_by_topic.setdefault(topic, []).append((low, max(low, high)))
    return spans_by_topic


def _client(settings: Settings) -> str:
    return f"{settings.name}.training"


@contextlib.contextmanager
def _fresh(folder: Path) -> Iterator[None]:
    """Provide an empty folder during the block, and remove the folder at the end. Raises OSError."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
