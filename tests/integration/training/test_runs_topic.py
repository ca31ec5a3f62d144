"""The topic of runs on a real broker: events arrive while a run works, and the commands need no folder of a finished run."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from scorer.console.training.run_history import STALE_SECONDS, RunHistory
from tests.chaos.training.ground import Ground
from tests.support.processes import free_port
from tests.support.shared_broker import Broker
from tests.support.waiting import until
from training.runs_topic.read_history import read_history
from training.settings import load

SECONDS = 300
ELSEWHERE = ("--set", "folder=elsewhere")


@pytest.fixture
def ground(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Ground:
    name = request.node.name.removeprefix("test_")[:40]
    return Ground(broker.bootstrap_servers, tmp_path / f"{name}-{tmp_path.name[-6:]}", None, 7, champion=True)


def printed(ground: Ground, verb: str, *options: str, code: int = 0) -> Any:
    """Return the document that a verb prints."""
    process = ground.training(verb, *options)
    document, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == code, (ground.folder / "log").read_text()
    return json.loads(document)


def history(ground: Ground) -> RunHistory:
    return read_history(load(ground.folder / "training.yaml")[1])


def test_a_killed_run_is_interrupted_then_resumed_and_the_topic_is_enough_to_read_it(ground: Ground) -> None:
    process = ground.training("run")
    until(lambda: any("freeze" in run.steps for run in history(ground).runs.values()), "the event of a step")
    assert process.poll() is None, "the event was written while the run worked"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=SECONDS)
    (killed,) = history(ground).runs.values()
    assert killed.state(killed.last_seen + STALE_SECONDS - 1) == "running"
    assert killed.state(killed.last_seen + STALE_SECONDS + 1) == "interrupted"
    ended = printed(ground, "run")
    (row,) = printed(ground, "list", *ELSEWHERE)
    assert (row["outcome"], row["run"], row["version"], row["attempts"]) == ("promoted", ended["run"], ended["version"], 2)
    record = printed(ground, "show", ended["run"], *ELSEWHERE)
    assert {name: record[name] for name in ("digest", "search", "rows", "comparison", "promotion")} == {
        name: ended[name] for name in ("digest", "search", "rows", "comparison", "promotion")
    }
    assert [step["step"] for step in record["steps"]] == [step["step"] for step in ended["steps"]]
    trials = {trial["trial"]: trial for trial in record["trials"] if not trial["final"]}
    assert set(trials) == {0, 1, 2, 3}
    best = ended["search"]["best"]
    score = {"budget": best["budget"], "auc": best["score"]}
    assert any(score.items() <= line.items() for line in trials[best["trial"]]["metrics"])
    assert trials[best["trial"]]["parameters"] == best["parameters"]
    log = printed(ground, "show", ended["version"], "--log", *ELSEWHERE)
    texts = [event["event"] for event in log["events"]]
    assert sum(text.startswith("run resumed on") for text in texts) == 1
    assert sum(text.startswith("step join took") for text in texts) == 1
    assert texts[-1].startswith("run ended: promoted")
    compared = printed(ground, "compare", ended["version"], "--against", "1.0.0", *ELSEWHERE)
    assert compared["challenger"]["metrics"] == ended["comparison"]["challenger"]["metrics"]
    exported = printed(ground, "export", "--mlflow", "mlflow", *ELSEWHERE)
    assert exported["runs"] == 1
    assert len([*(ground.folder / "mlflow").glob("*/*/meta.yaml")]) == 1 + exported["trials"]
    assert not (ground.folder / "elsewhere" / ".lock").is_dir()
    (marker,) = ground.folder.glob("runs/*/published")
    marker.unlink()  # as if the process had died before it published the end of the run
    assert printed(ground, "run")["outcome"] == "nothing-new"
    again = history(ground).runs[row["key"]]
    assert [attempt.started is None for attempt in again.attempts.values()] == [False, False, True]
    assert again.ended is not None
    assert (again.ended.outcome, again.step) == ("promoted", "end")


def test_a_failed_run_has_its_reason_and_the_tail_of_its_log(ground: Ground) -> None:
    printed(ground, "run", "--until", "freeze")
    (steps,) = ground.folder.glob("runs/*/steps")
    (steps.parent / "records").write_text("in the way")
    process = ground.training("run")
    assert process.wait(SECONDS) == 3
    (row,) = printed(ground, "list", *ELSEWHERE)
    assert (row["outcome"], row["step"]) == ("failed", "copy")
    log = printed(ground, "show", "--log", *ELSEWHERE)
    assert "cannot" in log["because"]
    assert any(event["event"].startswith("step copy failed: ") for event in log["events"])


def test_a_step_that_needs_no_broker_works_without_it(ground: Ground) -> None:
    path = ground.folder / "scorer.yaml"
    reachable = path.read_text()
    path.write_text(reachable.replace(ground.servers, f"127.0.0.1:{free_port()}"))
    printed(ground, "run", "--until", "plan")
    assert "events of the run were not written" in (ground.folder / "log").read_text()
    path.write_text(reachable)
    assert printed(ground, "run")["outcome"] == "promoted"
    (run,) = history(ground).runs.values()
    assert (run.state(time.time()), run.search is not None) == ("promoted", True)


def test_a_missing_topic_does_not_fail_the_run_and_is_named_by_the_reader(ground: Ground) -> None:
    path = ground.folder / "scorer.yaml"
    settings = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**settings, "name": f"{ground.name}x"}))
    printed(ground, "run", "--until", "join")
    assert "check CONFIG --create" in (ground.folder / "log").read_text()
    process = ground.training("list")
    assert process.wait(SECONDS) == 2
    assert f"topic {ground.name}x.runs does not exist" in (ground.folder / "log").read_text()
