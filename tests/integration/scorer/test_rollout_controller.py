"""Rollouts that act, on the real broker: candidates that pass, that are rolled back, and what kills and people do to both."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from scorer.rollout.canary_analysis.pair_sums import MANY_UNREADABLE
from tests.integration.scorer.lethal import KILLS_CANDIDATE
from tests.integration.scorer.rig import MakeRig, Rig, ScorerProcess, command, events, until
from tests.integration.scorer.test_lethal_events import LOADING, lethal
from tests.integration.scorer.test_shadow import start as start_shadow
from tests.support import models
from tests.support.processes import Service

KEYS, PARTITIONS, RATE = 4_000, 3, 2_000
PROMPT = {"errors": 0.05, "flips": 0.05}
STEPS: list[dict[str, Any]] = [
    {"shadow": "100%", "bake": "2s"},
    {"canary": "30%", "bake": "2s"},
    {"promote": True, "watch": "2s"},
]


@contextmanager
def flowing(rig: Rig) -> Iterator[list[int]]:
    """Events whose scores go from 0 to 1, all the while; how many were written stands in the list at the end."""
    over, written = threading.Event(), [0]

    def write() -> None:
        producer = Producer({"bootstrap.servers": rig.bootstrap_servers, "linger.ms": 5})
        while not over.is_set():
            for _ in range(RATE // 20):
                number = written[0]
                key = f"k{number % KEYS}"
                event = {"id": f"e{number}", "key": key, "a": (number % 1_000) / 1_000, "b": 0.0}
                producer.produce(rig.events_topic, json.dumps(event).encode(), key)
                written[0] += 1
            producer.poll(0)
            over.wait(0.05)
        assert producer.flush(30) == 0

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield written
    finally:
        over.set()
        thread.join()


class Controller(Service):
    def __init__(self, rig: Rig, name: str = "c", *flags: str) -> None:
        flags = ("--set", f"replica={name}", *flags)
        log = rig.folder / f"controller-{name}-{time.time_ns()}.log"
        super().__init__([command("scorer"), "rollout", "run", str(rig.path), *flags], log)
        rig.others.append(self)


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    """Versions 1.0.0, 2.0.0 (the same model) and 3.0.0 (which halves all scores)."""
    rig = make_rig(shadow={"max_lag_seconds": 600}, rollout={"listen": "127.0.0.1:0", "key_file": "./moves.key"})
    rig.run("model-registry", "keygen", "moves")
    for version, factor in (("1.0.0", 1.0), ("2.0.0", 1.0), ("3.0.0", 0.5)):
        rig.push(models.linear_package(rig.folder / version, factor), version)
    rig.promote("1.0.0")
    rig.create(PARTITIONS)
    return rig


def plan(rig: Rig, candidate: str, steps: list[dict[str, Any]], **settings: Any) -> Path:
    path = rig.folder / "plan.yaml"
    path.write_text(yaml.safe_dump({"candidate": candidate, "steps": steps, "rules": PROMPT, **settings}))
    return path


def begin(rig: Rig, candidate: str, steps: list[dict[str, Any]] = STEPS, **settings: Any) -> str:
    path = plan(rig, candidate, steps, **settings)
    output = rig.run("scorer", "rollout", "start", "scorer.yaml", str(path), "--reason", "a test", "--json").stdout
    rollout: str = json.loads(output)["rollout"]
    return rollout


def status(rig: Rig) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(rig.run("scorer", "rollout", "status", "scorer.yaml", "--json").stdout)
    return report


def ended(rig: Rig, seconds: float = 120.0) -> dict[str, Any]:
    until(lambda: status(rig)["outcome"] is not None, "the end of the rollout", seconds)
    return status(rig)


def history(rig: Rig) -> list[dict[str, Any]]:
    output = rig.run("model-registry", "history", "oci:./registry/model", "--key", "moves.pub", "--json").stdout
    moves: list[dict[str, Any]] = json.loads(output)["moves"]
    return moves


def started(rig: Rig) -> tuple[ScorerProcess, ScorerProcess]:
    return rig.start("a").ready(), start_shadow(rig)


def assert_was_promoted(rig: Rig, status: dict[str, Any]) -> None:
    """Each step is recorded with its evidence in the channel's history, and its verification gives the same decision."""
    assert status["outcome"] == "completed", status["log"]
    kinds = [(entry["kind"], entry.get("step", -1)) for entry in status["log"]]
    moved = [(kind, step) for step in (1, 2, 3, 3) for kind in ("intended", "moved")]
    assert kinds == [("started", -1), ("compared", 0), *moved, ("ended", 3)]
    roles = [[(role["role"], role["version"], role["weight"], role["pairs"]) for role in m["roles"]] for m in history(rig)]
    assert roles == [
        [],
        [("champion", "1.0.0", 100, 0), ("shadow", "2.0.0", 0, 100)],
        [("champion", "1.0.0", 70, 0), ("canary", "2.0.0", 30, 100)],
        [("champion", "2.0.0", 100, 0), ("shadow", "1.0.0", 0, 100)],
        [],
    ]
    assert [move["evidence"] is not None for move in history(rig)] == [False, True, True, True, True]
    assert [move["signed_by"] for move in history(rig)] == [None, *["moves.pub"] * 4]
    judged = [entry["seq"] for entry in status["log"] if entry.get("judgement")]
    assert len(judged) == 3
    for seq in judged:
        verification = json.loads(rig.run("scorer", "rollout", "verify", "scorer.yaml", str(seq), "--json").stdout)
        assert (verification["same"], verification["pairs"] >= 3_000, verification["evidence"] is not None) == (
            True,
            True,
            True,
        ), verification


def assert_was_rolled_back(rig: Rig, status: dict[str, Any]) -> None:
    assert status["outcome"] == "rolled back", status["log"]
    newest = history(rig)[-1]
    assert (newest["to_version"], newest["roles"], newest["restores"]) == ("2.0.0", [], 5)
    decided = next(entry for entry in status["log"] if entry["kind"] == "intended" and entry["verdict"] == "roll back")
    assert decided["why"][0].startswith("flips: ")
    verification = json.loads(rig.run("scorer", "rollout", "verify", "scorer.yaml", str(decided["seq"]), "--json").stdout)
    assert verification["same"], verification


def test_a_good_candidate_is_promoted_and_a_bad_one_is_rolled_back(rig: Rig) -> None:
    scorers = started(rig)
    controller = Controller(rig).ready()
    with flowing(rig) as written:
        begin(rig, "2.0.0", [{"compare": {"last": "1h"}}, *STEPS])
        promoted = ended(rig)
        assert_was_promoted(rig, promoted)
        begin(rig, "3.0.0")
        rolled_back = ended(rig)
        assert_was_rolled_back(rig, rolled_back)
        decided_on = [
            controller.metric(f'scorer_rollout_decisions_total{{verdict="{name}"}}') for name in ("completed", "rolled back")
        ]
        assert (decided_on, controller.metric("scorer_rollout_leader")) == ([1, 1], 1)
        output = rig.run("scorer", "rollout", "status", "scorer.yaml").stdout
        assert "rolled back" in output
        assert "flips" in output
    until(lambda: rig.answered() == written[0], "the answers")
    rig.assert_clean(events=written[0], misassigned=0, version_regressions=0)
    assert [process.stop() for process in (*scorers, controller)] == [0, 0, 0]


def commands(rig: Rig, verb: str, *flags: str, code: int | None = 0) -> str:
    return rig.run("scorer", "rollout", verb, "scorer.yaml", *flags, code=code).stderr


def waits(rig: Rig, words: str) -> None:
    """Until the rollout waits for this."""

    def told() -> bool:
        state = status(rig)["state"]
        return state is not None and any(words in line for line in state["waits"])

    until(told, f"{words!r} in what it waits for")


def versions(rig: Rig) -> list[tuple[str, str]]:
    return [(role["role"], role["version"]) for role in history(rig)[-1]["roles"]]


def assert_bad_plans_are_refused(rig: Rig) -> None:
    path = rig.folder / "bad.yaml"
    path.write_text("candidate: 1.0.0\nsteps: [{promote: true}]\n")
    assert "1.0.0 is the champion already" in commands(rig, "start", str(path), code=3)
    path.write_text("candidate: 9.0.0\nsteps: [{promote: true}]\n")
    assert "9.0.0" in commands(rig, "start", str(path), code=3)
    path.write_text("candidate: 2.0.0\nsteps: [{dance: true}]\n")
    assert "steps.0.dance" in commands(rig, "start", str(path), code=2)


def test_people_have_the_last_word(rig: Rig) -> None:
    """Without any traffic nothing passes by itself; a person may let it, stop it, and move the channel under its feet."""
    rig.start("a").ready()
    assert "no rollout yet" in commands(rig, "approve", code=2)
    assert_bad_plans_are_refused(rig)
    steps: list[dict[str, Any]] = [{"canary": "30%", "approve": True}, {"promote": True}]
    begin(rig, "2.0.0", steps)
    assert "requested to pause" in commands(rig, "pause")
    assert "is still running" in commands(rig, "start", str(plan(rig, "3.0.0", steps)), code=3)
    controller = Controller(rig).ready()
    waits(rig, "paused")
    assert len(history(rig)) == 1
    commands(rig, "resume")
    waits(rig, "no pairs")
    assert versions(rig) == [("champion", "1.0.0"), ("canary", "2.0.0")]
    commands(rig, "approve", "--reason", "looked at it")
    completed = ended(rig)
    assert completed["outcome"] == "completed"
    assert any("approved it: looked at it" in reason for entry in completed["log"] for reason in entry["why"])
    assert [command["verb"] for command in completed["asked"]] == ["pause", "resume", "approve"]
    assert "approved it: looked at it" in history(rig)[-1]["reason"]
    assert (history(rig)[-1]["to_version"], versions(rig)) == ("2.0.0", [])
    assert "has ended: completed" in commands(rig, "abort", code=3)

    begin(rig, "3.0.0", steps)
    waits(rig, "no pairs")
    commands(rig, "abort", "--reason", "on a Friday")
    aborted = ended(rig)
    assert aborted["outcome"] == "aborted"
    assert "on a Friday" in aborted["log"][-1]["why"][0]
    assert (history(rig)[-1]["to_version"], versions(rig)) == ("2.0.0", [])
    assert "is based on no pairs" in commands(rig, "verify", "0", code=2)

    begin(rig, "3.0.0", steps)
    waits(rig, "no pairs")
    rig.run("scorer", "promote", "scorer.yaml", "--to", "1.0.0", "--reason", "mine", "--wait")
    overtaken = ended(rig)
    assert overtaken["outcome"] == "overtaken"
    assert "(mine) moved it" in overtaken["log"][-1]["why"][0]
    newest = history(rig)[-1]
    assert (newest["to_version"], newest["reason"], newest["evidence"]) == ("1.0.0", "mine", None)
    assert controller.stop() == 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_another_controller_takes_over_and_a_step_needs_none(rig: Rig, protocol: str) -> None:
    rig.configure(kafka={"group_protocol": protocol})
    rig.start("a").ready()
    first = Controller(rig, "one").ready()
    until(lambda: "this controller is the leader" in first.said, "the first to act")
    second = Controller(rig, "two").ready()
    begin(rig, "2.0.0", [{"canary": "30%"}, {"promote": True}])
    waits(rig, "no pairs")
    metrics = [
        [each.metric(f"scorer_rollout_{name}") for name in ("leader", "running", "step", "steps")] for each in (first, second)
    ]
    assert metrics == [[1, 1, 1, 2], [0, 0, 0, 0]]
    first.kill()
    until(lambda: status(rig)["state"]["controller"].endswith(".two"), "the second to act")
    assert "a controller is running" in commands(rig, "step", code=3)
    assert second.stop() == 0
    commands(rig, "approve")
    until(lambda: "a controller is running" not in commands(rig, "step", code=None), "the group without members")
    assert status(rig)["outcome"] == "completed"
    assert [move["revision"] for move in history(rig)] == [1, 2, 3]
    assert len({move["evidence"] for move in history(rig)}) == 3
    assert "no rollout is running" in commands(rig, "step")


def test_unreadable_records_stop_neither_the_controller_nor_people(rig: Rig) -> None:
    rig.start("a").ready()
    controller = Controller(rig).ready()
    begin(rig, "2.0.0", [{"canary": "30%"}, {"promote": True}])
    waits(rig, "no pairs")
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
    for _ in range(2 * MANY_UNREADABLE):
        producer.produce(rig.scores_topic, b"\x00 no score", b"k")
    producer.produce(f"{rig.name}.rollouts", b"\xff", b"\xff/0")
    assert producer.flush(10) == 0
    waits(rig, "cannot read the scores for the analysis")
    commands(rig, "abort")
    assert ended(rig)["outcome"] == "aborted"
    assert controller.stop() == 0


def test_a_candidate_that_kills_scorers_is_rolled_back(make_rig: MakeRig) -> None:
    """Scorers refuse it at the second death with it in flight; no event is lost or wrongly dead-lettered."""
    rig = lethal(make_rig, partitions=1)
    rig.push(models.linear_package(rig.folder / "2.0.0", 3.0), "2.0.0")
    scorer, controller = rig.start("a").ready(), Controller(rig).ready()
    begin(rig, "2.0.0", [{"canary": "50%"}, {"promote": True}])
    waits(rig, "no shadow runs")
    until(lambda: "(revision 2), and" in scorer.said, "the canary")
    rig.emit({**event, "a": KILLS_CANDIDATE} for event in events(20))
    until(lambda: LOADING in scorer.said, "the end of the examination")
    until(lambda: "canary" in rig.fleet()[0]["versions"], "the candidate in the process")
    rig.emit({**event, "a": KILLS_CANDIDATE} for event in events(20, start=20))
    status = ended(rig)
    until(lambda: rig.answered() == 40, "the answers")
    assert status["outcome"] == "rolled back"
    assert " refuses 2.0.0: " in status["log"][-1]["why"][0]
    rig.assert_clean(events=40, scored=40)
    assert [process.stop() for process in (scorer, controller)] == [0, 0]
