"""Rollouts built from their records, for tests."""

from typing import Any

from scorer.rollout.controller import log_records
from scorer.rollout.controller.log_records import (
    EntryKind,
    LogEntry,
    LoggedVersion,
    OperatorCommand,
    PlannedMove,
    RolloutStatus,
    Verb,
)
from scorer.rollout.controller.rollout_state import Rollout, RolloutLog

OLD, NEW = LoggedVersion("sha256:" + "a" * 64, "1.0.0"), LoggedVersion("sha256:" + "b" * 64, "2.0.0")
BASE = 7
STEPS: list[dict[str, Any]] = [
    {"compare": {"last": "1h"}},
    {"shadow": "20%", "bake": "10s"},
    {"canary": "5%", "bake": "10s", "approve": True},
    {"promote": True, "watch": "10s"},
]


class Story:
    """A rollout log with a rollout to which records are added."""

    def __init__(
        self, steps: list[dict[str, Any]] = STEPS, name: str = "r", ledger: RolloutLog | None = None, **plan: Any
    ) -> None:
        self.ledger = ledger or RolloutLog()
        self.name = name
        self._seq = -1
        self.entry(
            EntryKind.STARTED, plan={"candidate": "2.0.0", "steps": steps, **plan}, champion=OLD, candidate=NEW, revision=BASE
        )

    @property
    def rollout(self) -> Rollout:
        return self.ledger.rollouts[self.name]

    def entry(self, kind: EntryKind, step: int = -1, **fields: Any) -> "Story":
        self._seq += 1
        entry = LogEntry(self.name, self._seq, kind, 1_000 * self._seq, "controller", step, **fields)
        self.ledger.apply(f"{self.name}/{self._seq}".encode(), log_records.encode(entry))
        return self

    def moved(self, step: int, revision: int) -> "Story":
        """Add an intended move and its completion."""
        self.entry(EntryKind.INTENDED, step, move=PlannedMove(revision - 1, "2.0.0"), revision=revision - 1)
        return self.entry(EntryKind.MOVED, step, revision=revision)

    def command(self, verb: Verb, step: int | None = None) -> "Story":
        command = OperatorCommand(verb, "ann", "because", 1, self.rollout.step if step is None else step)
        self.ledger.apply(f"{self.name}/command/{verb}-{step}".encode(), log_records.encode(command))
        return self

    def state(self, **fields: Any) -> "Story":
        status = RolloutStatus("controller", 1, self.rollout.step, **fields)
        self.ledger.apply(f"{self.name}/state".encode(), log_records.encode(status))
        return self
