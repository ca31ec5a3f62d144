"""The quality of each version on a sample of scores and labels, in bounded memory."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from scorer.evaluation.assessment import Assessment, assess
from scorer.evaluation.class_names import known
from scorer.evaluation.label_columns import AnswerColumns, Labels
from scorer.evaluation.label_record import Label, Unusable
from scorer.evaluation.latest_by_id import digest, from_digests
from scorer.scores.decode_record import CompleteScoreRecord

KEPT = 100_000
REFRESH_SECONDS = 5.0
HIGHEST = b"\xff" * 16
NOWHERE = ("labels", 0)


@dataclass(slots=True)
class LabelQualityFold:
    """Joins a sample of the scores with their labels by event id.

    At most `most` scores and `most` labels are kept. `unusable` counts the labels without an id or an outcome, by reason.
    """

    # An event id is kept if its hash is not above a bound, which is lowered when there are too many ids. Scores and labels have
    # the same bound, so the label of a kept score is kept too, even if it arrives much later.

    most: int = KEPT
    configured: tuple[str, ...] = ()
    numbers: bool = False
    answers: dict[bytes, tuple[Any, str | None, str]] = field(default_factory=dict)
    labels: dict[bytes, Label] = field(default_factory=dict)
    unusable: Counter[Unusable] = field(default_factory=Counter)
    _bound: bytes = HIGHEST
    _assessment: Assessment | None = None
    _next: float = 0.0

    def add(self, record: CompleteScoreRecord) -> None:
        """Add a score, which replaces an earlier score of the same id."""
        if record.status == "scored" and record.id and (key := digest(record.id)) <= self._bound:
            self.answers[key] = (record.score, record.decision, record.version)
            self._shrink()

    def add_label(self, label: Label) -> None:
        """Add a label, which replaces an earlier label of the same id."""
        if (key := digest(label.id)) <= self._bound:
            self.labels[key] = label
            self._shrink()

    def _shrink(self) -> None:
        while max(len(self.answers), len(self.labels)) > self.most:
            self._bound = (int.from_bytes(self._bound, "big") // 2).to_bytes(len(HIGHEST), "big")
            self.answers = {key: answer for key, answer in self.answers.items() if key <= self._bound}
            self.labels = {key: label for key, label in self.labels.items() if key <= self._bound}

    def assessed(self, now: float) -> Assessment | None:
        """Return the quality figures of all versions; None before the first label. `now` is in Unix seconds.

        Calls within REFRESH_SECONDS return the same figures.
        """
        if self.labels and now >= self._next:
            self._assessment = self._assess()
            self._next = now + REFRESH_SECONDS
        return self._assessment

    def _assess(self) -> Assessment:
        answers = AnswerColumns()
        count = len(self.answers)
        columns = list(zip(*self.answers.values(), strict=True)) or [(), (), ()]
        answers.add(NOWHERE, range(count), [0] * count, from_digests(self.answers), *columns)
        answered = answers.rows.newest()
        classes = known(self.configured, answered.columns, answers.decisions, numeric=self.numbers)
        labels = Labels(NOWHERE[0], classes, numbers=self.numbers)
        values = list(self.labels.values())
        labels.add(answered, 0, range(len(values)), [0] * len(values), from_digests(self.labels), values)
        return assess(answers, answered, labels)
