"""The rollouts campaign's plan, and its counts: each fault is reported, and no other."""

from collections import Counter
from typing import Any

import pytest

from tests.chaos.rollouts.counting import Entry, asked_after, made, move_faults, percentile, spread
from tests.chaos.rollouts.plan import AFTER_OUTCOME, BAD, CONTROLLER, FAILING, OUTCOMES, POINTS, deaths, rounds

Row = dict[str, Any]
ONE, OTHER = "rollout-1", "rollout-2"


def entry(kind: str, digest: str = "", **more: Any) -> Entry:
    return Entry({"kind": kind, **more}, digest, 0.0)


def move(revision: int, before: str | None, to: str, evidence: str | None = None, by: str = ONE) -> Row:
    actor = "operator" if evidence is None else f"rollout {by}"
    return {"revision": revision, "from": before, "to": to, "evidence": evidence, "actor": actor}


def logs() -> dict[str, list[Entry]]:
    """Return a rollout completed in two moves, the second after one interrupted try, and an overtaken rollout."""
    first = [entry("intended", "i1"), entry("moved", revision=2), entry("intended", "i2"), entry("moved", revision=4)]
    second = [entry("started"), entry("intended", "i3"), entry("ended", outcome="overtaken")]
    return {ONE: [entry("started"), *first, entry("ended", outcome="completed")], OTHER: second}


def history() -> list[Row]:
    return [
        move(1, None, "a"),
        move(2, "a", "b", "i1"),
        move(3, "b", "c", "i2"),
        move(4, "b", "c", "i2"),
        move(5, "c", "d", "i3", OTHER),
        move(6, "d", "a"),
    ]


def faults(log_entries: dict[str, list[Entry]], moves: list[Row]) -> Row:
    counts, _ = move_faults(log_entries, moves, "a")
    return {name: count for name, count in counts.items() if count}


def test_a_right_history_has_no_faults() -> None:
    assert made(history(), "a") == [True, True, False, True, True, True]
    assert faults(logs(), history()) == {}
    assert move_faults(logs(), history(), "a")[1] == 1


def test_a_repeated_move_is_reported() -> None:
    twice = [*history()[:3], move(4, "c", "c", "i2"), *history()[4:]]
    assert faults(logs(), twice) == {"double_moves": 1, "unrecorded_moves": 1}


@pytest.mark.parametrize(
    ("at", "changed", "expected"),
    [
        (1, {"evidence": "i9"}, {"unmade_moves": 1, "unintended_moves": 1}),
        (1, {"actor": "rollout " + OTHER}, {"unintended_moves": 1}),
        (1, {"actor": "operator"}, {"unintended_moves": 1}),
        (5, {"actor": "rollout " + ONE}, {"unintended_moves": 1}),
        (5, {"revision": 8}, {"broken_revisions": 1}),
        (3, {"to": "x"}, {"unmade_moves": 1}),
    ],
)
def test_a_fault_of_one_move_is_reported(at: int, changed: Row, expected: Row) -> None:
    moves = history()
    moves[at] |= changed
    assert faults(logs(), moves) == expected


def test_an_unrecorded_move_is_reported_unless_the_rollout_was_overtaken() -> None:
    log_entries = logs()
    log_entries[OTHER][-1] = entry("ended", outcome="aborted")
    assert faults(log_entries, history()) == {"unrecorded_moves": 1}
    log_entries = logs()
    del log_entries[ONE][4]
    assert faults(log_entries, history()) == {"unrecorded_moves": 1}


def test_rounds_have_all_kinds_equally_often_and_kills_in_order() -> None:
    planned = rounds(50, 3)
    assert planned == rounds(50, 3) != rounds(50, 4)
    assert set(Counter(round_.kind for round_ in planned).values()) == {50 // len(OUTCOMES)}
    assert all(round_.kills == tuple(sorted(round_.kills)) != () for round_ in planned)
    assert {kill.whom for round_ in planned for kill in round_.kills} == {"scorer", "shadow", CONTROLLER}
    assert {len(round_.steps) for round_ in planned if round_.kind in (BAD, FAILING)} == {2, 3}
    assert {len(round_.steps) for round_ in planned if round_.kind not in (BAD, FAILING)} == {3}


def test_every_point_has_its_deaths_and_none_after_the_end() -> None:
    planned = deaths(50, 1)
    assert Counter(death.point for death in planned) == dict.fromkeys(POINTS, 50)
    for point in POINTS:
        chosen = {(death.nth, death.aborted) for death in planned if death.point == point}
        assert chosen == {(nth, aborted) for nth in ((1,) if point == AFTER_OUTCOME else (1, 2)) for aborted in (False, True)}


def test_percentiles_are_measured_values() -> None:
    assert [percentile([3.0, 1.0, 2.0, 4.0], share) for share in (0.0, 0.5, 0.51, 1.0)] == [1.0, 2.0, 3.0, 4.0]
    assert percentile([], 0.5) is None
    assert spread([0.1] * 98 + [0.5, 0.9]) == {"count": 100, "p50": 0.1, "p99": 0.5, "max": 0.9}
    assert spread([]) == {"count": 0, "p50": None, "p99": None, "max": None}


@pytest.mark.parametrize(
    ("requests", "opened", "late"),
    [({}, [5], 0), ({5: 20}, [], 0), ({5: 20, 6: 9}, [3, 6], 0), ({5: 20, 7: 9, 8: 1}, [6], 10), ({5: 20, 6: 9}, [5], 9)],
)
def test_requests_to_a_candidate_after_the_breaker_opened_are_reported(
    requests: dict[int, int], opened: list[int], late: int
) -> None:
    assert asked_after(requests, opened) == late
