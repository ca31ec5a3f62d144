"""Which partitions are not read."""

from unittest.mock import create_autospec

from confluent_kafka import Consumer

from scorer.intake.member import Pauses


def test_a_partition_is_read_again_when_no_reason_is_left() -> None:
    paused: set[int] = set()
    consumer = create_autospec(Consumer, instance=True)
    consumer.pause.side_effect = lambda which: paused.update(p.partition for p in which)
    consumer.resume.side_effect = lambda which: paused.difference_update(p.partition for p in which)
    pauses = Pauses(consumer)
    first, second = ("flights", 0), ("flights", 1)
    pauses.pause([first, second], "away")
    pauses.pause([first], "revision")
    pauses.resume([first, second], "away")
    assert paused == {0}
    pauses.resume([second], "revision")
    assert pauses.partitions == {first}
    pauses.resume([first], "revision")
    assert paused == set()
    pauses.pause([first], "out of range")
    pauses.forget([first])
    assert paused == set()
