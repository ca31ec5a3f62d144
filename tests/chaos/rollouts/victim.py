"""`python -m tests.chaos.rollouts.victim CONFIG POINT NTH REPLICA`: `scorer rollout run` that kills itself at a point of
its move NTH. The product has no such switch."""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from model_registry.stores.oci_layout import LayoutStore
from publisher.transactions.exactly_once import TransactionSession
from scorer.rollout.controller import leadership_term, process
from scorer.rollout.controller.apply_move import apply_move as CARRY_OUT  # noqa: N812 - beside the others
from scorer.rollout.controller.log_records import EntryKind
from scorer.settings import load
from tests.chaos.rollouts.plan import AFTER_INTENT, AFTER_MOVE, AFTER_OUTCOME, BEFORE_INTENT, IN_INTENT, IN_MOVE

FLUSH_SECONDS = 5.0
LEADER_TERM = leadership_term.LeaderTerm
INTEND, WRITE, MOVE_TAGS = LEADER_TERM._intend, LEADER_TERM._write, LayoutStore.move_tags


def main(arguments: Sequence[str]) -> None:
    config, point, nth, replica = arguments
    arm(point, int(nth))
    flags = [f"replica={replica}", "rollout.listen=127.0.0.1:0"]
    process.run(load(Path(config), flags).settings, Path(config), flags)


def arm(point: str, nth: int) -> None:
    """Let this process end as by `kill -9` when it reaches the point for the time `nth`."""
    flags = iter([False] * (nth - 1) + [True])

    def now() -> bool:
        return next(flags, False)

    makers: Mapping[str, Callable[[Callable[[], bool]], tuple[Any, str, Any]]] = {
        BEFORE_INTENT: _before_intent,
        IN_INTENT: _in_intent,
        AFTER_INTENT: _after_intent,
        IN_MOVE: _in_move,
        AFTER_MOVE: _after_move,
        AFTER_OUTCOME: _after_outcome,
    }
    setattr(*makers[point](now))


def _before_intent(now: Callable[[], bool]) -> tuple[Any, str, Any]:
    def intend(self: Any, *arguments: Any) -> None:
        if now():
            die()
        INTEND(self, *arguments)

    return LEADER_TERM, "_intend", intend


def _in_intent(now: Callable[[], bool]) -> tuple[Any, str, Any]:
    """Die after the broker has the record, with an open transaction."""

    def commit(_: Any, producer: Any, *_more: Any) -> None:
        producer.flush(FLUSH_SECONDS)
        die()

    def write(self: Any, *entries: Any) -> None:
        if entries[0].kind is EntryKind.INTENDED and now():
            setattr(TransactionSession, "_commit", commit)  # noqa: B010 - the product has no such switch
        WRITE(self, *entries)

    return LEADER_TERM, "_write", write


def _after_intent(now: Callable[[], bool]) -> tuple[Any, str, Any]:
    def apply_move(*arguments: Any) -> Any:
        if now():
            die()
        return CARRY_OUT(*arguments)

    return leadership_term, "apply_move", apply_move


def _in_move(now: Callable[[], bool]) -> tuple[Any, str, Any]:
    """Die after the entry of the history is written and before the channel's tag, as in a registry without atomic moves."""

    def move_tags(self: Any, to: Mapping[str, Any], *, expect: Mapping[str, str | None]) -> None:
        if now():
            entry = {tag: target for tag, target in to.items() if tag.startswith("_h.")}
            MOVE_TAGS(self, entry, expect=expect)
            die()
        MOVE_TAGS(self, to, expect=expect)

    return LayoutStore, "move_tags", move_tags


def _after_move(now: Callable[[], bool]) -> tuple[Any, str, Any]:
    def apply_move(*arguments: Any) -> Any:
        move = CARRY_OUT(*arguments)
        if now():
            die()
        return move

    return leadership_term, "apply_move", apply_move


def _after_outcome(now: Callable[[], bool]) -> tuple[Any, str, Any]:
    def write(self: Any, *entries: Any) -> None:
        WRITE(self, *entries)
        if any(entry.kind is EntryKind.MOVED for entry in entries) and now():
            die()

    return LEADER_TERM, "_write", write


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
