"""The newest label of each event, held in memory. Scores are joined with these labels while the scores are read."""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from publisher.errors import USAGE, Fatal
from publisher.kafka.reader import TopicReader
from publisher.runtime.progress_bars import ShowProgress, read_with_progress
from scorer.evaluation.class_names import NameCodes
from scorer.evaluation.join_labels import labels_of, labels_topic
from scorer.evaluation.label_record import Label, Unusable
from scorer.evaluation.latest_by_id import NewestRows, RowsById, hash_ids
from scorer.read.score_rows import LabelColumns
from scorer.settings import Settings

log = logging.getLogger(__name__)

MAX_NAMES = 10_000  # distinct texts of labels: more of them are no names of classes


class NewestLabels:
    """The newest label of each event. The labels take about 50 bytes of memory for each labelled event.

    Attributes:
        are_numbers: whether all labels are numbers. If some labels are texts, `look_up` returns every label as a text: a number
            becomes the name of its class in `labels.classes` or, if there is no such class, its decimal text.
    """

    def __init__(self, rows: NewestRows, names: Sequence[str], classes: Sequence[str]) -> None:
        self._rows = rows
        self._firsts = np.ascontiguousarray(rows.ids[:, 0])
        self._names = names
        self._classes = classes
        self.are_numbers = not names

    def look_up(self, ids: Sequence[str]) -> LabelColumns:
        """Return the label of each event id and its time; None for an event without a label."""
        labels: list[str | float | None] = [None] * len(ids)
        times: list[int | None] = [None] * len(ids)
        if not len(self._rows) or not ids:
            return LabelColumns(labels, times)
        wanted = hash_ids(ids)
        held = self._rows.ids
        places = np.minimum(np.searchsorted(self._firsts, wanted[:, 0]), len(held) - 1)
        columns = self._rows.columns
        for row in np.flatnonzero((held[places] == wanted).all(axis=1)).tolist():
            place = places[row]
            label = self._label(columns["number"][place], int(columns["name"][place]))
            if label is not None:
                labels[row] = label
                times[row] = int(columns["time"][place])
        return LabelColumns(labels, times)

    def _label(self, number: float, name: int) -> str | float | None:
        if name >= 0:
            return self._names[name]
        if np.isnan(number):  # withdrawn
            return None
        if self.are_numbers:
            return float(number)
        if number in range(len(self._classes)):
            return self._classes[int(number)]
        return str(int(number)) if number.is_integer() else repr(float(number))


def read_newest_labels(reader: TopicReader, settings: Settings, show: ShowProgress) -> NewestLabels:
    """Read the whole topic of labels. The number of labels that cannot be used is logged.

    Raises:
        Fatal: With exit code 2 if no topic of labels is configured, the topic does not exist, or the labels have too many
            different texts to be names of classes.
    """
    topic = labels_topic(settings)
    spans = reader.spans(reader.partitions([topic]))
    read = labels_of(settings)
    codes = NameCodes()
    rows = RowsById()
    unusable: Counter[Unusable] = Counter()
    for batch in read_with_progress(reader, spans, show, "reading labels"):
        records = [read(message) for message in batch.messages]
        unusable.update(record for record in records if isinstance(record, Unusable))
        usable = [(row, record) for row, record in enumerate(records) if isinstance(record, Label)]
        rows.add(
            hash_ids(record.id for _, record in usable),
            batch.partition[1],
            np.array([batch.offsets[row] for row, _ in usable], np.int64),
            np.array([batch.messages[row].timestamp()[1] for row, _ in usable], np.int64),
            number=np.array([_number(record.value) for _, record in usable], np.float64),
            name=np.array([codes.code(_name(record.value)) for _, record in usable], np.int32),
        )
        if len(names := codes.all) > MAX_NAMES:
            raise Fatal(
                f"the labels of {topic} have more than {MAX_NAMES:,} different texts, such as {names[-1]!r:.100}",
                "set labels.value to the path of a class or a number",
                USAGE,
            )
    for reason, count in unusable.most_common():
        log.warning("%s: %d labels are not used: %s", topic, count, reason)
    return NewestLabels(rows.newest(), codes.all, settings.labels.classes)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, float) else np.nan


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) else None
