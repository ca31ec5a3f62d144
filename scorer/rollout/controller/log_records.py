"""The records in the topic `<name>.rollouts`. The topic is compacted, so each record has its own key.

The key `<rollout>/<seq>` belongs to an entry of the rollout's log, `<rollout>/command/<n>` to an operator's command, and
`<rollout>/state` to the rollout's status.
"""

from enum import StrEnum
from typing import Any

import msgspec

from model_registry.untrusted_input.json_documents import DocumentDecoder, Int64, Unix
from publisher.kafka.partitions import Offsets

STATE = "state"
COMMAND = "command"


class EntryKind(StrEnum):
    """The kinds of entries in a rollout's log.

    STARTED is the operator's start, COMPARED has the result of the comparison, INTENDED comes before a move of the channel,
    MOVED after it, and ENDED has the outcome.
    """

    STARTED = "started"
    COMPARED = "compared"
    INTENDED = "intended"
    MOVED = "moved"
    ENDED = "ended"


class Outcome(StrEnum):
    """The outcome of a rollout.

    `REJECTED`: the candidate failed before the channel was moved. `OVERTAKEN`: another process moved the channel.
    """

    COMPLETED = "completed"
    ROLLED_BACK = "rolled back"
    REJECTED = "rejected"
    ABORTED = "aborted"
    OVERTAKEN = "overtaken"


class Verb(StrEnum):
    """The commands that an operator can send to a rollout."""

    PAUSE = "pause"
    RESUME = "resume"
    APPROVE = "approve"
    ABORT = "abort"


class LoggedVersion(msgspec.Struct, frozen=True):
    """The digest and the tag of a version in the log."""

    digest: str
    version: str


class LoggedOffset(msgspec.Struct, frozen=True):
    """An offset of a partition."""

    topic: str
    partition: Int64
    offset: Int64


class PlannedMove(msgspec.Struct, frozen=True, omit_defaults=True):
    """A planned move of the channel to other versions.

    Attributes:
        expects: The revision that the channel must have before the move.
        to: The canary after the move if `canary` is set, otherwise the champion after the move; empty for a rollback.
        canary: The percentage of keys that `to` answers as the canary; None if `to` is no canary.
        shadow: The version that scores as a shadow; None for no shadow.
        pairs: The percentage of keys whose events both versions score; 0 if the setting `shadow.share` applies.
        restores: The revision to roll back to; None if the move is no rollback.
    """

    expects: Int64
    to: str = ""
    digest: str | None = None
    canary: Int64 | None = None
    shadow: str | None = None
    pairs: Int64 = 0
    restores: Int64 | None = None


class LogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a rollout's log.

    Attributes:
        rollout: The id of the rollout.
        seq: The number of the entry, from 0.
        step: The index of the plan's step, from 0.
        by: The name of the operator or controller that wrote the entry.
        why: The reasons for the entry, one line each.
        revision: The channel's revision from this entry on.
        starts: The offsets from which the analysis of the step reads scores and other answers.
        judgement: The report of the analysis, in the format of `scorer judge`; None without an analysis.
        comparison: The report of `scorer compare`; None without a comparison.
        obstacles: The reasons why the candidate cannot pass yet, even if it passes all rules.
    """

    rollout: str
    seq: Int64
    kind: EntryKind
    at_ms: Unix
    by: str
    step: Int64 = -1
    why: list[str] = []
    plan: dict[str, Any] | None = None
    champion: LoggedVersion | None = None
    candidate: LoggedVersion | None = None
    revision: Int64 = 0
    move: PlannedMove | None = None
    verdict: str = ""
    starts: list[LoggedOffset] = []
    obstacles: list[str] = []
    judgement: dict[str, Any] | None = None
    comparison: dict[str, Any] | None = None
    outcome: Outcome | None = None


class RolloutStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """The status of a rollout at `at_ms`, published by the controller every few seconds.

    Attributes:
        baked: The bake time of the current step so far, in seconds.
        seen: The Unix time of the last observation in seconds; None if the bake clock did not run at the last observation.
        waits: The reasons why the rollout waits, one line each.
        for_person: Whether the rollout waits for an operator.
    """

    controller: str
    at_ms: Unix
    step: Int64
    baked: float = 0.0
    seen: float | None = None
    waits: list[str] = []
    for_person: bool = False
    judgement: dict[str, Any] | None = None


class OperatorCommand(msgspec.Struct, frozen=True):
    """An operator's command for one step of a rollout."""

    verb: Verb
    by: str
    reason: str
    at_ms: Unix
    step: Int64

    def __str__(self) -> str:
        verb = {Verb.PAUSE: "paused", Verb.RESUME: "resumed", Verb.APPROVE: "approved", Verb.ABORT: "aborted"}[self.verb]
        return f"{self.by} {verb} it" + (f": {self.reason}" if self.reason else "")


def to_logged(offsets: Offsets) -> list[LoggedOffset]:
    """Convert a mapping from partition to offset to the form of the log, sorted by partition."""
    return [LoggedOffset(topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())]


def from_logged(logged: list[LoggedOffset]) -> Offsets:
    """Convert logged offsets to a mapping from partition to offset."""
    return {(item.topic, item.partition): item.offset for item in logged}


encode = msgspec.json.encode
decode_entry = DocumentDecoder(LogEntry).decode
decode_status = DocumentDecoder(RolloutStatus).decode
decode_command = DocumentDecoder(OperatorCommand).decode
