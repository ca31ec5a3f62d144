"""How good the sampled answers of each version were, by the labels heard so far: a sample of ids, in bounded memory."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from scorer.console.records import SampledScore
from scorer.evaluation.assessment import Assessment, assess
from scorer.evaluation.class_names import known
from scorer.evaluation.label_columns import Answers, Labels
from scorer.evaluation.label_record import Label, Unusable
from scorer.evaluation.latest_by_id import digest, from_digests

KEPT = 100_000
REFRESH_SECONDS = 5.0
HIGHEST = b"\xff" * 16
NOWHERE = ("labels", 0)


@dataclass(slots=True)
class LabelQualityFold:
    """At most `most` answers and as many labels are kept. Of more, those whose ids hash low: the same of both, so that they
    meet however late a label comes. `unusable` counts the labels without an id or an outcome, by reason."""

    most: int = KEPT
    configured: tuple[str, ...] = ()
    answers: dict[bytes, tuple[Any, str | None, str]] = field(default_factory=dict)
    labels: dict[bytes, Label] = field(default_factory=dict)
    unusable: Counter[Unusable] = field(default_factory=Counter)
    _bound: bytes = HIGHEST
    _found: Assessment | None = None
    _next: float = 0.0

    def hear(self, record: SampledScore) -> None:
        """Take in a score; a later one of the same id takes its place."""
        if record.status == "scored" and record.id and (key := digest(record.id)) <= self._bound:
            self.answers[key] = (record.score, record.decision, record.version)
            self._shrink()

    def hear_label(self, label: Label) -> None:
        """Take in a label; a later one of the same id takes its place."""
        if (key := digest(label.id)) <= self._bound:
            self.labels[key] = label
            self._shrink()

    def _shrink(self) -> None:
        while max(len(self.answers), len(self.labels)) > self.most:
            self._bound = (int.from_bytes(self._bound, "big") // 2).to_bytes(len(HIGHEST), "big")
            self.answers = {key: kept for key, kept in self.answers.items() if key <= self._bound}
            self.labels = {key: kept for key, kept in self.labels.items() if key <= self._bound}

    def assessed(self, now: float) -> Assessment | None:
        """The figures, taken anew every REFRESH_SECONDS; None before the first label. `now` in Unix seconds."""
        if self.labels and now >= self._next:
            self._found, self._next = self._assess(), now + REFRESH_SECONDS
        return self._found

    def _assess(self) -> Assessment:
        answers, count = Answers(), len(self.answers)
        columns = list(zip(*self.answers.values(), strict=True)) or [(), (), ()]
        answers.add(NOWHERE, range(count), [0] * count, from_digests(self.answers), *columns)
        answered = answers.rows.newest()
        labels = Labels(NOWHERE[0], known(self.configured, answered.columns, answers.decisions))
        told = list(self.labels.values())
        labels.add(answered, 0, range(len(told)), [0] * len(told), from_digests(self.labels), told)
        return assess(answers, answered, labels)
