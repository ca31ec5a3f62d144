"""The reading state of each assigned partition, as one table of states and transitions. No Kafka calls.

`next_state` is the transition; it is pure, and defined for every state and every event. The consumer turns changes of
`pause_reasons` into calls of its client. Offsets are not part of the state: see assignment.py, which holds the positions of
exactly the partitions with `has_position`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, NamedTuple

from publisher.kafka.partitions import Partition

Hold = Literal["backend unavailable", "revision"]
"""Why the worker holds a partition: model servers are unavailable, or a newer revision has scored the partition."""

PauseReason = Literal[Hold, "no leader", "suspect", "out of range"]
"""Why the client does not fetch a partition. Each reason holds until its cause is removed."""


class Stage(Enum):
    """How far a partition is between its assignment and a fetch."""

    NO_LEADER = "no leader"
    """Assigned, but its start offset is unknown because it has no leader."""
    START_DUE = "start due"
    """It has a leader now: the next rewind determines its start offset."""
    FETCHING = "fetching"
    """Its fetched events count."""
    REWIND_DUE = "rewind due"
    """Its fetched events are dropped until the next rewind has returned it to the committed offset."""


class SandboxUse(Enum):
    """Whether the sandbox reads a partition instead of the client."""

    UNUSED = "unused"
    DUE = "due"
    """The client cannot decode the next batch. The events before it are in flight; then the sandbox continues behind them."""
    ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class Leaderless:
    """No broker leads the partition. The client reads it again once it has a leader."""


@dataclass(frozen=True, slots=True)
class PositionOutOfRange:
    """The position is not in the log. `reason` is a sentence with the remedy."""

    reason: str


class Signal(Enum):
    """The events without data."""

    INVALIDATED = "invalidated"
    """Fetched events do not count: they may be of two assignments, of a recreated topic, or the seek was rejected."""
    LEADER_FOUND = "leader found"
    LEADER_LOST = "leader lost"
    REWOUND = "rewound"
    """A position was determined, from which the client reads next."""
    START_UNKNOWN = "start unknown"
    """A rewind found no position, because the partition has no leader."""
    MOVED = "moved"
    """The group's position was moved into the log."""
    SUSPECTED = "suspected"
    """The last owner died or had not passed a suspect batch: the sandbox reads the partition from its start."""
    UNDECODABLE = "undecodable"
    """The client cannot decode the next batch."""
    SANDBOX_STARTED = "sandbox started"
    """The sandbox continues behind the events in flight."""
    SANDBOX_PASSED = "sandbox passed"
    """The client can read the partition again."""


@dataclass(frozen=True, slots=True)
class Held:
    """The worker holds the partition for this reason."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class Released:
    """This reason of the worker no longer applies."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class LeftRange:
    """The position is not in the log. `reason` is a sentence with the remedy."""

    reason: str


@dataclass(frozen=True, slots=True)
class Doubted:
    """The client reported a failure without an offset while it was at this position; see `is_doubtful`."""

    position: int


Event = Signal | Held | Released | LeftRange | Doubted

STAGES: Mapping[Signal, Mapping[Stage, Stage]] = {
    Signal.INVALIDATED: {Stage.FETCHING: Stage.REWIND_DUE},
    Signal.LEADER_FOUND: {Stage.NO_LEADER: Stage.START_DUE},
    Signal.REWOUND: dict.fromkeys(Stage, Stage.FETCHING),
    Signal.START_UNKNOWN: dict.fromkeys(Stage, Stage.NO_LEADER),
}
"""The next stage by signal. Other signals, and stages that are not listed, keep the stage."""

SANDBOXES: Mapping[Signal, Mapping[SandboxUse, SandboxUse]] = {
    Signal.REWOUND: {SandboxUse.DUE: SandboxUse.ACTIVE},
    Signal.START_UNKNOWN: {SandboxUse.DUE: SandboxUse.ACTIVE},
    Signal.SUSPECTED: dict.fromkeys(SandboxUse, SandboxUse.ACTIVE),
    Signal.UNDECODABLE: {SandboxUse.UNUSED: SandboxUse.DUE},
    Signal.SANDBOX_STARTED: {SandboxUse.DUE: SandboxUse.ACTIVE},
    Signal.SANDBOX_PASSED: dict.fromkeys(SandboxUse, SandboxUse.UNUSED),
}
"""The next use of the sandbox by signal. Other signals, and uses that are not listed, keep it."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of one assigned partition.

    Attributes:
        stage: how far the partition is between its assignment and a fetch.
        sandbox: whether the sandbox reads the partition.
        unavailable: why the partition cannot be read, if so. Of two reasons, out of range is kept: it needs an operator.
        holds: why the worker holds the partition.
        doubted: the position at the last failure without an offset.
    """

    stage: Stage
    sandbox: SandboxUse = SandboxUse.UNUSED
    unavailable: Leaderless | PositionOutOfRange | None = None
    holds: frozenset[Hold] = frozenset()
    doubted: int | None = None

    @property
    def has_position(self) -> bool:
        """Whether the position is known from which the partition is read."""
        return self.stage in (Stage.FETCHING, Stage.REWIND_DUE)

    @property
    def pause_reasons(self) -> frozenset[PauseReason]:
        """Why the client must not fetch the partition; empty if it fetches."""
        reasons: set[PauseReason] = {*self.holds}
        if not self.has_position:
            reasons.add("no leader")
        if self.sandbox is not SandboxUse.UNUSED:
            reasons.add("suspect")
        if isinstance(self.unavailable, PositionOutOfRange):
            reasons.add("out of range")
        return frozenset(reasons)

    def is_doubtful(self, failed: int | None, position: int) -> bool:
        """Return whether an out-of-range error at `failed` may concern an earlier position than the current one.

        After the truncation of a log the client does not report the offset (`failed` is None or negative). Such an error is
        doubtful once per position; the caller records it as `Doubted`.
        """
        if failed is not None and failed >= 0:
            return failed != position
        return self.doubted != position


def next_state(state: PartitionState, event: Event) -> PartitionState:
    """Return the state after an event; the same object if the event changes nothing."""
    match event:
        case Held(hold):
            return state if hold in state.holds else replace(state, holds=state.holds | {hold})
        case Released(hold):
            return replace(state, holds=state.holds - {hold}) if hold in state.holds else state
        case Doubted(position):
            return replace(state, doubted=position)
        case LeftRange(reason):
            applies = state.has_position and not isinstance(state.unavailable, PositionOutOfRange)
            return replace(state, unavailable=PositionOutOfRange(reason)) if applies else state
        case Signal.UNDECODABLE if not state.has_position:
            return state
    after = replace(
        state,
        stage=STAGES.get(event, {}).get(state.stage, state.stage),
        sandbox=SANDBOXES.get(event, {}).get(state.sandbox, state.sandbox),
        unavailable=_next_unavailable(state.unavailable, event),
    )
    return state if after == state else after


def _next_unavailable(
    unavailable: Leaderless | PositionOutOfRange | None, signal: Signal
) -> Leaderless | PositionOutOfRange | None:
    match signal, unavailable:
        case Signal.LEADER_LOST, None:
            return Leaderless()
        case Signal.LEADER_FOUND, Leaderless():
            return None
        case ((Signal.MOVED | Signal.START_UNKNOWN), PositionOutOfRange()):
            return None
    return unavailable


class PauseChange(NamedTuple):
    """The calls of the client that follow from a change of states: the partitions to pause, and those to resume."""

    pause: list[Partition]
    resume: list[Partition]


class PartitionTable:
    """The states of the partitions of one consumer, owned by its thread. A partition that is not assigned has no state.

    Attributes:
        due: the partitions that the next rewind must include. A set beside the states, so that a batch does not scan them.
        sandbox_due: the partitions that the sandbox must continue once a batch is taken.
    """

    def __init__(self) -> None:
        self.due: set[Partition] = set()
        self.sandbox_due: set[Partition] = set()
        self._states: dict[Partition, PartitionState] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def state(self, partition: Partition) -> PartitionState | None:
        """Return the state of a partition; None if it is not assigned."""
        return self._states.get(partition)

    def assign(self, partitions: Iterable[Partition], stage: Stage) -> PauseChange:
        """Add assigned partitions."""
        change = PauseChange([], [])
        for partition in partitions:
            self._put(partition, PartitionState(stage))
            if self._states[partition].pause_reasons:
                change.pause.append(partition)
        return change

    def apply(self, partitions: Iterable[Partition], event: Event) -> PauseChange:
        """Apply an event to these partitions. Those that are not assigned are ignored."""
        change = PauseChange([], [])
        for partition in partitions:
            before = self._states.get(partition)
            if before is None:
                continue
            after = next_state(before, event)
            if after is before:
                continue
            self._put(partition, after)
            reasons_before = before.pause_reasons
            reasons_after = after.pause_reasons
            if reasons_after - reasons_before:
                change.pause.append(partition)
            elif reasons_before and not reasons_after:
                change.resume.append(partition)
        return change

    def remove(self, partitions: Iterable[Partition]) -> PauseChange:
        """Remove revoked or lost partitions. Those that were paused are resumed, for their next assignment."""
        change = PauseChange([], [])
        for partition in partitions:
            state = self._states.pop(partition, None)
            self.due.discard(partition)
            self.sandbox_due.discard(partition)
            if state is not None and state.pause_reasons:
                change.resume.append(partition)
        return change

    def paused(self) -> set[Partition]:
        """Return the partitions that the client must not fetch."""
        return {partition for partition, state in self._states.items() if state.pause_reasons}

    def leaderless(self) -> set[Partition]:
        """Return the partitions whose only reason to be unavailable is the missing leader."""
        return {partition for partition, state in self._states.items() if isinstance(state.unavailable, Leaderless)}

    def out_of_range(self) -> set[Partition]:
        """Return the partitions whose position is not in the log."""
        return {partition for partition, state in self._states.items() if isinstance(state.unavailable, PositionOutOfRange)}

    def unavailable_reasons(self) -> dict[Partition, str]:
        """Return why partitions cannot be read, as a sentence for each."""
        reasons = {}
        for partition, state in self._states.items():
            match state.unavailable:
                case PositionOutOfRange(reason):
                    reasons[partition] = reason
                case Leaderless():
                    reasons[partition] = "{}[{}] has no leader: none of its brokers is available".format(*partition)
        return reasons

    def _put(self, partition: Partition, state: PartitionState) -> None:
        self._states[partition] = state
        _set_member(self.due, partition, member=state.stage in (Stage.START_DUE, Stage.REWIND_DUE))
        _set_member(self.sandbox_due, partition, member=state.sandbox is SandboxUse.DUE)


def _set_member(members: set[Partition], partition: Partition, *, member: bool) -> None:
    if member:
        members.add(partition)
    else:
        members.discard(partition)
