"""Store answers and labels as columns of arrays, one row for each record, with the id of its event. Pure."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from publisher.kafka.partitions import Partition
from scorer.evaluation.class_names import Classes, NameCodes
from scorer.evaluation.label_record import Label, Unusable
from scorer.evaluation.latest_by_id import Ids, NewestRows, RowsById

WIDEST = 100  # the longest list of numbers that is stored as a score; for a longer list, only the decision is stored


class AnswerColumns:
    """The answers of versions as columns, one row for each answer.

    The column `number`, (n,), has the scores that are a single number. The column `row`, (n, k), has the scores that are a list
    of numbers. Other scores are NaN.
    """

    # Further columns have the decisions and the versions.

    def __init__(self) -> None:
        self.versions = NameCodes()
        self.decisions = NameCodes()
        self._partitions: dict[Partition, int] = {}
        self.rows = RowsById()

    def add(
        self,
        partition: Partition,
        offsets: Sequence[int],
        times: Sequence[int],
        ids: Ids,
        scores: Sequence[Any],
        decisions: Sequence[str | None],
        versions: Sequence[str],
    ) -> None:
        """Add the answers (JSON values) to events of one partition; `times` are Unix ms."""
        self.rows.add(
            ids,
            self._partitions.setdefault(partition, len(self._partitions)),
            np.array(offsets, np.int64),
            np.array(times, np.int64),
            number=np.array([_number(score) for score in scores], np.float64),
            row=_rows(scores),
            decision=np.array([self.decisions.code(name) for name in decisions], np.int32),
            version=np.array([self.versions.code(name) for name in versions], np.int32),
        )


def _number(score: Any) -> float:
    return float(score) if isinstance(score, int | float) else np.nan


def _rows(scores: Sequence[Any]) -> NDArray[np.float64]:
    """Return the scores as a matrix of shape (number of scores, k), where k is the length of the longest list of numbers.

    Shorter lists and other scores are filled with NaN.
    """
    lists = {row: score for row, score in enumerate(scores) if isinstance(score, list) and 1 < len(score) <= WIDEST}
    matrix = np.full((len(scores), max(map(len, lists.values()), default=0)), np.nan)
    for row, score in lists.items():
        if all(isinstance(number, int | float) for number in score):
            matrix[row, : len(score)] = score
    return matrix


class RecordPosition(NamedTuple):
    """The position of a record."""

    partition: Partition
    offset: int

    def __str__(self) -> str:
        return "{}[{}]@{}".format(*self.partition, self.offset)


@dataclass
class Refusals:
    """The numbers of refused labels by reason, and for each reason the position of the first label and an explanation."""

    # The first position is the lowest, so that the result does not depend on the order of the partitions.

    counts: Counter[Unusable] = field(default_factory=Counter)
    examples: dict[Unusable, RecordPosition] = field(default_factory=dict)
    explanations: dict[Unusable, str] = field(default_factory=dict)

    def add(self, reason: Unusable, place: RecordPosition, explain: Callable[[], str] = str) -> None:
        """Count a label that is refused for this reason. For the first one, `explain` is called and returns an explanation."""
        self.counts[reason] += 1
        if reason not in self.examples or place < self.examples[reason]:
            self.examples[reason] = place
            self.explanations[reason] = explain()

    def copied(self) -> "Refusals":
        """Return an independent copy."""
        return Refusals(self.counts.copy(), dict(self.examples), dict(self.explanations))

    def first(self, reason: Unusable) -> str:
        """Return the position of the first label that was refused for a reason, and the explanation."""
        explained = self.explanations.get(reason)
        return f"{self.examples[reason]}: {explained}" if explained else str(self.examples[reason])

    def lines(self) -> list[str]:
        """Return a line for each reason with the number of labels, the most frequent reason first."""
        return [f"{count:,} are {reason}, the first {self.first(reason)}" for reason, count in self.ordered()]

    def ordered(self) -> list[tuple[Unusable, int]]:
        """Return (reason, number of labels) pairs, the most frequent reason first."""
        return sorted(self.counts.items(), key=lambda each: (-each[1], each[0]))


class Labels:
    """The labels of events that have an answer, as columns by event id; labels of other events are only counted.

    The column `truth` has the number of the class, or the outcome itself if `classes` is None; NaN for a withdrawn label.
    `numbers` is true if the configuration declares the outcomes to be numbers. Outcomes 0 and 1 are then no classes.
    """

    def __init__(self, topic: str, classes: Classes | None, *, numbers: bool = False) -> None:
        self.topic = topic
        self.classes = classes
        self.numbers = numbers
        self.rows = RowsById()
        self.refused = Refusals()
        self.unmatched = 0
        self.records: Counter[Partition] = Counter()
        """The number of added label records by partition."""

    def add(
        self,
        answered: NewestRows,
        partition: int,
        offsets: Sequence[int],
        times: Sequence[int],
        ids: Ids,
        labels: Sequence[Label | Unusable],
    ) -> None:
        """Add label records of one partition. `ids` has a row for each record; `times` are Unix ms.

        Unusable labels, and labels of events without an answer, are only counted.
        """
        held = answered.contains(ids)
        self.records[self.topic, partition] += len(offsets)
        rows: list[int] = []
        truths: list[float] = []
        for row, (label, is_answered) in enumerate(zip(labels, held.tolist(), strict=True)):
            if isinstance(label, Unusable):
                truth: float | Unusable | None = label
            else:
                truth = self._truth(label.value) if is_answered else None
            if isinstance(truth, Unusable):
                explain = partial(self._explain, label)
                self.refused.add(truth, RecordPosition((self.topic, partition), offsets[row]), explain)
            elif truth is None:
                self.unmatched += 1
            else:
                rows.append(row)
                truths.append(truth)
        columns = np.array(offsets, np.int64)[rows], np.array(times, np.int64)[rows]
        self.rows.add(ids[rows], partition, *columns, truth=np.array(truths, np.float64))

    def _explain(self, label: Label | Unusable) -> str:
        """Explain why a label is refused; empty if the reason needs no explanation."""
        if isinstance(label, Unusable) or label.value is None or self.classes is None:
            return ""
        return self.classes.explain(label.value)

    def _truth(self, value: str | float | None) -> float | Unusable:
        if value is None:
            return math.nan
        if self.classes is not None:
            return self.classes.number_of(value)
        return Unusable.NO_NUMBER if isinstance(value, str) else value
