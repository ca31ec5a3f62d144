"""Pairs whose events have a label: by how much the candidate's squared error is larger. In bounded memory.

Of two classes and scores that are probabilities: one number, or two that belong to the classes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from publisher.kafka.partitions import Offsets, Partition
from publisher.kafka.reader import TopicReader
from scorer.rollout.judgement.cells import Cells
from scorer.rollout.judgement.differences import Answer
from scorer.rollout.labels import reading
from scorer.rollout.labels.classes import BINARY, Names, known
from scorer.rollout.labels.columns import Labels
from scorer.rollout.labels.newest import Column, Newest, Rows, hashed
from scorer.settings import Settings


class LabelledPairs:
    """Of at most `most` events. Of more, those whose ids hash low: the same in any order, however late their labels are."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bound = np.uint64(2**64 - 1)
        self._partitions: dict[Partition, int] = {}
        self._decisions = Names()
        self._parts: list[dict[str, Column]] = []
        self.read: dict[Partition, int] = {}
        """Up to where labels were read."""

    def __len__(self) -> int:
        return sum(len(part["time"]) for part in self._parts)

    def add(self, partition: Partition, pairs: Sequence[tuple[int, int, Answer, Answer]]) -> None:
        """Take in events of a source partition: offset, cell, the champion's answer and the candidate's. Both have scored."""
        offsets, cells, champion, candidate = zip(*pairs, strict=True) if pairs else ((), (), (), ())
        part: dict[str, Column] = {
            "ids": hashed(answer.id for answer in champion),
            "partition": np.full(len(pairs), self._partitions.setdefault(partition, len(self._partitions)), np.int32),
            "offset": np.array(offsets, np.int64),
            "time": np.array([answer.event_ms for answer in champion], np.int64),
            "cell": np.array(cells, np.int32),
            "champion": _probabilities(champion),
            "candidate": _probabilities(candidate),
            "decision": np.array([self._decisions.code(answer.decision) for answer in champion], np.int32),
        }
        self._parts.append(_below(part, self._bound))
        while len(self) > self._most:
            self._bound //= np.uint64(2)
            every = {name: np.concatenate([each[name] for each in self._parts]) for name in part}
            self._parts = [_below(every, self._bound)]

    def differences(self, bus: TopicReader, settings: Settings, until: Offsets | None = None) -> Cells:
        """The candidate's squared error less the champion's, of the events that have a label now, or had one `until` these
        ends. Raises Fatal, with 2 where no topic of labels is configured or there."""
        answered = self.newest()
        if not len(answered):
            reading.labels_topic(settings)
            return Cells()
        columns = {"number": answered.columns["champion"], "row": np.empty((len(answered), 0))} | answered.columns
        classes = known(settings.labels.classes, columns, self._decisions)
        labels, spans = reading.join(bus, settings, classes, answered, until)
        self.read = {at: bounds.high for at, bounds in spans.items()}
        return losses(answered, labels)

    def newest(self) -> Newest:
        """One row an id."""
        rows = Rows()
        for part in self._parts:
            rest = {name: part[name] for name in ("cell", "champion", "candidate", "decision")}
            for number in np.unique(part["partition"]).tolist():
                mine = part["partition"] == number
                of = {name: column[mine] for name, column in rest.items()}
                rows.add(part["ids"][mine], number, part["offset"][mine], part["time"][mine], **of)
        return rows.newest()


def losses(answered: Newest, labels: Labels) -> Cells:
    """The differences of squared errors, by cell; none where the labels are not of two classes. Pure."""
    told, classes = labels.rows.newest(), labels.classes
    if not len(answered) or not len(told) or (classes is not None and len(classes.names) != len(BINARY.names)):
        return Cells()
    mine, theirs = answered.joined(told)
    truth, columns = told.columns["truth"][theirs], {name: column[mine] for name, column in answered.columns.items()}
    champion, candidate = columns["champion"], columns["candidate"]
    usable = np.isin(truth, (0.0, 1.0)) & np.isfinite(champion) & np.isfinite(candidate)
    difference = np.square(candidate - truth) - np.square(champion - truth)
    return Cells().added(columns["cell"][usable], difference[usable])


def _below(part: dict[str, Column], bound: np.uint64) -> dict[str, Column]:
    chosen = part["ids"][:, 1] <= bound
    return part if chosen.all() else {name: column[chosen] for name, column in part.items()}


def _probabilities(answers: Sequence[Answer]) -> NDArray[np.float64]:
    """Those of the second class; NaN where a score is none."""
    return np.array([_probability(answer.score) for answer in answers], np.float64)


def _probability(score: Any) -> float:
    if isinstance(score, list) and len(score) == len(BINARY.names):
        score = score[1]
    return float(score) if isinstance(score, int | float) and 0.0 <= score <= 1.0 else np.nan
