"""Dead letters that are read for a replay: the original event, with the id that it would have had."""

from typing import Any

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from publisher.kafka.source_position import Position
from scorer.dead_letters.headers import dead_headers, dead_letter_facts, original_headers
from scorer.decoding.event_id import event_id
from scorer.decoding.headers import HeaderValues
from scorer.decoding.json.decoder import JsonIdReader
from scorer.replay.read_dead_letter import NotReplayable, check_target, read_dead_letter

Headers = list[tuple[str, str | bytes | None]]
SOURCE = Position("eu", "events", 2, 77)
NO_ID = JsonIdReader(None)
NOW_MS = 10_000


def dead(original: Headers, source: Position = SOURCE, **changes: Any) -> Headers:
    facts: dict[str, Any] = {"reason": "wrong-type", "error": "why", "model": "m:1@d", "at_ms": 1_000, "arm": "champion"}
    return dead_headers(original, source=source, **{**facts, **changes})


def letter(headers: Headers, value: bytes | None = b"{}", ids: JsonIdReader = NO_ID) -> Any:
    return read_dead_letter(Message("events.dead", 0, 5, b"key", value, headers), ids, NOW_MS)


headers_ = st.lists(
    st.tuples(st.sampled_from(["trace", "ce_id", "dead.reason", "dead.source", "x-origin"]), st.binary(max_size=5)), max_size=8
)


@given(headers_)
def test_any_original_headers_are_restored(original: Headers) -> None:
    assert original_headers(dead(original)) == original
    assert dead_letter_facts(dead(original))["source"] == str(SOURCE)
    assert dead_letter_facts(dead(dead(original), source=SOURCE._replace(offset=9)))["source"].endswith("/9")


def test_the_event_returns_to_its_partition_with_its_id() -> None:
    replayable = letter(dead([("trace", b"t")]), b'{"id": "e1"}', JsonIdReader("id"))
    assert replayable.record == ("events", b'{"id": "e1"}', b"key", 2, 0, [("trace", b"t"), ("ce_id", b"e1")])
    assert (replayable.id, replayable.source, replayable.reason, replayable.at_ms) == ("e1", SOURCE, "wrong-type", 1_000)


@pytest.mark.parametrize(
    ("headers", "value", "field", "expected"),
    [
        ([("ce_id", b"named"), ("x-origin", b"us/e/0/1")], b'{"id": "e1"}', "id", "named"),
        ([("x-origin", b"us/e/0/1")], b'{"id": 17}', "id", "17"),
        ([("x-origin", b"us/e/0/1")], b'{"id": {}}', "id", "us/e/0/1"),
        ([("x-origin", b"us/e/0/1")], b'{"id": "e1"}', None, "us/e/0/1"),
        ([("x-origin", b"us/e/0/1"), ("x-copied-to", b"events/2")], b"{}", None, "us/e/0/1"),
        ([("x-origin", b"us/e/0/1"), ("x-copied-to", b"others/2")], b"{}", None, "eu/events/2/77"),
        ([], b'{"id": "e1"', "id", "eu/events/2/77"),
        ([], b"\xff", "id", "eu/events/2/77"),
        ([("ce_id", b"\xff")], b'{"id": "e1"}', None, "eu/events/2/77"),
        ([("ce_id", b""), ("ce_id", None)], b'{"id": "e1"}', "id", "e1"),
        ([], None, "id", "eu/events/2/77"),
        ([], b"[" * 100_000, "id", "eu/events/2/77"),
    ],
)
def test_the_id_is_that_of_the_scored_event(headers: Headers, value: bytes | None, field: str | None, expected: str) -> None:
    replayable = letter(dead(headers), value, JsonIdReader(field))
    assert replayable.id == expected
    names = [name for name, _ in replayable.record[5]]
    assert names.count("ce_id") == 1
    assert event_id(HeaderValues.from_headers(replayable.record[5]), None, "elsewhere", ("events", 2, 900)) == expected


def test_events_that_cannot_be_replayed_are_rejected() -> None:
    nowhere: Headers = [("dead.source", b"nowhere")]
    for headers in ([], nowhere):
        with pytest.raises(NotReplayable, match=r"dead\.source"):
            letter(headers)
    replayable = letter(dead([]), b"x" * 1_000)
    check_target(replayable, {"events": (3, 2_000)})
    for topics, message in (
        ({"other": (3, 2_000)}, "not an input topic"),
        ({"events": (2, 2_000)}, "2 part"),
        ({"events": (3, 1_000)}, "10"),
    ):
        with pytest.raises(NotReplayable, match=message):
            check_target(replayable, topics)


@pytest.mark.parametrize(
    ("deadline", "late"), [(b"9999", True), (b"10000", False), (b"90000", False), (b"soon", False), (None, False)]
)
def test_a_passed_deadline_is_removed(deadline: bytes | None, late: bool) -> None:
    deadline_headers: Headers = [] if deadline is None else [("deadline", deadline)]
    replayable = letter(dead([("trace", b"t"), *deadline_headers, ("ce_id", b"e1")]))
    assert replayable.late == late
    assert replayable.record[5] == [("trace", b"t"), *([] if late else deadline_headers), ("ce_id", b"e1")]
