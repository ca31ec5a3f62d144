"""Join the scores of a time range with all labels that Kafka retains. Joins no consumer group and writes nothing."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from confluent_kafka import Message

from publisher.errors import USAGE, Fatal
from publisher.kafka.headers import headers_of_one
from publisher.kafka.partitions import Offsets, Partition
from publisher.kafka.reader import PartitionBatch, TopicReader
from publisher.kafka.skipped_records import SkippedRecords
from publisher.kafka.topics import Bounds
from publisher.runtime.progress_bars import ShowProgress, ignore_progress, read_with_progress
from publisher.runtime.time_range import TimeRange
from scorer.evaluation.assessment import Assessment, assess
from scorer.evaluation.class_names import Classes, known
from scorer.evaluation.decision_output import DecidedOutputs, decided_output
from scorer.evaluation.label_columns import AnswerColumns, Labels
from scorer.evaluation.label_record import Label, Unusable, reader
from scorer.evaluation.latest_by_id import NewestRows, hash_ids
from scorer.models.registry_access import open_source
from scorer.scores import formats
from scorer.scores.decode_record import CompleteScoreRecord, decode_complete_record
from scorer.settings import Settings

log = logging.getLogger(__name__)

FORMAT_HINT = "check output.topic, output.format and schema_registry.url"
HINT = "configure the topic of outcomes: labels: {topic: NAME, id: PATH, value: PATH}"


Spans = dict[Partition, Bounds]


def measure(settings: Settings, window: TimeRange, show: ShowProgress = ignore_progress) -> tuple[Assessment, Spans]:
    """Assess all versions on the scores whose timestamps are in the window; also return the offset ranges that were read.

    `show` shows the progress of reading.

    Raises:
        Fatal: With exit code 2 if no topic of labels is configured, or if the configured topic does not exist.
        RegistryError: If scores have several outputs and the registry is unavailable.
    """
    labels_topic(settings)
    bus = TopicReader(settings.kafka, f"{settings.name}.labels")
    spans = spans_of_window(bus, settings.output.topic, window)
    answers = AnswerColumns()
    outputs = DecidedOutputs(lambda digest: decided_output(open_source(settings), digest))
    as_json = formats.as_json(settings)
    skipped = SkippedRecords(log)
    for batch in read_with_progress(bus, spans, show, "reading scores"):
        _add(answers, outputs, batch, window, _answers(batch, as_json, skipped))
    if (unreadable := skipped.counts.total()) and not len(answers.rows):
        raise Fatal(f"{settings.output.topic} has {unreadable:,} records, and none is a readable score", FORMAT_HINT, USAGE)
    answered = answers.rows.newest()
    numbers = settings.labels.kind == "number"
    classes = known(settings.labels.classes, answered.columns, answers.decisions, numeric=numbers)
    labels, read = join(bus, settings, classes, answered, show=show)
    assessment = assess(answers, answered, labels)
    return replace(assessment, unreadable=unreadable, undecided=dict(outputs.unknown)), spans | read


def labels_topic(settings: Settings) -> str:
    """Return the configured topic of labels.

    Raises:
        Fatal: With exit code 2 if no topic of labels is configured.
    """
    if settings.labels.topic is None:
        raise Fatal("labels.topic is not set: the outcomes of events are unknown", HINT, USAGE)
    return settings.labels.topic


def join(
    bus: TopicReader,
    settings: Settings,
    classes: Classes | None,
    answered: NewestRows,
    until: Offsets | None = None,
    show: ShowProgress = ignore_progress,
) -> tuple[Labels, Spans]:
    """Read the topic of labels, and return the labels of the events in `answered`. Other labels are only counted.

    Args:
        bus: The reader for the topic of labels.
        settings: The settings with the topic of labels.
        classes: The classes of the outcomes; None for numeric outcomes.
        answered: The newest answer of each event id.
        until: The offset at which to stop in each partition; None for the current log ends.
        show: A function that shows the progress of reading.

    Returns:
        The labels, and the offset ranges that were read.

    Raises:
        Fatal: If the topic is not configured or cannot be read.
    """
    topic = labels_topic(settings)
    spans = bus.spans(bus.partitions([topic]))
    if until is not None:
        spans = {
            partition: Bounds(low, max(low, min(high, until.get(partition, low)))) for partition, (low, high) in spans.items()
        }
    labels = Labels(topic, classes, numbers=settings.labels.kind == "number")
    read = labels_of(settings)
    for batch in read_with_progress(bus, spans, show, "reading labels"):
        records = [read(message) for message in batch.messages]
        ids = hash_ids(label.id if isinstance(label, Label) else "" for label in records)
        labels.add(answered, batch.partition[1], batch.offsets, _times(batch.messages), ids, records)
    return labels, spans


def labels_of(settings: Settings) -> Callable[[Message], Label | Unusable]:
    """Return a parser for the records of the topic of labels."""
    read = reader(settings.labels)
    return lambda message: read(message.key(), message.value(), lambda: headers_of_one(message))


def spans_of_window(bus: TopicReader, topic: str, window: TimeRange) -> Spans:
    """Return the offset ranges that may contain scores with timestamps in the time range `window`."""
    # The ranges extend to the log ends, because a score has the timestamp of its event, and timestamps may be out of order.
    spans = bus.spans(bus.partitions([topic]))
    if window.from_ms is None:
        return spans
    firsts = bus.since(window.from_ms, {partition: bounds.high for partition, bounds in spans.items()})
    return {partition: Bounds(max(low, firsts[partition]), high) for partition, (low, high) in spans.items()}


def _times(messages: Sequence[Message]) -> list[int]:
    return [message.timestamp()[1] for message in messages]


def _add(
    answers: AnswerColumns,
    outputs: DecidedOutputs,
    batch: PartitionBatch,
    window: TimeRange,
    scored: Iterator[tuple[int, int, CompleteScoreRecord]],
) -> None:
    """Add the scores with timestamps in the time range `window` to `answers`."""
    inside = [(row, time, answer) for row, time, answer in scored if window.contains(time)]
    answers.add(
        batch.partition,
        [batch.offsets[row] for row, *_ in inside],
        [time for _, time, _ in inside],
        hash_ids(answer.id for *_, answer in inside),
        [outputs.score(answer.digest, answer.score) for *_, answer in inside],
        [answer.decision for *_, answer in inside],
        [answer.versioned for *_, answer in inside],
    )


def _answers(
    batch: PartitionBatch, as_json: Callable[[bytes], bytes], skipped: SkippedRecords
) -> Iterator[tuple[int, int, CompleteScoreRecord]]:
    """Yield (row, timestamp in Unix ms, record) for each record of a batch that contains the score of a model.

    Records of expired events and records with fallback scores are left out. Unreadable records are counted and skipped.
    """
    for row, message in enumerate(batch.messages):
        try:
            answer = decode_complete_record(as_json(message.value() or b"null"))
        except ValueError as error:
            skipped.skip(*batch.partition, batch.offsets[row], error)
            continue
        if answer.status == "scored":
            yield row, message.timestamp()[1], answer
