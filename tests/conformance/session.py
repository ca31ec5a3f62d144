"""Behaviour of every session, whichever delivery it guarantees. A session's test class derives from `SessionConformance` and
creates the session on a scripted broker."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, TopicPartition

from publisher.errors import Aborted
from publisher.transactions.session import Session
from tests.unit.publisher.transactions.scripted import ERRORS, Fails, Log

CALLS = ("offsets", "commit", "produce", "deliver", "flush")
PLACE = ("events", 0)
OTHER = ("events", 1)


def record(number: int) -> tuple[str, bytes, None, int, int, None]:
    return "scores", b"%d" % number, None, 0, 0, None


def position(number: int, place: tuple[str, int] = PLACE) -> TopicPartition:
    return TopicPartition(*place, number + 1, f"mark {number}")


def firsts(visible: list[bytes]) -> list[bytes]:
    return list(dict.fromkeys(visible))


class Stage:
    """A session, the log of its scripted broker, and a function that delivers the pending answers."""

    def __init__(self, session: Session, log: Log, answer: Callable[[], None] = lambda: None) -> None:
        self.session, self.log, self.answer = session, log, answer

    def publish(self, number: int, place: tuple[str, int] = PLACE, *, overlap: bool = False) -> None:
        self.session.publish([record(number)], [position(number, place)], "metadata", overlap=overlap)

    def committed(self, place: tuple[str, int] = PLACE) -> int:
        return self.log.positions.get(place, (0, ""))[0]


class SessionConformance(ABC):
    """`stage(fails)` returns an open session; `exactly_once` states its guarantee."""

    exactly_once: bool

    @abstractmethod
    def stage(self, fails: Fails = lambda _: None) -> Stage: ...

    def test_after_a_checkpoint_everything_is_visible_in_order_and_committed_with_its_mark(self) -> None:
        at = self.stage()
        for number in range(10):
            at.publish(number)
            at.session.tick()
        at.session.checkpoint()
        assert at.log.visible == [b"%d" % n for n in range(10)]
        assert at.log.positions == {PLACE: (10, "mark 9")}
        assert at.session.counters.commits > 0
        at.session.close()

    def test_the_commit_interval_commits_pending_records(self) -> None:
        at = self.stage()
        at.publish(0)
        at.log.now += 1.5
        at.session.tick()
        at.answer()
        assert (at.log.visible, at.committed()) == ([b"0"], 1)
        at.session.close()

    def test_a_partition_that_is_released_is_committed_and_no_other_owner_is_overwritten(self) -> None:
        at = self.stage()
        at.publish(0)
        at.publish(1, OTHER)
        at.session.release([TopicPartition(*PLACE)], lost=False)
        assert at.committed() == 1
        at.log.positions[PLACE] = (99, "the next owner's")
        at.publish(2, OTHER)
        at.session.checkpoint()
        at.log.now += 5
        at.session.tick()
        at.answer()
        assert at.log.positions == {PLACE: (99, "the next owner's"), OTHER: (3, "mark 2")}
        at.session.close()

    def test_a_lost_partition_is_no_longer_committed(self) -> None:
        at = self.stage()
        at.publish(0)
        at.session.release([TopicPartition(*PLACE)], lost=True)
        at.log.positions[PLACE] = (99, "the next owner's")
        at.session.checkpoint()
        at.log.now += 5
        at.session.tick()
        at.answer()
        assert at.committed() == 99
        at.session.close()

    def test_an_overlapping_publish_is_reported_by_the_next_call(self) -> None:
        at = self.stage()
        for number in range(5):
            at.publish(number, overlap=True)
        at.session.wait_for_publish()
        at.session.wait_for_publish()
        at.publish(5, overlap=True)
        at.session.checkpoint()
        assert at.log.visible == [b"%d" % n for n in range(6)]
        assert at.log.positions == {PLACE: (6, "mark 5")}
        at.publish(6, overlap=True)
        at.session.wait_for_commit()
        at.session.release([TopicPartition(*PLACE)], lost=False)
        assert at.committed() == 7
        at.session.wait_for_publish()
        at.session.close()

    @pytest.mark.parametrize("applied", [False, True])
    @pytest.mark.parametrize("error", ERRORS, ids=lambda e: e.name())
    def test_a_failure_of_a_publish_that_overlapped_is_not_lost(self, error: KafkaError, applied: bool) -> None:
        broken = [True]
        at = self.stage(lambda call: (error, applied) if call == "commit" and broken[0] else None)
        at.publish(0, overlap=True)
        at.session.wait_for_commit()
        with pytest.raises(Aborted):
            at.session.checkpoint()
        broken[0] = False
        at.session.recover()
        for number in range(at.committed(), 3):
            at.publish(number, overlap=True)
        at.session.checkpoint()
        assert firsts(at.log.visible) == [b"0", b"1", b"2"]
        if self.exactly_once:
            assert at.log.visible == [b"0", b"1", b"2"]
        at.session.close()

    @pytest.mark.parametrize("applied", [False, True])
    @pytest.mark.parametrize("call", CALLS)
    @pytest.mark.parametrize("error", ERRORS, ids=lambda e: e.name())
    def test_after_a_failure_no_publish_succeeds_before_a_recovery(self, error: KafkaError, call: str, applied: bool) -> None:
        broken = [True]
        at = self.stage(lambda failing_call: (error, applied) if failing_call == call and broken[0] else None)
        try:
            at.publish(0)
            at.session.checkpoint()
        except Aborted:
            with pytest.raises((Aborted, RuntimeError)):
                at.publish(1)
            broken[0] = False
            at.session.release([TopicPartition(*PLACE)], lost=False)
            committed = at.committed()
            assert at.log.visible[:committed] == [b"0"][:committed]
            at.session.recover()
            assert at.session.counters.aborts == 1
        else:
            at.publish(1)
        for number in range(at.committed(), 3):
            at.publish(number)
        at.session.checkpoint()
        assert firsts(at.log.visible) == [b"0", b"1", b"2"]
        at.session.close()

    def test_closing_never_raises(self) -> None:
        at = self.stage(lambda call: (ERRORS[0], False) if call != "init" else None)
        with pytest.raises(Aborted):  # noqa: PT012 - either call may raise
            at.publish(0)
            at.session.checkpoint()
        at.session.close()


def every_batch_becomes_visible(kind: SessionConformance, seed: int, batches: int, *, records_fail: bool) -> None:
    """Publish batches, in the way of the worker loop, while random calls fail; with `records_fail`, single records fail too."""
    chance = random.Random(seed)

    def fails(at: str) -> tuple[KafkaError, bool] | None:
        if at == "init" or chance.random() > 0.1 or (at == "deliver" and not records_fail):
            return None
        return chance.choice(ERRORS), chance.random() < 0.5

    at = kind.stage(fails)
    number = 0
    while at.committed() < batches:
        at.log.now += chance.random()
        try:
            at.session.tick()
            if number < batches:
                at.publish(number, overlap=chance.random() < 0.5)
                number += 1
            elif chance.random() < 0.5:
                at.session.checkpoint()
        except Aborted:
            at.session.recover()
            number = at.committed()
        if chance.random() < 0.5:
            at.answer()
    expected = [b"%d" % n for n in range(batches)]
    assert set(at.log.visible) == set(expected)
    if not records_fail:
        assert firsts(at.log.visible) == expected
    if kind.exactly_once:
        assert at.log.visible == expected
    at.session.close()
