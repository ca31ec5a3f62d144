"""The table of partition states: every state with every event, and the calls of the client that follow."""

from itertools import product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.kafka.partitions import Partition
from scorer.consumer.partition_table import (
    Doubted,
    Event,
    Held,
    Hold,
    Leaderless,
    LeftRange,
    PartitionState,
    PartitionTable,
    PauseChange,
    PositionOutOfRange,
    Released,
    SandboxUse,
    Signal,
    Stage,
    next_state,
)

P = ("flights", 0)
HOLDS: tuple[Hold, ...] = get_args(Hold)
EVENTS: list[Event] = [*Signal, *map(Held, HOLDS), *map(Released, HOLDS), LeftRange("deleted"), Doubted(7)]
STATES = [
    PartitionState(stage, sandbox, unavailable, frozenset(holds), doubted)
    for stage, sandbox, unavailable, holds, doubted in product(
        Stage,
        SandboxUse,
        (None, Leaderless(), PositionOutOfRange("expired")),
        ((), HOLDS[:1], HOLDS[1:], HOLDS),
        (None, 5),
    )
]

STAGES = """
signal          | no leader | start due  | fetching   | rewind due
invalidated     | no leader | start due  | rewind due | rewind due
leader found    | start due | start due  | fetching   | rewind due
leader lost     | no leader | start due  | fetching   | rewind due
rewound         | fetching  | fetching   | fetching   | fetching
start unknown   | no leader | no leader  | no leader  | no leader
moved           | no leader | start due  | fetching   | rewind due
suspected       | no leader | start due  | fetching   | rewind due
undecodable     | no leader | start due  | fetching   | rewind due
sandbox started | no leader | start due  | fetching   | rewind due
sandbox passed  | no leader | start due  | fetching   | rewind due
"""

SANDBOXES = """
signal          | unused | due    | active
invalidated     | unused | due    | active
leader found    | unused | due    | active
leader lost     | unused | due    | active
rewound         | unused | active | active
start unknown   | unused | active | active
moved           | unused | due    | active
suspected       | active | active | active
undecodable     | due    | due    | active
sandbox started | unused | active | active
sandbox passed  | unused | unused | unused
"""

UNAVAILABLE = """
signal          | None       | Leaderless | PositionOutOfRange
invalidated     | None       | Leaderless | PositionOutOfRange
leader found    | None       | None       | PositionOutOfRange
leader lost     | Leaderless | Leaderless | PositionOutOfRange
rewound         | None       | Leaderless | PositionOutOfRange
start unknown   | None       | Leaderless | None
moved           | None       | Leaderless | None
suspected       | None       | Leaderless | PositionOutOfRange
undecodable     | None       | Leaderless | PositionOutOfRange
sandbox started | None       | Leaderless | PositionOutOfRange
sandbox passed  | None       | Leaderless | PositionOutOfRange
"""


def cell(table: str, signal: Signal, column: str) -> str:
    """Return one cell of a table above."""
    head, *rows = [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]
    (row,) = [row for row in rows if row[0] == signal.value]
    return row[head.index(column)]


def expected(state: PartitionState, event: Event) -> PartitionState:
    """Return the state after an event, by the tables above."""
    stage, sandbox, unavailable, holds, doubted = state.stage, state.sandbox, state.unavailable, state.holds, state.doubted
    positioned = stage.value in ("fetching", "rewind due")
    match event:
        case Held(hold):
            holds = holds | {hold}
        case Released(hold):
            holds = holds - {hold}
        case Doubted(position):
            doubted = position
        case LeftRange(reason):
            if positioned and not isinstance(unavailable, PositionOutOfRange):
                unavailable = PositionOutOfRange(reason)
        case Signal():
            stage = Stage(cell(STAGES, event, stage.value))
            if positioned or event is not Signal.UNDECODABLE:
                sandbox = SandboxUse(cell(SANDBOXES, event, sandbox.value))
            kind = cell(UNAVAILABLE, event, type(unavailable).__name__ if unavailable else "None")
            if event is Signal.START_UNKNOWN:
                holds = frozenset({"unclaimed"})
            unavailable = {"None": None, "Leaderless": Leaderless(), "PositionOutOfRange": unavailable}[kind]
    return PartitionState(stage, sandbox, unavailable, holds, doubted)


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_every_state_has_its_next_state(event: Event) -> None:
    for state in STATES:
        after = next_state(state, event)
        assert after == expected(state, event), state
        assert (after is state) == (after == state) or isinstance(event, Doubted), state


@pytest.mark.parametrize("stage", Stage)
def test_a_partition_is_fetched_unless_a_reason_applies(stage: Stage) -> None:
    for state in STATES:
        if state.stage is not stage:
            continue
        reasons: set[str] = {*state.holds}
        reasons |= {"no leader"} if stage in (Stage.NO_LEADER, Stage.START_DUE) else set()
        reasons |= {"suspect"} if state.sandbox in (SandboxUse.DUE, SandboxUse.ACTIVE) else set()
        reasons |= {"out of range"} if state.unavailable == PositionOutOfRange("expired") else set()
        assert state.pause_reasons == reasons


def test_a_failure_without_an_offset_is_doubtful_once_per_position() -> None:
    state = PartitionState(Stage.FETCHING)
    assert state.is_doubtful(None, 5)
    state = next_state(state, Doubted(5))
    assert not state.is_doubtful(None, 5)
    assert not state.is_doubtful(-1, 5)
    assert state.is_doubtful(None, 6)


def test_a_failure_at_another_offset_is_always_doubtful() -> None:
    state = PartitionState(Stage.FETCHING, doubted=5)
    assert state.is_doubtful(4, 5)
    assert not state.is_doubtful(5, 5)


def test_a_partition_is_paused_by_each_new_reason_and_resumed_without_the_last() -> None:
    table = PartitionTable()
    assert table.assign([P], Stage.FETCHING) == PauseChange([P], [])
    assert table.apply([P], Released("unclaimed")) == PauseChange([], [P])
    assert table.apply([P], Held("revision")) == PauseChange([P], [])
    assert table.apply([P], Held("revision")) == PauseChange([], [])
    assert table.apply([P], LeftRange("deleted")) == PauseChange([P], [])
    assert table.apply([P], Released("revision")) == PauseChange([], [])
    assert table.apply([P], Signal.MOVED) == PauseChange([], [P])


def test_a_partition_without_a_leader_is_paused_at_once_and_resumed_when_it_is_removed() -> None:
    table = PartitionTable()
    assert table.assign([P], Stage.NO_LEADER) == PauseChange([P], [])
    assert table.remove([P, ("flights", 9)]) == PauseChange([], [P])
    assert list(table) == []


def test_an_event_of_a_partition_that_is_not_assigned_changes_nothing() -> None:
    table = PartitionTable()
    for event in EVENTS:
        assert table.apply([P], event) == PauseChange([], [])
    assert table.state(P) is None


def test_of_two_reasons_out_of_range_is_reported() -> None:
    table = PartitionTable()
    table.assign([P], Stage.FETCHING)
    table.apply([P], Signal.LEADER_LOST)
    assert table.unavailable_reasons() == {P: "flights[0] has no leader: none of its brokers is available"}
    table.apply([P], LeftRange("deleted"))
    table.apply([P], Signal.LEADER_LOST)
    assert (table.unavailable_reasons(), table.leaderless(), table.out_of_range()) == ({P: "deleted"}, set(), {P})


PARTITIONS = st.sampled_from([("flights", number) for number in range(3)])
STEPS = st.one_of(
    st.tuples(st.just("assign"), PARTITIONS, st.sampled_from([Stage.FETCHING, Stage.NO_LEADER])),
    st.tuples(st.just("remove"), PARTITIONS, st.none()),
    st.tuples(st.just("apply"), PARTITIONS, st.sampled_from(EVENTS)),
)


@given(st.lists(STEPS, max_size=60))
def test_the_indexes_and_the_pauses_of_the_client_agree_with_the_states(steps: list[tuple[str, Partition, object]]) -> None:
    table = PartitionTable()
    paused: set[Partition] = set()
    for step, partition, argument in steps:
        if step == "assign" and table.state(partition) is None:
            change = table.assign([partition], argument)  # type: ignore[arg-type]
        elif step == "remove":
            change = table.remove([partition])
        else:
            change = table.apply([partition], argument) if step == "apply" else PauseChange([], [])  # type: ignore[arg-type]
        paused = (paused | set(change.pause)) - set(change.resume)
        states = {p: state for p in table if (state := table.state(p)) is not None}
        assert paused == table.paused() == {p for p, state in states.items() if state.pause_reasons}
        assert table.due == {p for p, state in states.items() if state.stage in (Stage.START_DUE, Stage.REWIND_DUE)}
        assert table.sandbox_due == {p for p, state in states.items() if state.sandbox is SandboxUse.DUE}
