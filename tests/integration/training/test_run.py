"""`scorer train run` whole, on a real broker: promoted, refused, the same, overtaken, killed, reproduced, audited."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chaos.training.counting import faults, strays
from tests.chaos.training.ground import TRAINING, Ground
from tests.support.processes import free_port
from tests.support.shared_broker import Broker
from tests.support.waiting import until

SECONDS = 300
GATE: dict[str, Any] = TRAINING["gate"]


@pytest.fixture
def ground(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Ground:
    name = request.node.name.removeprefix("test_")[:40]
    return Ground(broker.bootstrap_servers, tmp_path / f"{name}-{tmp_path.name[-6:]}", None, 7, champion=True)


def printed_document(ground: Ground, verb: str, *options: str, code: int = 0) -> Any:
    """The document that a verb prints."""
    process = ground.training(verb, *options)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == code, (ground.folder / "log").read_text()
    return json.loads(output)


def configure(ground: Ground, **changed: Any) -> None:
    (ground.folder / "training.yaml").write_text(yaml.safe_dump({**TRAINING, "seed": 7, **changed}))


def test_a_run_is_promoted_once_reproduced_and_proved_by_its_attestations(ground: Ground) -> None:
    run = printed_document(ground, "run")
    assert (run["outcome"], run["comparison"]["verdict"]) == ("promoted", "passed")
    assert faults(ground, run) == []
    assert {Path(picture).stem for picture in run["pictures"]} == {"rungs", "curves", "rules", "matrices"}
    assert printed_document(ground, "run")["outcome"] == "nothing-new"
    again = printed_document(ground, "reproduce", "prod")
    assert again["same"]
    assert {each["recorded"] == each["now"] for each in again["parts"].values()} == {True}
    evidence = printed_document(ground, "show", "prod", "--evidence")
    assert (evidence["run"], evidence["digest"], evidence["champion"]["version"]) == (run["run"], run["digest"], "1.0.0")
    assert {span["topic"] for span in evidence["spans"]} == {f"{ground.name}.events", ground.labels_topic}
    compared = printed_document(ground, "compare", "1.0.0", "--against", "prod", code=1)
    assert (compared["verdict"], compared["challenger"]["version"]) == ("refused", "1.0.0")
    rows = printed_document(ground, "list")
    assert [(row["outcome"], row["run"]) for row in rows] == [("nothing-new", None), ("promoted", run["run"])]


def test_a_worse_version_is_refused_and_stays_attested_and_unsigned(ground: Ground) -> None:
    first = printed_document(ground, "run")
    configure(ground, search={"trials": 1, "rungs": [1]}, gate=GATE | {"margin": 0.01})
    worse = printed_document(ground, "run", code=1)
    assert (worse["outcome"], worse["comparison"]["verdict"]) == ("refused", "refused")
    assert worse["because"].startswith("rule ")
    output = ground.registry("inspect", f"{ground.source}:{worse['version']}", "--key", "training.pub", "--json")
    assert len(json.loads(output)["attestations"]) == 3
    with pytest.raises(RuntimeError, match="is not signed"):
        ground.registry("verify", f"{ground.source}:{worse['version']}", "--key", "training.pub")
    assert json.loads(ground.registry("status", ground.source, "--json"))["channels"][0]["version"] == first["version"]


def test_a_champion_that_has_seen_the_rows_is_named(ground: Ground) -> None:
    configure(ground, snapshot=TRAINING["snapshot"] | {"hold_out": "36h"})
    printed_document(ground, "run")
    configure(ground)
    judged = printed_document(ground, "run", code=1)["comparison"]
    (leak,) = (rule for rule in judged["rules"] if rule["name"] == "leak")
    assert (leak["passed"], leak["value"] > 0, "the champion was trained on" in judged["because"]) == (False, True, True)


def test_a_version_that_was_promoted_meanwhile_is_the_same(ground: Ground) -> None:
    run = printed_document(ground, "run", "--until", "gate")
    ground.registry("promote", ground.source, "--to", run["version"])
    ended = printed_document(ground, "run")
    assert (ended["outcome"], ended["run"], ended["comparison"]["verdict"]) == ("same", run["run"], "same")


def test_a_run_that_was_overtaken_is_judged_beside_the_new_champion(ground: Ground) -> None:
    printed_document(ground, "run", "--until", "gate")
    ground.registry("push", "package", f"{ground.source}:2.0.0")
    ground.registry("promote", ground.source, "--to", "2.0.0")
    run = printed_document(ground, "run")
    assert (run["outcome"], run["comparison"]["champion"]["version"]) == ("promoted", "2.0.0")
    assert run["promotion"]["revision"] == 3
    assert len([*Path(run["folder"]).glob("steps/gate.*.json")]) == 1, "what was judged before stays"


def test_a_run_that_was_killed_in_its_search_continues_and_leaves_no_process(ground: Ground) -> None:
    process = ground.training("run")
    until(lambda: [*ground.folder.glob("runs/*/search/scores/*/*.json")], "the first trial", every=0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=SECONDS)
    until(lambda: not strays(ground.folder), "the end of its workers")
    run = printed_document(ground, "run")
    assert faults(ground, run) == []
    assert printed_document(ground, "reproduce", "prod")["same"]


def test_a_version_that_passed_starts_a_rollout_if_a_plan_is_named(ground: Ground) -> None:
    plan = {"steps": [{"canary": "5%", "bake": "1m"}, {"promote": True}], "rules": {"errors": "1%"}}
    (ground.folder / "plan.yaml").write_text(yaml.safe_dump(plan))
    configure(ground, publish=TRAINING["publish"] | {"rollout": "plan.yaml"})
    ground.scorer("check", "--create")
    run = printed_document(ground, "run")
    assert (run["outcome"], run["promotion"]["revision"]) == ("rollout", None)
    rollout = json.loads(ground.scorer("rollout", "status", "--json"))
    assert (rollout["rollout"], rollout["candidate"]["version"]) == (run["promotion"]["rollout"], run["version"])
    assert json.loads(ground.registry("status", ground.source, "--json"))["channels"][0]["version"] == "1.0.0"


def test_an_unavailable_broker_ends_a_run_with_code_4_and_the_next_run_continues(ground: Ground) -> None:
    printed_document(ground, "run", "--until", "export")
    path = ground.folder / "scorer.yaml"
    original = path.read_text()
    path.write_text(original.replace(ground.servers, f"127.0.0.1:{free_port()}"))
    process = ground.training("run")
    assert process.wait(SECONDS) == 4
    assert not list(ground.folder.glob("runs/*/steps/push.json"))  # the lease of the model is on the broker
    path.write_text(original)
    run = printed_document(ground, "run")
    assert run["outcome"] == "promoted"
    assert faults(ground, run) == []
