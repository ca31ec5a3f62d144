"""Events that kill the process that scores them: each is found and dead-lettered, everything else is scored once."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from scorer.crash_isolation.in_flight_journal import InFlightJournal, journal_path
from tests.chaos.faults.deadly import examiners
from tests.integration.scorer.lethal import (
    ABORT,
    BREAKS,
    BREAKS_CANDIDATE,
    DECODER,
    ENDLESS,
    KILLS_CANDIDATE,
    OUT_OF_MEMORY,
    SEGFAULT,
    SLOW,
)
from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.support import models

LOADING = "loading the model into this process"
KAFKA = {"session_timeout_ms": 1_500, "transaction_timeout_ms": 3_000}


def lethal(make_rig: MakeRig, partitions: int = 3, **overrides: object) -> Rig:
    """A linear model in production, served by processes that deadly events kill."""
    rig = make_rig(kafka=KAFKA, **overrides).stocked(partitions)
    rig.program = [sys.executable, str(Path(__file__).with_name("lethal.py"))]
    return rig


def with_deadly(count: int, deadly: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**event, **deadly.get(number, {})} for number, event in enumerate(events(count))]


def assert_only_these_died(rig: Rig, count: int, deadly: set[int]) -> None:
    """The deadly events are dead letters, all others are scored, once."""
    letters = rig.dead()
    assert {json.loads(letter["value"])["id"] for letter in letters} == {f"e{number}" for number in deadly}
    assert {letter["reason"] for letter in letters} <= {"crashes-scorer"}
    assert sorted(r["id"] for r in rig.scores()) == sorted(f"e{n}" for n in range(count) if n not in deadly)
    rig.assert_clean(events=count)


@pytest.mark.parametrize("scorers", ["a", "ab"])
def test_deadly_events_cost_a_death_per_batch_and_their_neighbours_nothing(make_rig: MakeRig, scorers: str) -> None:
    """Ten in a row of each kind, and some alone, in three partitions: those of one batch are found after one death."""
    rig = lethal(make_rig)
    kinds: list[dict[str, Any]] = [{"a": SEGFAULT}, {"a": ABORT}, {"a": OUT_OF_MEMORY}, DECODER]
    deadly = {200 + number: kinds[number % 4] for number in range(10)} | {1_500: kinds[0], 1_900: kinds[3]}
    count = 2_000
    rig.emit(with_deadly(count, deadly))
    running = [rig.start(replica) for replica in scorers]
    until(lambda: rig.answered() >= count, "all answers")
    assert_only_these_died(rig, count, set(deadly))
    assert 1 <= sum(scorer.deaths for scorer in running) < len(deadly) / 2
    until(lambda: any("loading the model into this process" in scorer.said for scorer in running), "the end of the examination")
    rig.emit(events(100, start=count))
    until(lambda: rig.answered() >= count + 100, "scores without an examiner")
    assert [scorer.stop() for scorer in running] == [0] * len(running)


def test_an_event_that_hangs_the_process_is_identified(make_rig: MakeRig) -> None:
    """The watchdog ends the worker; the CPU time of its sandbox is limited."""
    rig = lethal(make_rig, partitions=1, model={"deadline_ms": 100})
    rig.emit(with_deadly(3, {1: {"a": ENDLESS}}))
    scorer = rig.start()
    until(lambda: rig.answered() >= 3, "all answers")
    assert_only_these_died(rig, 3, {1})
    assert scorer.deaths == 1
    assert "SIGXCPU" in scorer.said


def test_only_the_event_that_breaks_the_device_is_dead_lettered(make_rig: MakeRig) -> None:
    """After it every event fails in the same process, be it the worker or its sandbox."""
    rig = lethal(make_rig)
    count = 1_000
    rig.emit(with_deadly(count, {300: {"a": BREAKS}, 301: {"a": BREAKS}}))
    scorer = rig.start()
    until(lambda: rig.answered() >= count, "all answers")
    assert_only_these_died(rig, count, {300, 301})
    assert "worker 0 ended with code 70: the model fails for an event that it answered when it was loaded" in scorer.said
    until(lambda: LOADING in scorer.said, "the end of the examination")
    assert (scorer.deaths, scorer.stop()) == (1, 0)


def test_a_kill_by_hand_dead_letters_no_event(make_rig: MakeRig) -> None:
    """A worker with events in flight, then its sandbox, then all processes at once are killed."""
    rig = lethal(make_rig, partitions=1)
    count = 60
    rig.emit(with_deadly(count, {number: {"a": SLOW} for number in (10, 30, 50)}))
    scorer = rig.start()
    until(lambda: bool(InFlightJournal(journal_path(rig.folder / "cache", f"{rig.name}.a")).read()), "events in hand")
    os.kill(scorer.worker, signal.SIGKILL)
    until(lambda: scorer.said.count("serving model") == 2 and bool(examiners(scorer)), "the examiner")
    examiners(scorer)[0].kill()
    until(lambda: "the sandbox process with" in scorer.said, "the end of the examiner")
    scorer.kill()
    rig.start()
    until(lambda: rig.answered() >= count, "all answers")
    assert_only_these_died(rig, count, set())


def test_events_that_hang_the_model_exhaust_memory_or_give_nan_are_dead_lettered_without_a_death(
    make_rig: MakeRig,
) -> None:
    """score = log(a); b > 0 is a loop of so many rounds, b < 0 asks for so much memory."""
    lethal = {
        12: ({"b": 1e15}, "inference-failed"),
        13: ({"b": -1e15}, "inference-failed"),
        25: ({"a": -1.0}, "score-not-finite"),
    }
    rig = make_rig(model={"deadline_ms": 100})
    signature = {**models.LINEAR, "decision": None}
    rig.push(models.package(rig.folder / "one", models.moody, signature), "1.0.0")
    rig.promote("1.0.0")
    rig.create(1)
    rig.emit({**event, "a": event["a"] + 1, **lethal.get(number, ({}, ""))[0]} for number, event in enumerate(events(40)))
    scorer = rig.start().ready()
    until(lambda: rig.answered() == 40, "all answers")
    letters = {json.loads(letter["value"])["id"]: letter["reason"] for letter in rig.dead()}
    assert letters == {f"e{number}": reason for number, (_, reason) in lethal.items()}
    assert sorted(r["id"] for r in rig.scores()) == sorted(f"e{n}" for n in range(40) if n not in lethal)
    rig.assert_clean(events=40)
    assert scorer.stop() == 0


@pytest.mark.parametrize("fault", [KILLS_CANDIDATE, BREAKS_CANDIDATE])
def test_a_candidate_that_kills_is_blamed_before_any_event_and_refused_after_the_second_death(
    make_rig: MakeRig, fault: float
) -> None:
    rig = lethal(make_rig, partitions=1)
    rig.push(models.linear_package(rig.folder / "2.0.0", 3.0), "2.0.0")
    scorer = rig.start().ready()
    rig.run("scorer", "promote", "scorer.yaml", "--to", "2.0.0", "--canary", "50%", "--wait")
    count = 0
    for deaths in (1, 2):
        rig.emit({**event, "a": fault} for event in events(100, start=count))
        count += 100
        until(lambda count=count: rig.answered() >= count, "the champion's answers")  # type: ignore[misc]
        until(lambda deaths=deaths: scorer.deaths == deaths, "the death")  # type: ignore[misc]
        until(lambda deaths=deaths: scorer.said.count(LOADING) == deaths, "the end of the examination")  # type: ignore[misc]
        if deaths == 1:
            until(lambda: "canary" in rig.fleet()[0]["versions"], "the candidate in this process")
    rig.emit(events(100, start=count))
    until(lambda: rig.answered() == count + 100, "scores without the candidate")
    assert rig.dead() == []
    assert {(r["role"], r["score"]) for r in rig.scores() if int(r["id"][1:]) < count} == {("champion", 2 * fault)}
    assert {r.get("fallback") for r in rig.scores() if r["arm"] == "canary"} >= {"crash", "refused"}
    assert "2 processes died while it scored events" in rig.fleet()[0]["refused"]["2.0.0"]
    rig.assert_clean(events=count + 100, misassigned=0)
    assert scorer.stop() == 0
