"""Moves of a channel and the scorers that follow it: notified at once, waited for, refused, and missing."""

import json
import signal
from typing import Any

import pytest

from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.support import models
from tests.support.processes import free_port

REPO = "oci:./registry/model"
PARTITIONS = 4
FLIP_SECONDS = 2.0  # from the move to the flip of every partition, if the scorers are notified


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    """Two versions, the first in production; a poll interval that no test waits for."""
    return make_rig(model={"poll_seconds": 600}).stocked(PARTITIONS, versions=2)


def move_channel(rig: Rig, *arguments: str, code: int = 0) -> Any:
    """Run a verb that moves the channel and notifies the scorers; return its JSON."""
    verb, *options = arguments
    return json.loads(rig.run("scorer", verb, "scorer.yaml", *options, "--json", code=code).stdout)


def owned(rig: Rig) -> list[int]:
    return [len(scorer["partitions"]) for scorer in rig.fleet() if scorer["state"] == "running"]


def test_notified_scorers_flip_every_partition_within_two_seconds(rig: Rig) -> None:
    for replica in ("a", "b"):
        rig.start(replica).ready()
    rig.run("scorer", "check", "scorer.yaml", "--set", "model.tag=2.0.0")  # tries it, which the scorers need not do again
    until(lambda: owned(rig) == [PARTITIONS // 2] * 2, "the partitions")
    rig.emit(events(100))
    until(lambda: rig.answered() == 100, "the first scores")
    moved = move_channel(rig, "promote", "--to", "2.0.0", "--reason", "better", "--wait")
    rollout = moved["rollout"]
    assert (rollout["outcome"], rollout["missing_partitions"]) == ("flipped", [])
    assert [(s["outcome"], s["version"], s["revision"], s["partitions"]) for s in rollout["scorers"]] == [
        ("flipped", "2.0.0", 2, PARTITIONS // 2)
    ] * 2
    assert rollout["seconds"] < FLIP_SECONDS
    rig.emit(events(100, start=100))
    until(lambda: rig.answered() == 200, "the scores of the second version")
    assert [record["version"] for record in rig.scores()].count("2.0.0") == 100
    assert max(swap["at_ms"] for swap in rig.swaps() if swap["version"] == "2.0.0") > 0
    back = move_channel(rig, "rollback", "--reason", "worse", "--wait")
    assert (back["to_version"], back["revision"], back["restores"]) == ("1.0.0", 3, 1)
    assert back["rollout"]["seconds"] < FLIP_SECONDS
    rig.emit(events(100, start=200))
    until(lambda: rig.answered() == 300, "the scores of the version that is back")
    assert [record["version"] for record in rig.scores()].count("1.0.0") == 200
    rig.assert_audited(scored=300, version_regressions=0)
    history = json.loads(rig.run("model-registry", "history", REPO, "--json").stdout)
    assert history["moves"][-1]["revision"] == 3
    assert [scorer["scorer"] for scorer in rig.fleet()] == [f"{rig.name}.a", f"{rig.name}.b"], "notices are no scorers"


def test_nothing_moves_without_a_broker_and_the_wait_ends_where_scorers_are_missing_refuse_or_hang(rig: Rig) -> None:
    promote, elsewhere = ("scorer", "promote", "scorer.yaml", "--to", "2.0.0"), f"127.0.0.1:{free_port()}"
    assert "no Kafka broker answers" in rig.run(*promote, "--set", f"kafka.bootstrap_servers={elsewhere}", code=4).stderr
    assert "check CONFIG --create" in rig.run(*promote, "--set", f"name={rig.name}.nowhere", code=2).stderr
    moves = json.loads(rig.run("model-registry", "history", REPO, "--json").stdout)["moves"]
    assert [move["to_version"] for move in moves] == ["1.0.0"]

    wait = ("--wait", "--wait-seconds", "1")
    rollout = move_channel(rig, "promote", "--to", "1.0.0", *wait, code=1)["rollout"]
    assert (rollout["outcome"], rollout["scorers"]) == ("timed out", [])
    golden = [{"event": {"a": 1, "b": 2}, "score": 9.0, "tolerance": 1e-3}]
    rig.push_unchecked(models.package(rig.folder / "bad", lambda path: models.linear(path, 1.0), golden=golden), "9.0.0")
    scorer = rig.start("a").ready()
    until(lambda: owned(rig) == [PARTITIONS], "the partitions")
    rollout = move_channel(rig, "promote", "--to", "9.0.0", "--wait", code=3)["rollout"]
    assert rollout["outcome"] == "refused"
    assert [s["scorer"] for s in rollout["scorers"]] == [f"{rig.name}.a"]
    assert "golden example 1" in rollout["scorers"][0]["reason"]
    status = json.loads(rig.run("model-registry", "status", REPO, "--json").stdout)
    assert (status["channels"][0]["version"], status["channels"][0]["revision"]) == ("9.0.0", 3)
    (scorer_state,) = rig.fleet()
    champion = scorer_state["versions"]["champion"]
    assert (scorer_state["state"], champion["version"], champion["revision"], scorer_state["tag"]) == (
        "running",
        "1.0.0",
        2,
        "prod",
    )
    assert move_channel(rig, "promote", "--to", "2.0.0", "--wait")["rollout"]["outcome"] == "flipped"
    scorer.send(signal.SIGSTOP)
    rollout = move_channel(rig, "promote", "--to", "1.0.0", "--wait", "--wait-seconds", "5", code=1)["rollout"]
    assert [(s["outcome"], s["version"]) for s in rollout["scorers"]] == [("waiting", "2.0.0")]
    scorer.send(signal.SIGCONT)
    until(lambda: rig.fleet()[0]["versions"]["champion"]["version"] == "1.0.0", "the notice that lay there")
