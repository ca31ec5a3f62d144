"""The encoding stage: records of answered rows, their topic and partition, and records that are too large."""

from collections.abc import Sequence
from typing import Any, cast

from scorer.dead_letters.reasons import Reason
from scorer.decoding.batch import Batch
from scorer.scores.answer import BatchAnswers
from scorer.scores.record import RecordEncoder
from scorer.settings import Settings
from scorer.topics import RECORD_OVERHEAD
from scorer.worker.encode import Answers, EncodedRows, TargetTopic, encode
from scorer.worker.read_headers import BatchHeaders


class ScoreAsValue:
    """An encoder whose record is `id:score`, followed by the carried fields."""

    def encode(self, ids: Sequence[str], scores: Sequence[bytes], *arguments: Any) -> list[bytes]:
        carried: Sequence[Any] = arguments[-1] or [()] * len(ids)
        return [
            f"{name}:".encode() + score + b"".join(fields or ())
            for name, score, fields in zip(ids, scores, carried, strict=True)
        ]

    def headers(
        self, names: Sequence[str], ids: Sequence[str], decisions: Sequence[str | None], status: str
    ) -> list[list[tuple[str, bytes]]]:
        return [
            [(name, f"{event_id}/{decision}/{status}".encode()) for name in names]
            for event_id, decision in zip(ids, decisions, strict=True)
        ]


def settings(headers: Sequence[str] = ()) -> Settings:
    return Settings.model_validate(
        {
            "name": "n",
            "kafka": {"bootstrap_servers": "b"},
            "model": {"source": "oci:./r/m"},
            "replica": "a",
            "input": {"topics": ["in"]},
            "output": {"topic": "out", "headers": list(headers)},
            "dead_letter": {"topic": "dead"},
        }
    )


def batch(keys: Sequence[bytes | None], partitions: Sequence[int], carried: Any = None) -> Batch:
    count = len(keys)
    events = Batch(
        ["in"] * count, list(partitions), list(range(count)), list(keys), [b"v"] * count, [7] * count, [None] * count
    )
    events.carried = carried
    return events


def encoded(events: Batch, answers: Answers, target: TargetTopic, headers: Sequence[str] = ()) -> EncodedRows:
    encoder = cast(RecordEncoder, ScoreAsValue())
    return encode(events, BatchHeaders(), answers, encoder, settings(headers), target, 9)


def answers_of(rows: list[int], scores: Sequence[bytes], carried: Any = None) -> Answers:
    return Answers(rows, BatchAnswers("scored", scores, ["yes"] * len(rows)), [f"e{row}" for row in rows], carried)


def test_records_of_some_rows_have_the_key_time_and_partition_of_their_events() -> None:
    events = batch([b"a", None, b"c"], [0, 4, 5])
    result = encoded(events, answers_of([0, 2], [b"1", b"2"]), TargetTopic("out", 3, 10_000))
    assert [tuple(record[:5]) for record in result.records] == [("out", b"e0:1", b"a", 0, 7), ("out", b"e2:2", b"c", 2, 7)]
    assert (list(result.rows), result.status, result.rejected) == ([0, 2], "scored", {})


def test_a_record_that_is_too_large_for_the_topic_rejects_only_its_row() -> None:
    events = batch([None] * 3, [0] * 3)
    result = encoded(events, answers_of([0, 1, 2], [b"1", b"2" * 60, b"3"]), TargetTopic("out", 1, RECORD_OVERHEAD + 50))
    assert (list(result.rows), [record[1] for record in result.records]) == ([0, 2], [b"e0:1", b"e2:3"])
    assert {row: poison.reason for row, poison in result.rejected.items()} == {1: Reason.SCORE_OVERSIZE}
    assert "63 bytes without its key" in str(result.rejected[1])


def test_the_key_counts_towards_the_limit() -> None:
    events = batch([b"k" * 48, b"k"], [0, 0])
    result = encoded(events, answers_of([0, 1], [b"1", b"2"]), TargetTopic("out", 1, RECORD_OVERHEAD + 50))
    assert list(result.rejected) == [0]


def test_carried_fields_are_left_out_of_a_record_that_they_make_too_large() -> None:
    events = batch([None, None], [0, 0])
    answers = answers_of([0, 1], [b"1", b"2"], [(b"x" * 60,), (b"y",)])
    result = encoded(events, answers, TargetTopic("out", 1, RECORD_OVERHEAD + 50))
    assert [record[1] for record in result.records] == [b"e0:1", b"e1:2y"]
    assert result.rejected == {}


def test_configured_headers_precede_the_headers_that_a_relay_carries_over() -> None:
    events = batch([None], [0], carried=[[("origin", b"us")]])
    result = encoded(events, answers_of([0], [b"1"]), TargetTopic("out", 1, 10_000), headers=["id"])
    assert result.records[0][5] == [("id", b"e0/yes/scored"), ("origin", b"us")]


def test_a_target_is_never_widened_and_has_no_negative_room() -> None:
    target = TargetTopic("out", 4, 10)
    assert [target.reduced_to(TargetTopic("out", count, 10)).partitions for count in (2, 4, 8)] == [2, 4, 4]
    assert target.room == 0
