"""A session without a consumer group: its producers commit a proof before its other ids are used again."""

from collections.abc import Callable
from typing import Literal

import pytest
from confluent_kafka import KafkaError

from publisher.errors import Aborted, RecordFailed
from publisher.runtime.context import Clock, Context
from publisher.transactions.exactly_once import SLOW_COMMIT_SECONDS, TransactionSession
from publisher.transactions.transactional_ids import transactional_ids
from tests.unit.publisher.transactions.scripted import Log, ScriptedProducer

IDS = transactional_ids("app/lane/0")[:2]
UNFIT = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, txn_requires_abort=True)


class Lane:
    """A session that copies. Its commits have the outcomes `commits` in order; later ones repeat the last outcome."""

    def __init__(self, *commits: Literal["ok", "slow", "unfit"]) -> None:
        self.log = Log()
        self._commits = list(commits)
        self.session = TransactionSession(
            lambda name: ScriptedProducer(name, self.log, self._fails),  # type: ignore[arg-type, return-value]
            IDS,
            transaction_seconds=0.0,
            ownership_record=lambda: ("positions", b"proof", b"key", -1, 0, None),
            context=Context(Clock(monotonic=lambda: self.log.now)),
        )
        self.session.open()

    def _fails(self, at: str) -> tuple[KafkaError, bool] | None:
        if at != "commit":
            return None
        outcome = self._commits.pop(0) if len(self._commits) > 1 else self._commits[0]
        self.log.now += SLOW_COMMIT_SECONDS if outcome == "slow" else 0.0
        return (UNFIT, False) if outcome == "unfit" else None

    def copy(self) -> None:
        def write(produce: Callable[..., None]) -> bool:
            produce("scores", b"copy")
            return True

        assert self.session.write(write)


def test_all_producers_prove_that_the_session_owns_their_ids() -> None:
    lane = Lane("ok")
    assert lane.log.visible == [b"proof"] * 2
    assert not lane.session.write(lambda _: False)
    lane.session.close()


def test_the_other_producer_commits_before_a_successor_is_used() -> None:
    lane = Lane("ok", "ok", "slow", "ok")
    for _ in range(2):
        lane.copy()
    assert lane.log.visible[2:] == [b"copy", b"proof", b"copy"]
    assert lane.session.counters.commits == 2
    lane.session.close()


def test_a_slow_proof_replaces_the_producer_and_the_next_copy_proves_its_successor() -> None:
    lane = Lane("ok", "ok", "slow", "slow", "ok")
    first, second = (lane.log.live[name] for name in IDS)
    for _ in range(3):
        lane.copy()
    assert lane.log.visible[2:] == [b"copy", b"proof", b"copy", b"copy"]
    assert lane.log.live[IDS[0]] is not first
    assert lane.log.live[IDS[1]] is not second
    lane.session.close()


def test_copies_continue_although_every_commit_is_slow() -> None:
    lane = Lane("slow")
    for _ in range(6):
        lane.copy()
    assert lane.log.visible.count(b"copy") == 6
    lane.session.close()


def test_a_session_that_replaced_all_producers_in_turn_ends() -> None:
    """After a slow proof and a refused record, no commit has proved that the session still owns any of the ids."""
    lane = Lane("ok", "ok", "slow", "slow", "unfit", "ok")
    lane.copy()
    with pytest.raises(RecordFailed):
        lane.copy()
    lane.session.recover()
    with pytest.raises(Aborted, match="all producers were replaced"):
        lane.copy()
    lane.session.close()


def test_a_proof_that_is_refused_ends_the_session() -> None:
    lane = Lane("ok", "ok", "slow", "unfit", "ok")
    lane.copy()
    with pytest.raises(Aborted, match="ownership check") as ended:
        lane.copy()
    assert not isinstance(ended.value, RecordFailed)
    with pytest.raises(Aborted, match="outcome of the last transaction is unknown"):
        lane.session.recover()
    lane.session.close()
