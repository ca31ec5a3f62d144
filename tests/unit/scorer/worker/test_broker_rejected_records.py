"""Records that the broker always rejects: only their events become dead letters, however the broker reports them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal, cast

import numpy as np
import pytest
from confluent_kafka import TopicPartition
from hypothesis import example, given
from hypothesis import strategies as st

from publisher.errors import Aborted, Fatal, RecordRejected
from publisher.runtime.context import Context
from publisher.transactions.session import Record, Session
from scorer.consumer.assignment import AssignedPartitions
from scorer.consumer.consumer import EventConsumer
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.consumer.start_offsets import StartPosition
from scorer.decoding.batch import Batch, UnreadableRange
from scorer.features.record_builder import FeatureRecords
from scorer.worker.batch_metrics import PendingBatch
from scorer.worker.broker_rejected_records import LONGEST_KEY, RejectedBatchPublisher
from scorer.worker.encode import TargetTopic
from scorer.worker.score_batch import BatchScorer, ScoredBatch
from tests.unit.scorer.consumer.group import TOPIC
from tests.unit.scorer.worker.looped import SETTINGS

SWAP: Record = (SETTINGS.swaps_topic, b"swap", None, -1, 1, None)
Reporting = Literal["each", "invalid", "alike", "nothing"]
"""The report of a broker about rejected records: each record; each record of a partition unless one or all are rejected;
only their partitions; nothing."""


class Broker:
    """A broker that rejects a publish with a rejected record, and then requires a recovery."""

    def __init__(self, is_rejected: Callable[[Record], bool], reporting: Reporting = "each") -> None:
        self.accepted: list[Record] = []
        self.tried: list[Record] = []
        self.positions: dict[int, int] = {}
        self._is_rejected, self._reporting, self._broken = is_rejected, reporting, False

    def recover(self) -> None:
        self._broken = False

    def publish(self, records: Sequence[Record], offsets: Sequence[TopicPartition], _: Any) -> None:
        assert not self._broken, "a publish after a rejection without a recovery"
        self.tried += records
        if rejected_records := [record for record in records if self._is_rejected(record)]:
            self._broken = True
            raise self._refusal(records, rejected_records)
        self.accepted += records
        for position in offsets:
            assert position.offset > self.positions.get(position.partition, 0), "a position decreased"
            self.positions[position.partition] = position.offset

    def _refusal(self, records: Sequence[Record], rejected_records: list[Record]) -> RecordRejected:
        if self._reporting in ("each", "nothing"):
            return RecordRejected(
                "no", rejected_records if self._reporting == "each" else [], certain=self._reporting == "each"
            )
        places = {(record[0], record[3]) for record in rejected_records}
        lanes = {place: [record for record in records if (record[0], record[3]) == place] for place in places}
        in_same_partitions = [record for lane in lanes.values() for record in lane]
        if self._reporting == "alike":
            return RecordRejected("no", in_same_partitions)
        distinguished = [
            r
            for lane in lanes.values()
            if 1 < sum(map(self._is_rejected, lane)) < len(lane)
            for r in lane
            if self._is_rejected(r)
        ]
        return RecordRejected("no", distinguished or in_same_partitions, certain=bool(distinguished), one_or_all=True)


def publish_batch(
    broker: Broker,
    places: Sequence[int],
    slots: list[Record | None],
    keys: Sequence[bytes | None],
    unreadable: Mapping[int, UnreadableRange] | None = None,
    context: Context | None = None,
    features: Mapping[int, Record] | None = None,
) -> PendingBatch:
    """Return a batch of events of these partitions, and its records. `features` are its feature records by row."""
    count = len(slots)
    offsets = list(range(100, 100 + count))
    values: list[bytes | None] = [b"event %d" % row for row in range(count)]
    batch = Batch([TOPIC] * count, list(places), offsets, list(keys), values, [1_000] * count, [[("h", b"v")]] * count)
    batch.leader_epochs = dict.fromkeys(batch.reached)
    batch.unreadable = unreadable or {}
    servable: Any = SimpleNamespace(label="m:1")
    logged = dict(features or {})
    parts = [FeatureRecords(np.array(list(logged), np.intp), list(logged.values()))] if logged else []
    scored = ScoredBatch(slots, outcomes=Counter(scored=count), features=parts)
    pending = PendingBatch(batch, scored, servable, OffsetMetadata("n.a"), "", 0.0, 0.0, version_changes=[SWAP])
    partitions = AssignedPartitions()
    partitions.assign(StartPosition("position", TopicPartition(TOPIC, number, 0), OffsetMetadata()) for number in set(places))
    intake = SimpleNamespace(partitions=partitions, group="metadata")
    scoring = BatchScorer(SETTINGS, TargetTopic("out", 3, 1_000_000), TargetTopic("dead", 2, 1_000_000))
    rejected = RejectedBatchPublisher(cast(EventConsumer, intake), cast(Session, broker), scoring, context or Context())
    try:
        first_records = [*pending.scored.records, *logged.values(), *pending.version_changes]
        broker.publish(first_records, partitions.offsets(batch, pending.metadata), intake.group)
    except RecordRejected as error:
        pending = replace(pending, scored=rejected.publish(pending, error))
    return pending


@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=24),
    reporting=st.sampled_from(["each", "invalid", "alike", "nothing"]),
)
def test_only_rejected_events_become_dead_letters_however_they_are_reported(
    rows: list[tuple[int, bool]], reporting: Reporting
) -> None:
    broker = Broker(lambda record: record[0] == "out" and (record[1] or b"").startswith(b"bad"), reporting)
    slots: list[Record | None] = [
        ("out", b"%s %d" % (b"bad" if is_rejected else b"score", row), None, place, 1_000, None)
        for row, (place, is_rejected) in enumerate(rows)
    ]
    pending = publish_batch(broker, [place for place, _ in rows], slots, [None] * len(rows))
    accepted = [record for record in broker.accepted if record != SWAP]
    expected = [
        ("dead", b"event %d" % row) if is_rejected else ("out", b"score %d" % row) for row, (_, is_rejected) in enumerate(rows)
    ]
    assert [record[:2] for record in accepted] == expected
    assert broker.accepted.count(SWAP) == 1
    assert broker.positions == {place: 101 + row for row, (place, _) in enumerate(rows)}
    rejected_count = sum(is_rejected for _, is_rejected in rows)
    assert +pending.scored.outcomes == +Counter(scored=len(rows) - rejected_count, dead=rejected_count)
    assert +pending.scored.reasons == +Counter({"record-refused": rejected_count})


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 2), st.booleans(), st.sampled_from([b"inputs", b"bad", None])), min_size=1, max_size=20
    ),
    reporting=st.sampled_from(["each", "invalid", "alike", "nothing"]),
)
@example(rows=[(0, True, b"bad"), (0, False, None)], reporting="invalid")
def test_a_rejected_feature_record_is_left_out_and_only_a_rejected_score_is_a_dead_letter(
    rows: list[tuple[int, bool, bytes | None]], reporting: Reporting
) -> None:
    """Each row has the partition, whether the broker rejects the score, and the feature record if there is one."""
    broker = Broker(lambda record: (record[1] or b"").startswith(b"bad"), reporting)
    slots: list[Record | None] = [
        ("out", b"%s %d" % (b"bad" if is_rejected else b"score", row), None, place, 1_000, None)
        for row, (place, is_rejected, _) in enumerate(rows)
    ]
    features: dict[int, Record] = {
        row: ("log", b"%s %d" % (inputs, row), None, place, 1_000, None)
        for row, (place, _, inputs) in enumerate(rows)
        if inputs is not None
    }
    pending = publish_batch(broker, [place for place, *_ in rows], slots, [None] * len(rows), features=features)
    accepted = [record[:2] for record in broker.accepted if record[0] in ("out", "dead")]
    assert accepted == [
        ("dead", b"event %d" % row) if is_rejected else ("out", b"score %d" % row)
        for row, (_, is_rejected, _) in enumerate(rows)
    ]
    logged = [record[1] for record in broker.accepted if record[0] == "log"]
    assert logged == [b"inputs %d" % row for row, (_, score, inputs) in enumerate(rows) if not score and inputs == b"inputs"]
    assert broker.accepted.count(SWAP) == 1
    dropped = pending.scored.dropped_features["record-refused"]
    refused_alone = sum(inputs == b"bad" and not score for _, score, inputs in rows)
    assert refused_alone <= dropped <= len(features) - len(logged)


def test_a_rejected_dead_letter_loses_its_time_and_then_the_content_of_the_event() -> None:
    letter = ("dead", b"event 0", b"k", 0, 1_000, [("h", b"v"), ("dead.reason", b"not-json"), ("dead.error", b"e")])
    letter[5].extend([("dead.source", b"/flights/0/100"), ("dead.model", b"m:1"), ("dead.at", b"1")])
    broker = Broker(lambda record: record != SWAP and (record[4] != 0 or record[1] is not None))
    pending = publish_batch(broker, [0], [cast(Record, letter)], [b"k"])
    assert [(record[1], record[4]) for record in broker.tried if record != SWAP] == [
        (b"event 0", 1_000),
        (b"event 0", 0),
        (None, 0),
    ]
    smallest = next(record for record in broker.accepted if record != SWAP)
    headers = dict(smallest[5] or ())
    assert (smallest[2], "h" in headers, headers["dead.reason"]) == (b"k", False, b"record-refused")
    assert b"the complete dead letter cannot be written: no; not-json: e" in (headers["dead.error"] or b"")
    assert +pending.scored.reasons == {"record-refused": 1}


def test_a_stop_ends_the_publishing_in_parts_after_a_part_with_its_positions() -> None:
    broker = Broker(lambda record: record[1] == b"bad", "nothing")
    slots: list[Record | None] = [("out", b"bad" if row == 7 else b"score", None, 0, 1_000, None) for row in range(8)]

    def stop_after_a_part() -> None:
        if broker.positions:
            raise Aborted("a stop was requested")

    with pytest.raises(Aborted):
        publish_batch(broker, [0] * 8, slots, [None] * 8, context=Context(raise_if_cancelled=stop_after_a_part))
    scores = [record for record in broker.accepted if record != SWAP]
    assert 0 < len(scores) < len(slots)
    assert broker.positions == {0: 100 + len(scores)}


def test_the_smallest_dead_letter_of_an_unreadable_batch_keeps_its_first_offset() -> None:
    dead_letter_headers: list[tuple[str, str | bytes | None]] = [("dead.reason", b"unreadable-batch"), ("dead.error", b"e")]
    dead_letter_headers += [("dead.source", b"/flights/0/100"), ("dead.first", b"90")]
    letter: Record = ("dead", None, b"k", 0, 1_000, [("dead.first", b"3"), *dead_letter_headers])
    broker = Broker(lambda record: record != SWAP and (record[4] != 0 or ("dead.first", b"3") in (record[5] or ())))
    publish_batch(broker, [0], [letter], [b"k"], {0: UnreadableRange(90, "e")})
    smallest = next(record for record in broker.accepted if record != SWAP)
    assert [value for name, value in smallest[5] or () if name == "dead.first"] == [b"90"]


def test_the_smallest_dead_letter_has_the_position_in_place_of_a_long_key() -> None:
    broker = Broker(lambda record: record != SWAP and record[1] is not None)
    publish_batch(broker, [0], [("out", b"bad", b"k", 0, 1_000, None)], [b"k" * (LONGEST_KEY + 1)])
    assert [record[:3] for record in broker.accepted if record != SWAP] == [("dead", None, b"local/flights/0/100")]


def test_a_rejection_of_the_smallest_dead_letter_ends_the_worker() -> None:
    with pytest.raises(Fatal, match="topic dead rejects even a dead letter without the event"):
        publish_batch(Broker(lambda record: record != SWAP), [0], [("out", b"bad", None, 0, 1_000, None)], [None])


def test_a_rejected_record_that_belongs_to_no_event_is_not_searched_for() -> None:
    with pytest.raises(RecordRejected):
        publish_batch(Broker(lambda record: record == SWAP), [0], [("out", b"score", None, 0, 1_000, None)], [None])
