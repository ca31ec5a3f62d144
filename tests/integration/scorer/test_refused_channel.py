"""A channel that names a refused version, or was moved without a key, on the real broker: deaths, a scale-up and an empty cache
change nothing of what is served."""

import json
import os
import re
import signal

import yaml

from tests.integration.scorer.rig import MakeRig, Rig, ScorerProcess, events, until
from tests.support import models

REPO = "oci:./registry/model"


def guarded(rig: Rig) -> Rig:
    """Three versions of which the key of releases signed the first and the last; only the key of moves moves the channel."""
    (rig.folder / "password").write_text("secret\n")
    rig.run("model-registry", "keygen", "release")
    rig.run("model-registry", "keygen", "moves", "--password-file", "password")
    keys = [{"id": name, "file": f"{name}.pub", "use": use} for name, use in (("release", "versions"), ("moves", "moves"))]
    (rig.folder / "policy.yaml").write_text(yaml.safe_dump({"signatures": "required", "moves": "signed", "keys": keys}))
    for number in (1, 2, 3):
        rig.push(models.linear_package(rig.folder / f"{number}.0.0", number + 1.0), f"{number}.0.0")
    for version in ("1.0.0", "3.0.0"):
        rig.run("model-registry", "sign", f"{REPO}:{version}", "--key", "release.key")
    rig.create(code=1)
    rig.run("scorer", "promote", "scorer.yaml", "--to", "1.0.0")
    return rig


def kill(rig: Rig, supervisor: ScorerProcess, number: int) -> None:
    """Kill a worker, and wait until another serves in its place."""
    before = re.findall(rf"worker {number} is process (\d+)", supervisor.said)
    os.kill(int(before[-1]), signal.SIGKILL)
    until(lambda: len(re.findall(rf"worker {number} is process (\d+)", supervisor.said)) > len(before), "the restart")
    until(lambda: shared(rig), "the partitions of both workers")


def shared(rig: Rig) -> bool:
    rows = [row for row in rig.fleet() if row["state"] == "running"]
    return len(rows) > 1 and all(row["partitions"] for row in rows) and sum(len(row["partitions"]) for row in rows) == 4


def served(rig: Rig) -> set[tuple[str, int]]:
    """The version and the revision of each live scorer."""
    champions = [row["versions"]["champion"] for row in rig.fleet() if row["state"] == "running"]
    return {(champion["version"], champion["revision"]) for champion in champions}


def refusals(rig: Rig) -> list[str]:
    """Why each live scorer refuses version 3.0.0; empty for one that does not."""
    return [row["refused"].get("3.0.0", "") for row in rig.fleet() if row["state"] == "running"]


def test_a_refused_version_and_an_unsigned_move_stop_no_scorer_at_deaths_and_a_scale_up(make_rig: MakeRig) -> None:
    rig = guarded(
        make_rig(model={"policy": "./policy.yaml"}, rollout={"key_file": "./moves.key", "password_file": "./password"})
    )
    workers = rig.start("w", workers=2)
    until(lambda: shared(rig), "the partitions of both workers")
    rig.emit(events(100))
    for revision, share in ((2, ["--canary", "50%"]), (3, [])):
        completed = rig.run("scorer", "promote", "scorer.yaml", "--to", "2.0.0", *share, "--wait", "--json", code=3)
        assert json.loads(completed.stdout)["revision"] == revision
        assert json.loads(completed.stdout)["rollout"]["outcome"] == "refused"
        assert served(rig) == {("1.0.0", 2)}, "the champion of the revision whose candidate is refused"
    kill(rig, workers, 1)
    rig.emit(events(100, start=100))
    assert served(rig) == {("1.0.0", 2)}

    rig.run("model-registry", "promote", REPO, "--to", "3.0.0", "--reason", "by a writer without the key")
    assert "has no signature" in rig.run("scorer", "check", "scorer.yaml", code=1).stderr
    until(lambda: all("has no signature" in reason for reason in refusals(rig)), "the refusals in the status records")
    kill(rig, workers, 0)
    another = rig.start("b", "--set", f"model.cache={rig.folder}/empty").ready()
    assert another.metric("scorer_channel_refused") == 1
    assert another.metric("scorer_versions_refused_total") == 2
    until(lambda: len(refusals(rig)) == 3, "the third scorer's record")
    rig.emit(events(100, start=200))
    until(lambda: rig.answered() == 300, "scores of the version that was served before")
    assert served(rig) == {("1.0.0", 2)}
    assert "error:" not in workers.said

    moved = rig.run("scorer", "promote", "scorer.yaml", "--to", "3.0.0", "--wait", "--json")
    assert json.loads(moved.stdout)["rollout"]["outcome"] == "flipped"
    assert served(rig) == {("3.0.0", 5)}
    assert another.metric("scorer_channel_refused") == 0
    rig.emit(events(100, start=300))
    until(lambda: rig.answered() == 400, "scores of the signed move's version")
    rig.assert_clean(events=400, scored=400, version_regressions=0)
    assert another.metric("scorer_revision_fence_timeouts_total") == 0
