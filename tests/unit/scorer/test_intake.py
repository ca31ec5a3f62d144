"""What a batch stops at, by what the client has to give."""

from unittest.mock import MagicMock, create_autospec

import pytest
from confluent_kafka import Consumer, Message

from scorer.batching import BATCH_BYTES
from scorer.beginnings import Beginnings
from scorer.events.batch import End
from scorer.intake import Intake


def message(offset: int, size: int = 2) -> Message:
    """An event of so many bytes."""
    return Message(topic="flights", partition=0, offset=offset, key=None, value=b"x" * size, timestamp=(1, 1_000), headers=None)


@pytest.mark.parametrize(
    ("there", "asked", "size", "end", "taken"),
    [
        (3, 10, 2, "empty", 3),
        (10, 10, 2, "events", 10),
        (1, 1, 2, "events", 1),
        (8, 10, BATCH_BYTES // 4, "bytes", 4),
        (1, 10, BATCH_BYTES, "bytes", 1),
    ],
)
def test_a_batch_says_what_it_stopped_at(there: int, asked: int, size: int, end: End, taken: int) -> None:
    waiting = [message(offset, size) for offset in range(there)]
    consumer = create_autospec(Consumer, instance=True)
    consumer.poll.side_effect = lambda _: waiting.pop(0)
    consumer.consume.side_effect = lambda most, _: [waiting.pop(0) for _ in range(min(most, len(waiting)))]
    beginnings = create_autospec(Beginnings, instance=True)
    beginnings.made_again.return_value = set()
    intake = Intake(consumer, ["flights"], beginnings, MagicMock(), MagicMock(), MagicMock())
    intake.epochs = {("flights", 0): 1}
    batch = intake.take(1.0, lambda _: asked)
    assert batch is not None
    assert (batch.end, len(batch)) == (end, taken)
