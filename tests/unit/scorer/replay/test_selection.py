"""The selection of dead letters to replay."""

from publisher.kafka.source_position import Position
from publisher.runtime.time_range import TimeRange
from publisher.transactions.session import Record
from scorer.replay.read_dead_letter import ReplayableDeadLetter
from scorer.replay.selection import DeadLetterSelection


def test_dead_letters_are_selected_by_reason_and_time() -> None:
    source = Position("eu", "events", 2, 77)
    record: Record = ("events", b"v", None, 2, 0, [])
    dead_letter = ReplayableDeadLetter("e1", source, "wrong-type", at_ms=1_000, record=record, size=1, late=False)
    assert DeadLetterSelection().includes(dead_letter)
    assert DeadLetterSelection(["wrong-type"], TimeRange(1_000, 1_001)).includes(dead_letter)
    assert not DeadLetterSelection(["oversize"]).includes(dead_letter)
    assert not DeadLetterSelection(window=TimeRange(1_001)).includes(dead_letter)
    assert not DeadLetterSelection(window=TimeRange(None, 1_000)).includes(dead_letter)
