"""Who is older of two processes under one name, by the order of their first status records alone."""

from typing import Any

import msgspec
from confluent_kafka import Message

from scorer.observe.status import HEARTBEAT_SECONDS, SILENT_SECONDS, StatusReporter, Twins
from tests.unit.scorer.console.told import status


class Topic:
    """Keeps what is produced; each record is confirmed at the next poll."""

    def __init__(self) -> None:
        self.told: list[Message] = []
        self._due: list[Any] = []

    def produce(self, _: str, value: bytes, __: bytes, *, on_delivery: Any) -> None:
        self.told.append(Message("status", 0, len(self.told), None, value))
        self._due.append((on_delivery, self.told[-1]))

    def poll(self, _: float) -> None:
        due, self._due = self._due, []
        for confirmed, told in due:
            confirmed(None, told)

    flush = poll


def process(topic: Topic) -> tuple[Twins, StatusReporter]:
    twins = Twins()

    def current(state: str) -> Any:
        return status(state=state, instance=twins.instance, first=twins.first, counters={"recoveries": 0})

    return twins, StatusReporter(topic, "status", current, twins)  # type: ignore[arg-type]


def heard(topic: Topic, *listening: Twins) -> list[bool]:
    """Everything that was told so far, by everybody."""
    for told in topic.told:
        for twins in listening:
            twins.hear(told)
    return [twins.older for twins in listening]


def test_the_younger_of_two_hears_the_older() -> None:
    topic = Topic()
    (first, one), (second, two) = process(topic), process(topic)
    one.tick(0.0)
    two.tick(0.1)
    assert heard(topic, first, second) == [False, False]  # nothing yet that was told after the younger one had begun
    one.tick(HEARTBEAT_SECONDS)
    two.tick(HEARTBEAT_SECONDS + 0.1)
    assert heard(topic, first, second) == [False, True]


def test_a_dead_predecessor_a_stopped_one_and_other_words_are_no_twins() -> None:
    topic = Topic()
    (_, dead), (second, two), (__, leaving) = process(topic), process(topic), process(topic)
    dead.tick(0.0)
    leaving.tick(0.0)
    two.tick(20.0)
    leaving.close()
    topic.told.append(Message("status", 0, len(topic.told), None, b"no status"))
    two.tick(30.0)
    assert heard(topic, second) == [False]


def test_one_that_was_frozen_comes_back_as_the_youngest() -> None:
    topic = Topic()
    (frozen, one), (second, two) = process(topic), process(topic)
    thawed = HEARTBEAT_SECONDS + SILENT_SECONDS + 1.0
    one.tick(0.0)
    one.tick(HEARTBEAT_SECONDS)
    two.tick(thawed - 1.0)
    for beat in range(3):
        one.tick(thawed + beat * HEARTBEAT_SECONDS)
        two.tick(thawed + beat * HEARTBEAT_SECONDS)
    assert heard(topic, frozen, second) == [True, False]
    assert msgspec.json.decode(topic.told[-1].value() or b"")["first"] == 2
