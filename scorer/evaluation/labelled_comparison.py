"""Assess two versions by the labels of the same events."""

from collections.abc import Sequence

import orjson

from model_registry.package.signature import Argmax, Decision, Signature
from publisher.kafka.partitions import Partition
from publisher.kafka.reader import TopicReader
from scorer.decoding.event_id import event_id
from scorer.decoding.headers import HeaderValues
from scorer.decoding.record_metadata import ListedMetadata
from scorer.evaluation import join_labels
from scorer.evaluation import score_events as comparison
from scorer.evaluation.assessment import Assessment, assess_versions
from scorer.evaluation.class_names import known
from scorer.evaluation.decision_output import select_output
from scorer.evaluation.label_columns import AnswerColumns
from scorer.evaluation.latest_by_id import hash_ids
from scorer.settings import Settings

VERSIONS = ("champion", "candidate")


class BothAnswers:
    """The answers of champion and candidate to the events that both have scored. An event needs about 100 bytes of memory."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._sides = (AnswerColumns(), AnswerColumns())

    def add(
        self,
        partition: Partition,
        offsets: Sequence[int],
        parts: ListedMetadata,
        champion: comparison.EventAnswers,
        candidate: comparison.EventAnswers,
    ) -> None:
        """Add the answers of both versions to events of a partition; an event counts only if both versions scored it."""
        rows = (champion.scored() & candidate.scored()).nonzero()[0].tolist()
        named = [
            event_id(
                HeaderValues.from_headers(parts.every_header[row]), champion.ids[row], self._region, (*partition, offsets[row])
            )
            for row in rows
        ]
        ids = hash_ids(named)
        times = [parts.every_time[row] for row in rows]
        places = [offsets[row] for row in rows]
        for side, version_answers, name in zip(self._sides, (champion, candidate), VERSIONS, strict=True):
            scores = orjson.loads(b"[%b]" % b",".join([version_answers.scores[row] for row in rows]))
            decisions = [version_answers.decisions[row] for row in rows]
            decided = [select_output(score, version_answers.output) for score in scores]
            side.add(partition, places, times, ids, decided, decisions, [name] * len(rows))

    def assessed(self, bus: TopicReader, settings: Settings, signature: Signature) -> Assessment:
        """Assess both versions on the labelled events.

        The classes are the configured ones, or by default the classes of `signature`.

        Raises:
            Fatal: If the labels cannot be read.
        """
        tables = [side.rows.newest() for side in self._sides]
        configured = settings.labels.classes or classes_of(signature)
        numbers = settings.labels.kind == "number"
        classes = known(configured, tables[0].columns, self._sides[0].decisions, numeric=numbers)
        labels, _ = join_labels.join(bus, settings, classes, tables[0])
        return assess_versions(list(zip(self._sides, tables, strict=True)), labels)


def classes_of(signature: Signature) -> Sequence[str]:
    """Return the names of the classes that a version decides between, in the order of its scores; empty if there are none."""
    rule = signature.decision
    if isinstance(rule, Decision):
        return (rule.below, rule.at_or_above)
    if isinstance(rule, Argmax) or signature.labelled:
        return signature.labels_of(signature.decided)
    return ()
