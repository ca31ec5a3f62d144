"""At-least-once delivery: when a checkpoint is committed, its waits, and the consequences of a failed one."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from publisher.errors import Aborted, NotAllowed
from publisher.runtime.context import Clock, Context
from publisher.transactions.at_least_once import (
    CHECKPOINT_SECONDS,
    UNCOMMITTED_SECONDS,
    CheckpointSession,
    UncommittedPositions,
)
from publisher.transactions.offset_commits import GroupCommits, OnCommit
from tests.unit.publisher.transactions.scripted import Fails, Log, ScriptedCommits, ScriptedQueue

REFUSED = KafkaError(KafkaError.NOT_COORDINATOR, retriable=True)


class Surroundings:
    """A session with scripted producers and commits."""

    def __init__(self, fails: Fails = lambda _: None, room: int = 1_000) -> None:
        self.log = Log()
        self.producers: list[ScriptedQueue] = []
        self.commits = ScriptedCommits(self.log, fails)

        def make(failed: Callable[..., None], _: bool) -> ScriptedQueue:
            self.producers.append(ScriptedQueue(self.log, fails, failed, room))
            return self.producers[-1]

        self.session = CheckpointSession(
            make,  # type: ignore[arg-type]
            self.commits,  # type: ignore[arg-type]
            confirm_seconds=10.0,
            context=Context(Clock(monotonic=lambda: self.log.now)),
        )

    def publish(self, *values: bytes, offset: int = 1) -> None:
        records = [("scores", value, None, 0, 0, None) for value in values]
        self.session.publish(records, [TopicPartition("events", 0, offset, "{}")], None)

    def later(self, seconds: float) -> None:
        self.log.now += seconds
        self.session.tick()


def test_a_checkpoint_is_committed_a_second_after_its_first_batch() -> None:
    at = Surroundings()
    at.later(100.0)
    at.publish(b"a")
    at.later(0.9)
    assert not at.commits.unanswered
    at.later(0.1)
    assert [p.offset for p in at.commits.unanswered[0][0]] == [1]
    assert at.log.visible == [b"a"]
    assert at.session.counters.commits == 0
    at.commits.answer()
    assert at.session.counters.commits == 1


def test_at_most_one_commit_is_in_flight_and_the_next_has_all_later_offsets() -> None:
    at = Surroundings()
    for offset in range(1, 6):
        at.publish(b"x", offset=offset)
        at.later(CHECKPOINT_SECONDS)
    assert [[p.offset for p in offsets] for offsets, *_ in at.commits.unanswered] == [[1]]
    at.commits.answer()
    at.later(0.0)
    at.commits.answer()
    assert at.log.committed == [1, 5]


def test_failed_commits_are_repeated_later_and_logged_once_as_is_their_end(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[tuple[KafkaError, bool]] = [(REFUSED, False)] * 5
    at = Surroundings(lambda call: failures.pop() if call == "commit" and failures else None)
    with caplog.at_level("INFO"):
        for offset in range(1, 9):
            at.publish(b"a", offset=offset)
            at.later(CHECKPOINT_SECONDS)
            at.commits.answer()
            at.later(0.0)
            assert not at.commits.unanswered
    assert at.log.committed == [6, 7, 8]
    messages = [record.getMessage() for record in caplog.records]
    assert [line.split(";")[0] for line in messages] == [
        "a checkpoint was not committed",
        "commits of checkpoints succeed again",
    ]


def test_a_session_aborts_if_positions_cannot_be_committed_for_long() -> None:
    at = Surroundings(lambda call: (REFUSED, False) if call == "commit" else None)
    at.publish(b"a")
    with pytest.raises(Aborted, match="could not be committed"):  # noqa: PT012 - at some tick
        for _ in range(2 * int(UNCOMMITTED_SECONDS)):
            at.later(CHECKPOINT_SECONDS)
            at.commits.answer()
    assert at.log.now <= UNCOMMITTED_SECONDS + 3 * CHECKPOINT_SECONDS


@pytest.mark.parametrize("arrives", [False, True])
def test_one_failed_record_prevents_the_commit_of_every_position_since_the_last_checkpoint(arrives: bool) -> None:
    failing = [False]
    error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    at = Surroundings(lambda call: (error, arrives) if call == "deliver" and failing[0] else None)
    at.publish(b"a", b"b", offset=2)
    at.session.checkpoint()
    failing[0] = True
    at.publish(b"c", offset=3)
    with pytest.raises(Aborted, match=r"scores\[0\]"):
        at.later(CHECKPOINT_SECONDS)
    at.session.release([TopicPartition("events", 0)], lost=False)
    assert at.log.committed == [2]
    at.session.recover()
    assert at.producers[0].purged
    assert len(at.producers) == 2


def test_partitions_are_released_although_a_right_to_write_is_missing() -> None:
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    at = Surroundings(lambda call: (error, False) if call == "deliver" else None)
    at.publish(b"a")
    at.session.release([TopicPartition("events", 0)], lost=False)
    assert at.log.committed == []
    with pytest.raises(NotAllowed, match="no right to Write on topic 'scores'"):
        at.session.tick()


def test_records_that_are_never_confirmed_abort_the_session() -> None:
    at = Surroundings(lambda call: (REFUSED, False) if call == "flush" else None)
    at.publish(b"a", b"b")
    with pytest.raises(Aborted, match="the broker did not confirm 2 records within 10 s"):
        at.session.checkpoint()
    assert at.log.committed == []


def test_a_full_queue_accepts_no_record_until_there_is_room() -> None:
    at = Surroundings(room=10)
    at.publish(*(b"%d" % n for n in range(100)))
    assert at.producers[0].largest == 10
    at.session.checkpoint()
    assert at.log.visible == [b"%d" % n for n in range(100)]


def test_an_answer_after_a_recovery_is_ignored() -> None:
    at = Surroundings()
    at.publish(b"a", offset=1)
    at.later(CHECKPOINT_SECONDS)
    at.session.recover()
    at.publish(b"b", offset=2)
    at.commits.answer()
    assert at.session.counters.commits == 0
    at.session.checkpoint()
    assert at.log.committed[-1] == 2


class ScriptedConsumer:
    """Only commits; the test calls `on_commit`."""

    def __init__(self, on_commit: OnCommit) -> None:
        self.on_commit = on_commit
        self.sent: list[list[TopicPartition]] = []
        self.refuses: KafkaError | None = None

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition] | None:
        if self.refuses is not None:
            raise KafkaException(self.refuses)
        self.sent.append(offsets)
        return None if asynchronous else offsets


def test_the_outcome_of_a_commit_is_passed_to_its_callback() -> None:
    commits = GroupCommits(ScriptedConsumer)  # type: ignore[arg-type]
    consumer: ScriptedConsumer = commits.consumer  # type: ignore[assignment]
    outcomes: list[tuple[str, KafkaError | None]] = []
    first, second = [TopicPartition("e", 0, 1)], [TopicPartition("e", 0, 2)]
    commits.begin(first, lambda error: outcomes.append(("first", error)))
    commits.begin(second, lambda error: outcomes.append(("second", error)))
    consumer.on_commit(None, [TopicPartition("e", 0, 2)])
    consumer.on_commit(REFUSED, [TopicPartition("e", 0, 1)])
    consumer.on_commit(None, [TopicPartition("e", 0, 7)])
    consumer.refuses = REFUSED
    commits.begin(first, lambda error: outcomes.append(("third", error)))
    assert outcomes == [("second", None), ("first", REFUSED), ("third", REFUSED)]


offsets = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 100)), max_size=4)


@given(st.lists(st.one_of(offsets, st.sampled_from(["begin", "committed", "refused"]))))
def test_no_position_is_forgotten(moves: list[object]) -> None:
    positions = UncommittedPositions()
    newest: dict[int, int] = {}
    committed: dict[int, int] = {}
    committing: dict[int, int] = {}
    for now, move in enumerate(moves):
        if isinstance(move, list):
            positions.publish([TopicPartition("e", p, offset) for p, offset in move], now)
            newest |= dict(move)
        elif move == "begin" and not positions.committing:
            committing = {p: position.offset for (_, p), position in positions.begin(now).items()}
        elif move in ("committed", "refused"):
            committed |= committing if move == "committed" else {}
            positions.record_commit_outcome(committed=move == "committed")
            committing = {}
        pending = {p: position.offset for (_, p), position in positions.pending().items()}
        assert committed | pending == newest
