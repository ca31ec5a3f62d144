"""The reading state of each assigned partition, as one table of states and transitions. No Kafka calls.

`next_state` is the transition function. It is pure, and defined for every state and every event. Offsets are not part of the
state: assignment.py has the positions.
"""

# If `pause_reasons` change, the consumer pauses or resumes the partition in its client.

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, NamedTuple

from publisher.kafka.partitions import Partition

Hold = Literal["unclaimed", "backend unavailable", "revision", "table"]
"""Why the worker pauses a partition.

- "unclaimed": the metadata of the committed offset does not name this scorer yet. The name must be there before events are
  fetched: if a batch then crashes this process, the next owner reads the partition in the sandbox.
- "backend unavailable": the model servers are unavailable.
- "revision": a newer revision of the model channel has scored the partition.
- "table": the rows of a feature table are being restored, or lag too much.
"""

PauseReason = Literal[Hold, "no leader", "suspect", "out of range"]
"""Why the client does not fetch a partition. The client fetches a partition only if no reason is left."""


class Stage(Enum):
    """The progress of a partition from its assignment to the fetch of its events."""

    NO_LEADER = "no leader"
    """The start offset is unknown because the partition has no leader."""
    START_DUE = "start due"
    """The partition has a leader again, so the next rewind determines the start offset."""
    FETCHING = "fetching"
    """Fetched events of the partition are scored."""
    REWIND_DUE = "rewind due"
    """Fetched events of the partition are dropped until the next rewind has returned it to the committed offset."""


class SandboxUse(Enum):
    """Whether a sandbox process reads a partition in place of the client."""

    UNUSED = "unused"
    DUE = "due"
    """The client cannot decode the next record batch. The next call of `take` starts the sandbox at this record batch."""
    ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class Leaderless:
    """No broker leads the partition. The client resumes by itself once the partition has a leader."""


@dataclass(frozen=True, slots=True)
class PositionOutOfRange:
    """The partition is unavailable, because its position is not in the log. `reason` is a sentence with the remedy."""

    reason: str


class Signal(Enum):
    """The events of the state machine that carry no data."""

    INVALIDATED = "invalidated"
    """Fetched events must be dropped: two assignments may be mixed, the topic was recreated, or the client rejected a seek."""
    LEADER_FOUND = "leader found"
    LEADER_LOST = "leader lost"
    REWOUND = "rewound"
    """A rewind determined the position from which the client reads next."""
    START_UNKNOWN = "start unknown"
    """A rewind found no position, because the partition has no leader. The worker must claim the partition again later."""
    MOVED = "moved"
    """The group's committed offset was moved, and the partition was rewound to the new offset."""
    SUSPECTED = "suspected"
    """The sandbox must read from the start position, because the last owner died or had not finished its sandbox reads."""
    UNDECODABLE = "undecodable"
    """The client cannot decode the next record batch."""
    SANDBOX_STARTED = "sandbox started"
    """The sandbox has started to read at the next offset."""
    SANDBOX_PASSED = "sandbox passed"
    """The partition no longer needs the sandbox, so the client reads the partition again."""


@dataclass(frozen=True, slots=True)
class Held:
    """Event: the worker pauses the partition, for the reason `hold`."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class Released:
    """Event: the worker no longer pauses the partition for the reason `hold`. Other reasons may remain."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class LeftRange:
    """Event: the client reports that the position is out of range. `reason` is a sentence with the remedy."""

    reason: str


@dataclass(frozen=True, slots=True)
class Doubted:
    """Event: the client reports an out-of-range error without an offset, while the partition is at this position."""

    position: int


Event = Signal | Held | Released | LeftRange | Doubted

STAGES: Mapping[Signal, Mapping[Stage, Stage]] = {
    Signal.INVALIDATED: {Stage.FETCHING: Stage.REWIND_DUE},
    Signal.LEADER_FOUND: {Stage.NO_LEADER: Stage.START_DUE},
    Signal.REWOUND: dict.fromkeys(Stage, Stage.FETCHING),
    Signal.START_UNKNOWN: dict.fromkeys(Stage, Stage.NO_LEADER),
}
"""The next stage, by signal and current stage. A signal or stage that is not listed leaves the stage unchanged."""

SANDBOXES: Mapping[Signal, Mapping[SandboxUse, SandboxUse]] = {
    Signal.REWOUND: {SandboxUse.DUE: SandboxUse.ACTIVE},
    Signal.START_UNKNOWN: {SandboxUse.DUE: SandboxUse.ACTIVE},
    Signal.SUSPECTED: dict.fromkeys(SandboxUse, SandboxUse.ACTIVE),
    Signal.UNDECODABLE: {SandboxUse.UNUSED: SandboxUse.DUE},
    Signal.SANDBOX_STARTED: {SandboxUse.DUE: SandboxUse.ACTIVE},
    Signal.SANDBOX_PASSED: dict.fromkeys(SandboxUse, SandboxUse.UNUSED),
}
"""The next use of the sandbox, by signal and current use. A signal or use that is not listed leaves the use unchanged."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The reading state of one assigned partition.

    Attributes:
        stage: the progress from the assignment to the fetch of events.
        sandbox: whether the sandbox reads the partition in place of the client.
        unavailable: why the partition cannot be read; None if it can. PositionOutOfRange takes precedence, because it needs an
            operator.
        holds: the reasons why the worker pauses the partition.
        doubted: the position at the last out-of-range error without an offset; None before the first such error.
    """

    stage: Stage
    sandbox: SandboxUse = SandboxUse.UNUSED
    unavailable: Leaderless | PositionOutOfRange | None = None
    holds: frozenset[Hold] = frozenset()
    doubted: int | None = None

    @property
    def has_position(self) -> bool:
        """Whether the position to read from is known."""
        return self.stage in (Stage.FETCHING, Stage.REWIND_DUE)

    @property
    def pause_reasons(self) -> frozenset[PauseReason]:
        """The reasons why the client must not fetch the partition; empty if the client fetches the partition."""
        reasons: set[PauseReason] = {*self.holds}
        if not self.has_position:
            reasons.add("no leader")
        if self.sandbox is not SandboxUse.UNUSED:
            reasons.add("suspect")
        if isinstance(self.unavailable, PositionOutOfRange):
            reasons.add("out of range")
        return frozenset(reasons)

    def is_doubtful(self, failed: int | None, position: int) -> bool:
        """Return whether an out-of-range error may be outdated. Such an error must not pause the partition.

        Args:
            failed: the offset in the error; None or negative if the error has none.
            position: the current position of the partition. An outdated error concerns an earlier position.
        """
        # An error without an offset follows the truncation of a log. The first one at a position is doubtful; the caller then
        # applies the event `Doubted`, so that a second one at the same position is not.
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
        holds=frozenset({"unclaimed"}) if event is Signal.START_UNKNOWN else state.holds,
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
    """The partitions that the client must pause, and the partitions that it must resume, after states have changed."""

    pause: list[Partition]
    resume: list[Partition]


class PartitionTable:
    """The reading states of the partitions that are assigned to one consumer, used by one thread.

    Attributes:
        due: the partitions that the next rewind must include.
        sandbox_due: the partitions that the next call of `EventConsumer.take` must move to the sandbox.
    """

    # Each change of a state updates `due`, so that no batch needs a scan of all states.

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
        """Add assigned partitions, paused until the worker commits its name as their owner.

        Returns:
            The partitions to pause in the client.
        """
        change = PauseChange([], [])
        for partition in partitions:
            self._put(partition, PartitionState(stage, holds=frozenset({"unclaimed"})))
            change.pause.append(partition)
        return change

    def apply(self, partitions: Iterable[Partition], event: Event) -> PauseChange:
        """Apply an event to these partitions; return the partitions that the client must pause and resume.

        Partitions that are not assigned are ignored.
        """
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
        """Remove revoked or lost partitions; return the partitions that the caller must resume in the client."""
        # The client would otherwise keep them paused after the next assignment.
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
        """Return the partitions that have no leader, except the partitions in `out_of_range`."""
        return {partition for partition, state in self._states.items() if isinstance(state.unavailable, Leaderless)}

    def out_of_range(self) -> set[Partition]:
        """Return the partitions whose position is not in the log."""
        return {partition for partition, state in self._states.items() if isinstance(state.unavailable, PositionOutOfRange)}

    def unavailable_reasons(self) -> dict[Partition, str]:
        """Return the reason, as a sentence, for each partition in `leaderless` or `out_of_range`."""
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
