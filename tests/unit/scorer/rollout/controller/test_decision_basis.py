"""Decisions of every rule kind, based on topics that are read at any pace, are reproduced from the basis in their entries.

A topic is a value: records by offset, of which retention and compaction remove some. Labels arrive late and twice.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

import numpy as np
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from msgspec.structs import replace

from publisher.kafka.partitions import Offsets, Partition, Spans
from publisher.kafka.reader import PartitionBatch as Read
from publisher.kafka.reader import TopicReader
from publisher.kafka.source_position import Position
from publisher.kafka.topics import Bounds
from publisher.runtime.time_range import ALWAYS
from scorer.dead_letters.headers import HeaderList, dead_headers
from scorer.evaluation.decision_output import DecidedOutputs
from scorer.fetch.source import FetchedRecords, PartitionRecords
from scorer.rollout.canary_analysis.analysis_report import AnalysisReport, ReadRange
from scorer.rollout.canary_analysis.labelled_pairs import LabelledSums
from scorer.rollout.canary_analysis.pair_sums import PairSums
from scorer.rollout.canary_analysis.rules import BRIER
from scorer.rollout.controller import log_records
from scorer.rollout.controller.analysis_step import evaluate_sums
from scorer.rollout.controller.decision_basis import (
    DecisionBasis,
    comparable_reasons,
    differences,
    missing_records,
    obstacles,
    read_basis,
    removed_records,
    uncertainties,
)
from scorer.rollout.controller.log_records import EntryKind, LogEntry
from scorer.rollout.controller.rollout_state import Rollout
from scorer.settings import Settings
from tests.unit.scorer.minimal import minimal
from tests.unit.scorer.rollout.controller.rollout_records import NEW, OLD, Story

WIDTH = 2
SCORES, SHADOW, DEAD, LABELS = "out", "out.shadow", "out.dead", "labels"
ANSWER_PARTITIONS = [(topic, number) for topic in (SCORES, SHADOW, DEAD) for number in range(WIDTH)]
LAX = {"errors": 1.0, "flips": 1.0, "psi": 100.0}
RULES: dict[str, dict[str, Any]] = {
    "errors": LAX | {"errors": 0.0},
    "flips": LAX | {"flips": 0.0},
    "psi": LAX | {"psi": 0.0},
    "brier": LAX | {"brier": {"margin": 0.001, "within": "48h"}},
    "all": {"errors": 0.01, "flips": 0.01, "psi": 0.1, "brier": 0.01},
}


@dataclass(frozen=True)
class Record:
    """A record of a topic."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: HeaderList


@dataclass
class Log:
    """A partition: its records, the first retained offset, and the offset behind the last record."""

    records: list[Record] = field(default_factory=list)
    low: int = 0
    high: int = 0

    def append(self, key: bytes | None, value: bytes | None, headers: HeaderList = ()) -> None:  # type: ignore[assignment]
        self.records.append(Record(self.high, key, value, list(headers)))
        self.high += 1

    def between(self, start: int, end: int) -> list[Record]:
        return [kafka_record for kafka_record in self.records if max(start, self.low) <= kafka_record.offset < end]


class Topics:
    """The logs of all topics, with the calls of a reader of labels."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.logs = {at: Log() for at in [*ANSWER_PARTITIONS, *((LABELS, number) for number in range(WIDTH))]}
        self.events: Counter[int] = Counter()
        self.scores: dict[str, float] = {}

    def partitions(self, topics: Collection[str]) -> list[Partition]:
        return [at for at in self.logs if at[0] in topics]

    def spans(self, partitions: Collection[Partition]) -> dict[Partition, Bounds]:
        return {at: Bounds(self.logs[at].low, self.logs[at].high) for at in partitions}

    def read(self, spans: Spans) -> Iterator[Read]:
        """Yield labels in a random order of their partitions."""
        for topic, number in self.chance.sample(list(spans), len(spans)):
            rows = self.logs[topic, number].between(*spans[topic, number])
            messages = [
                Message(topic=topic, partition=number, key=r.key, value=r.value, timestamp=(TIMESTAMP_CREATE_TIME, r.offset))
                for r in rows
            ]
            if rows:
                yield Read((topic, number), [r.offset for r in rows], messages)

    def answer(self, lane: int, several: bool) -> None:
        """Score a batch of events of a partition; failures come last, and a transaction marker ends each log."""
        chance, first_offset = self.chance, self.events[lane]
        self.events[lane] += (count := chance.randint(1, 12))
        failed = []
        for n in range(first_offset, first_offset + count):
            score, key = round(chance.random(), 3), f"k{chance.randrange(6)}".encode() if chance.random() < 0.9 else None
            self.scores[f"{lane}/{n}"] = score
            place = f'"source":{{"topic":"in","partition":{lane},"offset":{n}}},"id":"{lane}/{n}"'
            if chance.random() < 0.1:
                source = Position("r", "in", lane, n)
                facts: Any = {"reason": "missing-field", "error": "x", "model": f"m:1@{OLD.digest}", "arm": "champion"}
                self.logs[DEAD, lane].append(key, b"{}", dead_headers(None, source=source, at_ms=1, **facts))
            else:
                self.logs[SCORES, lane].append(key, record(OLD.digest, place, score, several))
            if chance.random() < 0.8:
                shadow_score = chance.choice([score, 1 - score, score / 2, None])
                if shadow_score is None:
                    failed.append((key, record(NEW.digest, place, None, several)))
                else:
                    self.logs[SHADOW, lane].append(key, record(NEW.digest, place, shadow_score, several))
        for key, value in failed:
            self.logs[SHADOW, lane].append(key, value)
        for topic in (SCORES, SHADOW, DEAD):
            self.logs[topic, lane].high += 1

    def copy_answer(self) -> None:
        """Write a copy of an answer with another key and another score to another partition, as no scorer does."""
        topic = self.chance.choice([SCORES, SHADOW])
        lane = self.chance.randrange(WIDTH)
        if records := self.logs[topic, lane].records:
            value = json.loads(self.chance.choice(records).value or b"") | {"decision": "other"}
            self.logs[topic, (lane + 1) % WIDTH].append(b"another", json.dumps(value, separators=(",", ":")).encode())

    def label(self) -> None:
        """Write labels of scored and of later events, among them newer, withdrawn and unusable labels."""
        for _ in range(self.chance.randint(1, 25)):
            lane = self.chance.randrange(WIDTH)
            id_ = f"{lane}/{self.chance.randrange(self.events[lane] + 5)}"
            outcome = self.chance.choice([0, 1, 1 if self.scores.get(id_, 0.0) > 0.5 else 0, None, 7, "maybe", [1]])
            value = None if self.chance.random() < 0.1 else json.dumps({"label": outcome}).encode()
            self.logs[LABELS, self.chance.randrange(WIDTH)].append(id_.encode(), value)

    def retain(self) -> None:
        """Remove the oldest records of a partition, or any record as compaction does."""
        log = self.logs[self.chance.choice(list(self.logs))]
        if self.chance.random() < 0.5:
            log.low = self.chance.randint(log.low, log.high)
        elif log.records:
            log.records.remove(self.chance.choice(log.records))


def record(digest: str, place: str, score: float | None, several: bool) -> bytes:
    """Return a score record; if the score has `several` outputs, one of them decides."""
    if score is None:
        return f'{{{place},"digest":"{digest}","status":"dead_lettered","score":null,"fallback":"missing-field"}}'.encode()
    score_text = f'{{"amount":7.5,"risk":{score}}}' if several else str(score)
    decision = "high" if score >= 0.5 else "low"
    return (
        f'{{{place},"digest":"{digest}","status":"scored","score":{score_text},"decision":"{decision}","event_ms":1}}'.encode()
    )


class Judge:
    """An analysis that reads the answers of a range in random portions."""

    def __init__(self, topics: Topics, settings: Settings, starts: Offsets, outputs: DecidedOutputs) -> None:
        self._topics, self._settings, self._starts = topics, settings, starts
        self.reached = dict(starts)
        self.records: Counter[Partition] = Counter()
        self.pairs = PairSums(settings, Story().rollout.rivals.contest, ALWAYS, outputs, labels=True)
        self.pairs.share_room(starts)

    def read(self, stops: Offsets, portions: int | None = None) -> None:
        """Read `portions` portions, or everything before the stops."""
        while portions != 0 and (unread := [at for at, stop in stops.items() if self.reached[at] < stop]):
            portions = None if portions is None else portions - 1
            parts = self._topics.chance.sample(unread, self._topics.chance.randint(1, len(unread)))
            self._take({at: min(stops[at], self.reached[at] + self._topics.chance.randint(1, 15)) for at in parts})
            if self._topics.chance.random() < 0.5:
                self.pairs.drop_unmatched(
                    self.reached, {at: log.high for at, log in self._topics.logs.items() if at in self.reached}
                )
            self.pairs.release_answers()

    def _take(self, ends: Offsets) -> None:
        rows: list[Record] = []
        partitions = []
        for at, end in ends.items():
            records = self._topics.logs[at].between(self.reached[at], end)
            places = np.arange(len(rows), len(rows) + len(records))
            if records:
                partitions.append(
                    PartitionRecords(at, places, np.array([kafka_record.offset for kafka_record in records], np.int64))
                )
            rows += records
            self.reached[at] = end
            self.records[at] += len(records)
        size = sum(len(kafka_record.value or b"") for kafka_record in rows)
        values, keys = [kafka_record.value for kafka_record in rows], [kafka_record.key for kafka_record in rows]
        self.pairs.add_records(FetchedRecords(values, keys, lambda at: [rows[n].headers for n in at], partitions, size))

    def labelled(self, until: Offsets | None = None) -> LabelledSums:
        assert self.pairs.labelled is not None
        return self.pairs.labelled.differences(cast("TopicReader", self._topics), self._settings, dict(self.reached), until)

    def judged(
        self, rollout: Rollout, sums: LabelledSums | None, stops: list[str], recorded: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        cells = {**self.pairs.paired_sums.cells, **({} if sums is None else {BRIER: sums.cells})}
        reasons = self.pairs.missing_reasons() | ({} if sums is None or not sums.reason else {BRIER: sums.reason})
        if recorded is not None:
            reasons = comparable_reasons(recorded, reasons)
        verdict = evaluate_sums(rollout.plan, self.pairs.paired_sums, cells, reasons, stops)
        read_ranges = {at: ReadRange(self._starts[at], end, self.records[at]) for at, end in self.reached.items()}
        if sums is not None:
            read_ranges |= {at: ReadRange(*bounds, sums.records.get(at, 0)) for at, bounds in sums.labels.items()}
        outputs = self.pairs.outputs.names
        return AnalysisReport(
            rollout.rivals, verdict, self.pairs.sample, self.pairs.dropped, read_ranges, 0.5, sums, outputs
        ).to_dict()


def decide(topics: Topics, settings: Settings, rollout: Rollout, find: Callable[[str], str | None]) -> LogEntry:
    """Decide like the controller while answers and labels are written: sums by label may be older than the other sums."""
    chance, labels = topics.chance, rollout.plan.rules.brier is not None
    judge = Judge(topics, settings, {at: topics.logs[at].low for at in ANSWER_PARTITIONS}, DecidedOutputs(find))
    sums = None
    for _ in range(chance.randint(1, 6)):
        for _ in range(chance.randint(0, 3)):
            topics.answer(chance.randrange(WIDTH), settings.name == "several")
        if chance.random() < 0.5:
            topics.label()
        judge.read({at: topics.logs[at].high for at in ANSWER_PARTITIONS}, chance.choice([1, 3, None]))
        if labels and (sums is None or chance.random() < 0.5):
            sums = judge.labelled()
    stops = ["baked for 1 s of 10", *rollout.plan.rules.margins().obstacles(judge.pairs.sample.drift()[0])]
    entry = LogEntry(rollout.id, rollout.seq, EntryKind.INTENDED, 1, "c", 0, obstacles=stops)
    judgement = judge.judged(rollout, sums, stops)
    return log_records.decode_entry(log_records.encode(replace(entry, judgement=judgement)))


def verify(topics: Topics, settings: Settings, rollout: Rollout, entry: LogEntry) -> tuple[list[str], list[str]]:
    """Repeat the decision; return the reasons why it cannot be verified, and the differences."""
    assert entry.judgement is not None
    basis = read_basis(rollout, entry)
    settings = basis.configured(settings)
    if reasons := removed_records(basis, topics.spans(list(basis.answers))):
        return reasons, []
    sums = None
    if basis.joined is not None:
        judge = repeat_analysis(topics, settings, basis, basis.joined)
        sums = judge.labelled(basis.labels)
        if reasons := missing_records(basis.label_records, sums.records, "labels"):
            return reasons, []
    judge = repeat_analysis(topics, settings, basis, {at: bounds.high for at, bounds in basis.answers.items()})
    if reasons := missing_records(basis.records, judge.records, "records"):
        return reasons, []
    stops = obstacles(rollout.plan, judge.pairs.sample, entry.obstacles)
    repeated = judge.judged(rollout, sums, stops, entry.judgement)
    differs = list(differences(entry.judgement, json.loads(json.dumps(repeated))))
    return (uncertainties(basis, entry.judgement, repeated, judge.pairs.scattered) if differs else []), differs


def repeat_analysis(topics: Topics, settings: Settings, basis: DecisionBasis, ends: Offsets) -> Judge:
    judge = Judge(
        topics,
        settings,
        {at: bounds.low for at, bounds in basis.answers.items()},
        DecidedOutputs(unknown_output, basis.outputs),
    )
    judge.read(ends)
    return judge


def unknown_output(_: str) -> str | None:
    """Return None: the registry no longer has the version."""
    return None


def names(_: str) -> str | None:
    return "risk"


def story(rules: Mapping[str, Any]) -> Story:
    return Story([{"shadow": "100%"}, {"promote": True}], rules=dict(rules)).moved(0, 8)


@pytest.mark.parametrize("name", ["one", "several"])
@pytest.mark.parametrize("kind", RULES)
@examples(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_a_decision_is_reproduced_regardless_of_later_records(kind: str, name: str, seed: int) -> None:
    """If records were removed, the reason is reported and nothing differs."""
    chance = Random(seed)
    topics, settings = Topics(chance), minimal(name=name, labels={"topic": LABELS}, dead_letter={"topic": DEAD})
    for _ in range(chance.randint(0, 4)):  # before the step
        topics.answer(chance.randrange(WIDTH), name == "several")
        topics.label()
    rollout = story(RULES[kind]).rollout
    entry = decide(topics, settings, rollout, names)
    for _ in range(chance.randint(0, 6)):
        topics.answer(chance.randrange(WIDTH), name == "several")
        topics.label()
    other_labels = {"topic": LABELS, "value": "other", "classes": ["a", "b"]}
    changed = minimal(name=name, labels=other_labels, dead_letter={"topic": DEAD})
    assert verify(topics, changed, rollout, entry) == ([], [])
    for _ in range(chance.randint(1, 3)):
        topics.retain()
    reasons, differs = verify(topics, changed, rollout, entry)
    assert not differs
    assert all("is based on" in line for line in reasons)


@examples(max_examples=50)
@given(seed=st.integers(0, 2**32))
def test_a_difference_due_to_copies_of_answers_in_other_partitions_names_them_as_the_reason(seed: int) -> None:
    topics, settings = Topics(Random(seed)), minimal(name="one", labels={"topic": LABELS}, dead_letter={"topic": DEAD})
    for _ in range(6):
        topics.answer(topics.chance.randrange(WIDTH), several=False)
        topics.copy_answer()
    rollout = story(RULES["flips"]).rollout
    reasons, differs = verify(topics, settings, rollout, decide(topics, settings, rollout, names))
    assert bool(reasons) == bool(differs)
    assert all("several partitions of one topic have answers to events of in[" in line for line in reasons)


def test_answers_in_another_partition_than_before_are_scattered() -> None:
    topics, settings = Topics(Random(3)), minimal(name="one", dead_letter={"topic": DEAD})
    topics.answer(0, several=False)
    topics.answer(1, several=False)
    ends = {at: topics.logs[at].high for at in ANSWER_PARTITIONS}
    judge = Judge(topics, settings, dict.fromkeys(ANSWER_PARTITIONS, 0), DecidedOutputs(names))
    judge.read(ends)
    assert judge.pairs.scattered == []
    topics.logs[SCORES, 1].append(b"another", topics.logs[SCORES, 0].records[0].value)
    judge.read({at: topics.logs[at].high for at in ANSWER_PARTITIONS})
    assert judge.pairs.scattered == [("in", 0)]


def test_an_entry_of_a_program_version_that_recorded_no_reasons_is_reproduced() -> None:
    topics, settings = Topics(Random(1)), minimal(labels={"topic": LABELS}, dead_letter={"topic": DEAD})
    rollout = story(RULES["errors"]).rollout
    entry = decide(topics, settings, rollout, names)
    assert entry.judgement is not None
    judge = Judge(topics, settings, dict.fromkeys(ANSWER_PARTITIONS, 0), DecidedOutputs(names))
    current = judge.judged(rollout, None, [])
    assert current["why"] == [
        f"{rule}: no pairs: no answer of a scorer was read; no answer of the shadow was read" for rule in ("errors", "flips")
    ]
    older = {**current, "rules": [{k: v for k, v in rule.items() if k != "reason"} for rule in current["rules"]]}
    older["why"] = ["errors: no pairs", "flips: no pairs"]
    assert list(differences(older, judge.judged(rollout, None, [], older))) == []
    assert list(differences(current, judge.judged(rollout, None, [], current))) == []


def test_the_reason_for_no_pairs_follows_from_the_answers_that_were_read() -> None:
    topics, settings = Topics(Random(1)), minimal(dead_letter={"topic": DEAD})
    judge = Judge(topics, settings, dict.fromkeys(ANSWER_PARTITIONS, 0), DecidedOutputs(names))

    def add(topic: str, event: int, digest: str) -> str | None:
        place = f'"source":{{"topic":"in","partition":0,"offset":{event}}},"id":"{event}"'
        topics.logs[topic, 0].append(b"k", record(digest, place, 0.7, several=False))
        judge.read({at: topics.logs[at].high for at in ANSWER_PARTITIONS})
        return judge.pairs.missing_reasons().get("errors")

    assert add(SCORES, 0, OLD.digest) == "no answer of the shadow was read"
    assert add(SHADOW, 1, NEW.digest) == "a scorer and the shadow have not answered the same event"
    assert add(SCORES, 1, NEW.digest) == "only pairs of other versions, or of expired events"
    topics.logs[SHADOW, 0].append(b"k", b"no score")
    judge.read({at: topics.logs[at].high for at in ANSWER_PARTITIONS})
    assert "; there are records that are not score records" in judge.pairs.missing_reasons()["flips"]
    assert add(SHADOW, 2, NEW.digest) is not None
    place = '"source":{"topic":"in","partition":0,"offset":2},"id":"2"'
    topics.logs[SCORES, 0].append(b"k", record(OLD.digest, place, None, several=False))
    judge.read({at: topics.logs[at].high for at in ANSWER_PARTITIONS})
    assert judge.pairs.missing_reasons() == {"flips": "in each pair, at least one version failed"}
    add(SHADOW, 3, NEW.digest)
    add(SCORES, 3, OLD.digest)
    assert judge.pairs.missing_reasons() == {}
