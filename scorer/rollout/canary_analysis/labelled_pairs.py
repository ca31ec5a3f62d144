"""Sum the differences between both versions' squared errors, over the pairs whose events have a label.

The memory is bounded. Requires labels of two classes and scores that are probabilities: one number, or one for each class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from publisher.kafka.partitions import Offsets, Partition, Spans
from publisher.kafka.reader import TopicReader
from scorer.evaluation import join_labels
from scorer.evaluation.class_names import BINARY, NameCodes, known
from scorer.evaluation.label_columns import Labels
from scorer.evaluation.latest_by_id import Column, NewestRows, RowsById, hash_ids
from scorer.rollout.canary_analysis.key_strata import Cells
from scorer.rollout.canary_analysis.paired_metrics import VersionAnswer
from scorer.settings import Settings


@dataclass(frozen=True, slots=True)
class LabelledSums:
    """The sums of the differences of both versions' squared errors, and the offsets that they are based on.

    A pair consists of the answers of both versions to one event with a label.

    Attributes:
        cells: The candidate's squared errors minus the champion's, summed by cell (group of event keys).
        answers: For each partition of answers, the offset up to which the records were read (exclusive).
        labels: For each partition of labels, the offset range that was read.
        records: For each partition of labels, the number of labels in that range.
        reason: Why the sums contain no pair; empty if they contain a pair.
        settings: The section `labels` of the settings that were used to read the labels.
    """

    # The same offsets give the same sums.

    cells: Cells
    answers: Offsets
    labels: Spans
    records: Mapping[Partition, int]
    reason: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the offsets and settings of the sums as JSON."""
        answers = [{"topic": topic, "partition": number, "to": end} for (topic, number), end in sorted(self.answers.items())]
        labels = [
            {"topic": at[0], "partition": at[1], "from": low, "to": high, "records": self.records.get(at, 0)}
            for at, (low, high) in sorted(self.labels.items())
        ]
        return {"answers": answers, "labels": labels, "settings": dict(self.settings)}


class LabelledPairs:
    """The answers of both versions to the same events, kept until the labels of these events are read.

    The two answers to one event are a pair. At most `most` pairs are kept.
    """

    # Of more events, those whose ids have the lowest hashes are kept, so that the choice depends neither on the order of
    # reading nor on the arrival times of labels.

    def __init__(self, most: int) -> None:
        self._max_pairs = most
        self._bound = np.uint64(2**64 - 1)
        self._partitions: dict[Partition, int] = {}
        self._decisions = NameCodes()
        self._parts: list[dict[str, Column]] = []

    def __len__(self) -> int:
        return sum(len(part["time"]) for part in self._parts)

    def add(self, partition: Partition, pairs: Sequence[tuple[int, int, VersionAnswer, VersionAnswer]]) -> None:
        """Add pairs of a source partition as tuples: event offset, cell of the event key, champion's and candidate's answer.

        Both versions must have scored the events.
        """
        offsets, cells, champion, candidate = zip(*pairs, strict=True) if pairs else ((), (), (), ())
        part: dict[str, Column] = {
            "ids": hash_ids(answer.id for answer in champion),
            "partition": np.full(len(pairs), self._partitions.setdefault(partition, len(self._partitions)), np.int32),
            "offset": np.array(offsets, np.int64),
            "time": np.array([answer.event_ms for answer in champion], np.int64),
            "cell": np.array(cells, np.int32),
            "champion": _probabilities(champion),
            "candidate": _probabilities(candidate),
            "decision": np.array([self._decisions.code(answer.decision) for answer in champion], np.int32),
        }
        self._parts.append(_below(part, self._bound))
        while len(self) > self._max_pairs:
            self._bound //= np.uint64(2)
            every = {name: np.concatenate([each[name] for each in self._parts]) for name in part}
            self._parts = [_below(every, self._bound)]

    def differences(self, bus: TopicReader, settings: Settings, reached: Offsets, until: Offsets | None = None) -> LabelledSums:
        """Read the labels, and sum the differences of the squared errors over all events that have a label.

        The difference of an event is the candidate's squared error minus the champion's squared error.

        Args:
            bus: The reader for the topic of labels.
            settings: The settings with the topic of labels and the classes.
            reached: The offsets up to which answers were read, by partition; they are stored in the result.
            until: The end offsets of reading labels, by partition; None for all labels that the topic has now.

        Raises:
            Fatal: With code 2 if no topic of labels is configured, or if the configured topic does not exist.
        """
        answered = self.newest()
        label_settings = settings.labels.model_dump()
        if not len(answered):
            join_labels.labels_topic(settings)
            return LabelledSums(Cells(), dict(reached), {}, {}, "no event was scored by both versions", label_settings)
        columns = {"number": answered.columns["champion"], "row": np.empty((len(answered), 0))} | answered.columns
        numbers = settings.labels.kind == "number"
        classes = known(settings.labels.classes, columns, self._decisions, numeric=numbers)
        labels, spans = join_labels.join(bus, settings, classes, answered, until)
        cells = loss_differences(answered, labels)
        reason = "" if cells.pairs else missing_reason(answered, labels)
        return LabelledSums(cells, dict(reached), spans, dict(labels.records), reason, label_settings)

    def newest(self) -> NewestRows:
        """Return the newest pair of each event id. The result does not depend on the order in which partitions were read."""
        rows = RowsById()
        places = {self._partitions[each]: place for place, each in enumerate(sorted(self._partitions))}
        for part in self._parts:
            rest = {name: part[name] for name in ("cell", "champion", "candidate", "decision")}
            for number in np.unique(part["partition"]).tolist():
                members = part["partition"] == number
                columns = {name: column[members] for name, column in rest.items()}
                rows.add(part["ids"][members], places[number], part["offset"][members], part["time"][members], **columns)
        return rows.newest()


def loss_differences(answered: NewestRows, labels: Labels) -> Cells:
    """Return the candidate's squared errors minus the champion's squared errors, summed by cell of event keys. Pure.

    The sums are empty if no pair has a label, or if the labels do not have exactly two classes.
    """
    newest_labels = labels.rows.newest()
    classes = labels.classes
    if not len(answered) or not len(newest_labels) or labels.numbers:
        return Cells()
    if classes is not None and len(classes.names) != len(BINARY.names):
        return Cells()
    answer_rows, label_rows = answered.joined(newest_labels)
    truth = newest_labels.columns["truth"][label_rows]
    columns = {name: column[answer_rows] for name, column in answered.columns.items()}
    champion = columns["champion"]
    candidate = columns["candidate"]
    usable = np.isin(truth, (0.0, 1.0)) & np.isfinite(champion) & np.isfinite(candidate)
    difference = np.square(candidate - truth) - np.square(champion - truth)
    return Cells().added(columns["cell"][usable], difference[usable])


def missing_reason(answered: NewestRows, labels: Labels) -> str:
    """Return the reason why `loss_differences` returns no pairs. Pure."""
    classes = labels.classes
    if labels.numbers:
        return "the rule compares probabilities of two classes, but labels.kind is number"
    if classes is not None and len(classes.names) != len(BINARY.names):
        return f"the rule compares probabilities of two classes, and there are {len(classes.names)}"
    labelled, _ = answered.joined(labels.rows.newest())
    if not len(labelled):
        others = f"{labels.unmatched:,} labels are of other events"
        return "; ".join(
            [f"none of {len(answered):,} events that both scored has a label that counts", others, *labels.refused.lines()]
        )
    if not any(np.isfinite(answered.columns[side][labelled]).any() for side in ("champion", "candidate")):
        return (
            f"{len(labelled):,} events have a label, and none of their scores is a probability: one number from 0 to 1, or two"
        )
    return f"{len(labelled):,} events have a label, and none has the outcome 0 or 1 and two scores that are probabilities"


def _below(part: dict[str, Column], bound: np.uint64) -> dict[str, Column]:
    chosen = part["ids"][:, 1] <= bound
    return part if chosen.all() else {name: column[chosen] for name, column in part.items()}


def _probabilities(answers: Sequence[VersionAnswer]) -> NDArray[np.float64]:
    """Return the probability of the second class in the score of each answer, (n,); NaN if a score is not a probability."""
    return np.array([_probability(answer.score) for answer in answers], np.float64)


def _probability(score: Any) -> float:
    if isinstance(score, list) and len(score) == len(BINARY.names):
        score = score[1]
    return float(score) if isinstance(score, int | float) and 0.0 <= score <= 1.0 else np.nan
