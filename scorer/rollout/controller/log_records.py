"""What stands in the topic `<name>.rollouts` about rollouts, as records; compacted, so each has a key of its own.

`<rollout>/<seq>` is an entry of its log, `<rollout>/command/<n>` what a person has asked for, `<rollout>/state` how it stands.
"""

from enum import StrEnum
from typing import Any

import msgspec

from model_registry.untrusted_input.documents import DocumentDecoder, Int64, Unix
from publisher.kafka.partitions import Offsets

STATE, COMMAND = "state", "command"


class EntryKind(StrEnum):
    """`STARTED` by a person. `INTENDED` comes before a move of the channel, `MOVED` after it. `COMPARED` is the end of a
    comparison."""

    STARTED, COMPARED, INTENDED, MOVED, ENDED = "started", "compared", "intended", "moved", "ended"


class Outcome(StrEnum):
    """`REJECTED`: before anything was moved. `OVERTAKEN`: somebody else has moved the channel, and that holds."""

    COMPLETED, ROLLED_BACK, REJECTED, ABORTED, OVERTAKEN = "completed", "rolled back", "rejected", "aborted", "overtaken"


class Verb(StrEnum):
    """What a person may ask for."""

    PAUSE, RESUME, APPROVE, ABORT = "pause", "resume", "approve", "abort"


class LoggedVersion(msgspec.Struct, frozen=True):
    digest: str
    version: str


class LoggedOffset(msgspec.Struct, frozen=True):
    """An offset of a partition."""

    topic: str
    partition: Int64
    offset: Int64


class PlannedMove(msgspec.Struct, frozen=True, omit_defaults=True):
    """A move of the channel, which must be at the revision that it `expects`. With `restores` back to that revision; else to
    the version `to`, as a `canary` of so many percent or with a `shadow` beside it, where both score `pairs` percent of the
    keys."""

    expects: Int64
    to: str = ""
    digest: str | None = None
    canary: Int64 | None = None
    shadow: str | None = None
    pairs: Int64 = 0
    restores: Int64 | None = None


class LogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of a rollout's log. `step` counts the plan's steps from 0; `by` is who, `why` the reasons. `revision` is the
    channel's from there on, and `starts` where the answers begin that the step is judged by. `judgement` is what `scorer judge`
    tells, `comparison` what `scorer compare` does; `obstacles` kept a candidate from passing, whatever the rules said."""

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
    """How a rollout stands at `at_ms`, told every few seconds by the `controller`. `baked` is for how many seconds the step
    was watched, `seen` the Unix time of the last look at which that clock ran. `waits` is what is missing, a line each;
    `for_person` whether it is a person's word."""

    controller: str
    at_ms: Unix
    step: Int64
    baked: float = 0.0
    seen: float | None = None
    waits: list[str] = []
    for_person: bool = False
    judgement: dict[str, Any] | None = None


class OperatorCommand(msgspec.Struct, frozen=True):
    """What a person asks for, and of which step."""

    verb: Verb
    by: str
    reason: str
    at_ms: Unix
    step: Int64

    def __str__(self) -> str:
        done = {Verb.PAUSE: "paused", Verb.RESUME: "resumed", Verb.APPROVE: "approved", Verb.ABORT: "aborted"}[self.verb]
        return f"{self.by} {done} it" + (f": {self.reason}" if self.reason else "")


def to_logged(found: Offsets) -> list[LoggedOffset]:
    return [LoggedOffset(topic, partition, offset) for (topic, partition), offset in sorted(found.items())]


def from_logged(found: list[LoggedOffset]) -> Offsets:
    return {(place.topic, place.partition): place.offset for place in found}


encode = msgspec.json.encode
decode_entry = DocumentDecoder(LogEntry).decode
decode_status = DocumentDecoder(RolloutStatus).decode
decode_command = DocumentDecoder(OperatorCommand).decode
