"""Events that kill the process that scores them: each is found and dead-lettered, everything else is scored once."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from scorer.attempts import DEAD_FROM
from scorer.marks import Mark
from tests import models
from tests.e2e.lethal import DEADLY
from tests.e2e.rig import MakeRig, Rig, events, until

FAULTS = ("missing", "duplicates", "phantoms", "out_of_order", "version_regressions")
SESSION = {"kafka": {"session_timeout_ms": 1_500}}


def lethal(make_rig: MakeRig, partitions: int = 3) -> Rig:
    """A linear model in production, served by processes that deadly events kill."""
    rig = make_rig(**SESSION)
    rig.push(models.linear_package(rig.folder / "one", 2.0), "1.0.0")
    rig.promote("1.0.0")
    rig.create(partitions)
    rig.program = [sys.executable, str(Path(__file__).with_name("lethal.py"))]
    return rig


def with_deadly(count: int, deadly: Iterable[int]) -> list[dict[str, Any]]:
    """Numbered events, some of them deadly."""
    return [{**event, **({"a": DEADLY} if number in deadly else {})} for number, event in enumerate(events(count))]


def supervise(rig: Rig, replicas: str, count: int) -> int:
    """Run these replicas, each started again when it dies, until everything is answered; how many died."""
    running = {replica: rig.start(replica) for replica in replicas}

    def answered() -> bool:
        for replica, scorer in running.items():
            if scorer.process.poll() is not None:
                running[replica] = rig.start(replica)
        return rig.answered() >= count

    until(answered, "all answers")
    return len(rig.scorers) - len(replicas)


def assert_clean(rig: Rig, count: int) -> None:
    """Both auditors."""
    audit = rig.audit()
    assert {fault: audit[fault] for fault in FAULTS} == dict.fromkeys(FAULTS, 0)
    report = json.loads(rig.run("scorer", "audit", "scorer.yaml", "--json").stdout)
    assert (report["clean"], report["events"]) == (True, count)


def test_deadly_events_are_found_and_their_neighbours_scored(make_rig: MakeRig) -> None:
    """Two of them in the middle of large batches, in different partitions, under two scorers that die in turn."""
    rig = lethal(make_rig)
    deadly = {200, 333}
    rig.emit(with_deadly(600, deadly))
    deaths = supervise(rig, "ab", 600)
    letters = rig.dead()
    assert [letter["reason"] for letter in letters] == ["crashes-scorer"] * 2
    assert {json.loads(letter["value"])["id"] for letter in letters} == {f"e{number}" for number in deadly}
    assert sorted(r["id"] for r in rig.scores()) == sorted(f"e{n}" for n in range(600) if n not in deadly)
    assert_clean(rig, 600)
    assert deaths <= 12
    assert {mark["attempts"] for mark in rig.marks().values()} == {0}


def test_the_very_first_event_is_found_by_one_scorer_that_is_started_again(make_rig: MakeRig) -> None:
    """The group has no offsets yet, and the process that takes over has the same name."""
    rig = lethal(make_rig)
    rig.emit(with_deadly(1, {0}))
    deaths = supervise(rig, "a", 1)
    assert [letter["reason"] for letter in rig.dead()] == ["crashes-scorer"]
    assert deaths == 4
    assert_clean(rig, 1)


@pytest.mark.parametrize(("owner", "reasons"), [("", []), ("gone", ["crashes-scorer"])])
def test_an_examination_counts_only_where_its_owner_died(make_rig: MakeRig, owner: str, reasons: list[str]) -> None:
    """One that was stopped, or has lost the partition, leaves the same mark."""
    rig = lethal(make_rig, partitions=1)
    rig.emit(events(2))
    mark = Mark(owner and f"{rig.name}.{owner}", attempts=DEAD_FROM - 1, alone=True)
    position = TopicPartition(rig.events_topic, 0, 0, mark.encode())
    admin = AdminClient({"bootstrap.servers": rig.bootstrap_servers})
    wanted = ConsumerGroupTopicPartitions(rig.name, [position])
    admin.alter_consumer_group_offsets([wanted])[rig.name].result()
    scorer = rig.start().ready()
    until(lambda: rig.answered() == 2, "both answers")
    assert [letter["reason"] for letter in rig.dead()] == reasons
    assert scorer.stop() == 0


def test_neither_a_hand_over_nor_a_death_without_work_counts(make_rig: MakeRig) -> None:
    rig = lethal(make_rig)
    rig.emit(events(30))
    first = rig.start("a").ready()
    until(lambda: rig.answered() == 30, "the answers")
    first.kill()
    second = rig.start("b").ready()
    until(lambda: {mark["owner"] for mark in rig.marks().values()} == {f"{rig.name}.b"}, "the claims")
    assert {mark["attempts"] for mark in rig.marks().values()} == {0}  # nothing waited: no event can have been the cause
    assert second.stop() == 0
    rig.emit(events(30, start=30))
    assert {(mark["owner"], mark["attempts"]) for mark in rig.marks().values()} == {("", 0)}
    third = rig.start("c").ready()
    until(lambda: rig.answered() == 60, "the other answers")
    assert "examining" not in third.said
    assert rig.dead() == []
    assert_clean(rig, 60)


def test_events_that_a_model_hangs_on_has_no_memory_for_or_answers_with_nan_are_found_by_a_scorer_that_lives_on(
    make_rig: MakeRig,
) -> None:
    """score = log(a); b > 0 is a loop of so many rounds, b < 0 asks for so much memory."""
    bad = {12: ({"b": 1e15}, "inference-failed"), 13: ({"b": -1e15}, "inference-failed"), 25: ({"a": -1.0}, "score-not-finite")}
    rig = make_rig(model={"deadline_ms": 100})
    signature = {**models.LINEAR, "decision": None}
    rig.push(models.package(rig.folder / "one", models.moody, signature), "1.0.0")
    rig.promote("1.0.0")
    rig.create(1)
    rig.emit({**event, "a": event["a"] + 1, **bad.get(number, ({}, ""))[0]} for number, event in enumerate(events(40)))
    scorer = rig.start().ready()
    until(lambda: rig.answered() == 40, "all answers")
    letters = {json.loads(letter["value"])["id"]: letter["reason"] for letter in rig.dead()}
    assert letters == {f"e{number}": reason for number, (_, reason) in bad.items()}
    assert sorted(r["id"] for r in rig.scores()) == sorted(f"e{n}" for n in range(40) if n not in bad)
    assert_clean(rig, 40)
    assert scorer.stop() == 0
