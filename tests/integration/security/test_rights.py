"""Component x right: with its least rights each works, and without any one of them it ends soon, with code 3 and one line that
names the right, the resource and the way out."""

import contextlib
import json
import re
import time

import httpx
import pytest

from publisher.kafka import roles
from tests.integration.scorer.browser import console
from tests.integration.scorer.rig import events, until
from tests.integration.security import rights
from tests.integration.security.broker import Right
from tests.integration.security.conftest import NAME, Secured, without
from tests.support.processes import Service

COMMANDS: dict[str, tuple[str, ...]] = {
    "scorer": ("scorer", "run", "scorer.yaml"),
    "shadow": ("scorer", "run", "scorer.yaml", "--shadow", "--set", "shadow.listen=127.0.0.1:0"),
    "auditor": ("scorer", "audit", "scorer.yaml"),
    "producer": ("scorer", "emit", "scorer.yaml"),
    "consumer": ("scorer", "tail", "scorer.yaml", "--no-follow"),
    "judge": ("scorer", "judge", "scorer.yaml"),
    "controller": ("scorer", "rollout", "run", "scorer.yaml", "--set", "rollout.listen=127.0.0.1:0"),
    "operator": ("scorer", "rollout", "pause", "scorer.yaml"),
    "watcher": ("scorer", "status", "scorer.yaml"),
    "replay": ("scorer", "replay", "scorer.yaml"),
    "rescore": ("scorer", "rescore", "scorer.yaml", "--status", "fallback"),
    "mover": ("scorer", "offsets", "scorer.yaml", "--to", "latest"),
}
ELSEWHERE = {("scorer", "notices"), ("shadow", "notices"), ("consumer", "dead"), ("watcher", "notice")}
"""Rights that this command has no need of, or can do without."""
CASES = [
    (component, right)
    for component, needed in rights.COMPONENTS.items()
    for right in needed(NAME)
    if (component, right) not in ELSEWHERE
]


def names(message: str, right: Right) -> bool:
    """Whether an error names the right and the resource, and a command that grants it."""
    kind, name, operation = right
    resource = kind.name.lower().replace("_", "-")
    stated = re.search(rf"no right to {operation.name.title()} on {resource} '{re.escape(name.removesuffix('*'))}", message)
    return bool(stated) and "kafka-acls.sh" in message and f"--{resource} {name.removesuffix('*')}" in message


@pytest.mark.parametrize(("component", "right"), CASES)
def test_a_right_that_is_missing_is_named(secured: Secured, component: str, right: str) -> None:
    rig = secured.as_user(without(component, right))
    message = rig.run(*COMMANDS[component], code=3).stderr
    assert names(message, rights.COMPONENTS[component](NAME)[right]), message
    assert f"run it as the {roles.role_of(COMMANDS[component])} (deploy/rights.md), or grant" in message


def test_check_names_every_missing_right_at_once(secured: Secured) -> None:
    secured.broker.users({"stranger": []})
    secured.as_user("stranger")
    rights_check = secured.checks()["rights"]
    assert f"no right to Read on topic '{NAME}.events'" in rights_check["detail"]
    for part in ("scores", "dead", "status", "swaps"):
        assert f"no right to Write on topic '{NAME}.{part}'" in rights_check["detail"]
    assert "--allow-principal User:stranger --operation Write" in rights_check["hint"]
    secured.as_user(without("scorer", "transactions"))
    assert "no right to Write on transactional-id" in secured.checks()["rights"]["detail"]
    secured.broker.users({"maker": [*rights.scorer(NAME).values(), (rights.TOPIC, f"{NAME}.new", rights.WRITE)]})
    changed = ("--create", "--set", f"output.topic={NAME}.new", "--json")
    output = secured.as_user("maker").run("scorer", "check", "scorer.yaml", *changed, code=1).stdout
    assert f"no right to Create on topic '{NAME}.new'" in output


def test_check_distinguishes_missing_topics_from_invisible_topics(secured: Secured) -> None:
    rig = secured.as_user("scorer")

    def details(*flags: str, code: int = 0) -> dict[str, str]:
        report = json.loads(rig.run("scorer", "check", "scorer.yaml", "--json", *flags, code=code).stdout)
        return {finding["check"]: finding["detail"] + finding["hint"] for finding in report["checks"]}

    invisible = "not visible to this user, whether or not they exist: "
    optional = f"{NAME}.dead.replayed (scorer replay), {NAME}.scores.corrections (scorer rescore)"
    for flags in ((), ("--create",)):
        assert details(*flags)["optional topics"].startswith(f"{invisible}{optional}")
    labels = details("--set", "labels.topic=nowhere", code=1)["labels"]
    assert labels.startswith("topic nowhere is not visible to this user, whether or not it exists")
    assert "--operation Read --topic nowhere" in labels
    secured.broker.users({"describer": [*rights.scorer(NAME).values(), (rights.TOPIC, "nowhere", rights.DESCRIBE)]})
    secured.as_user("describer")
    findings = details("--set", "labels.topic=nowhere", code=1)
    assert findings["labels"].startswith("topic nowhere does not exist")
    secured.as_user(without("scorer", "input"))
    assert f"no right to see whether these topics exist: {NAME}.events" in details(code=1)["rights"]


def test_dead_letters_may_be_kept_from_consumers(secured: Secured) -> None:
    rig = secured.as_user(without("consumer", "dead"))
    rig.run("scorer", "tail", "scorer.yaml", "--no-follow")
    assert f"no right to Read on topic '{NAME}.dead'" in rig.run("scorer", "tail", "scorer.yaml", "--dead", code=3).stderr


def test_everything_works_with_the_least_rights(secured: Secured) -> None:
    """Scores, dead letters, a swap, a killed scorer's transactions fenced, status, replay, audit; nobody may do more."""
    rig = secured.as_user("scorer")
    first, second = rig.start("a").ready(), rig.start("b").ready()
    assert first.metric('scorer_certificate_expiry_timestamp_seconds{setting="kafka.security.ca_file"}') > time.time()
    emit(secured, [*events(50), {"id": "bad", "key": "k", "a": "one", "b": 0}])
    until(lambda: scored(secured) == 50, "the scores")
    first.kill()
    emit(secured, events(50, start=50))
    until(lambda: scored(secured) == 100, "the scores of the other one")
    secured.as_user("watcher")
    rig.run("scorer", "promote", "scorer.yaml", "--to", "2.0.0", "--wait")
    assert {s["versions"]["champion"]["version"] for s in rig.fleet() if s["scorer"].endswith(".b")} == {"2.0.0"}
    emit(secured, events(10, start=100))
    until(lambda: scored(secured) == 110, "the scores of the new version")
    secured.as_user("replay")
    assert json.loads(rig.run("scorer", "replay", "scorer.yaml", "--json").stdout)["replayed"] == 1
    assert second.stop() == 0
    assert "no right" not in second.said
    secured.as_user("consumer")
    assert len(rig.dead()) >= 1
    secured.as_user("auditor")
    report = json.loads(rig.run("scorer", "audit", "scorer.yaml", "--json").stdout)
    assert report["clean"]


def test_a_shadow_works_with_the_least_rights(secured: Secured) -> None:
    rig = secured.as_user("watcher")
    rig.run("scorer", "promote", "scorer.yaml", "--to", "1.0.0", "--shadow", "2.0.0")
    shadow = secured.as_user("shadow").start("s", "--shadow", "--share", "100%", "--set", "shadow.listen=127.0.0.1:0").ready()
    until(lambda: "assigned: " in shadow.said, "its partitions")
    emit(secured, events(50, start=200))
    until(lambda: shadow.metric('scorer_events_total{outcome="scored"}') == 50, "what it scored")
    assert shadow.stop() == 0
    assert "no right" not in shadow.said


def test_a_scorer_with_tables_needs_read_on_their_topics(secured: Secured) -> None:
    topic = f"{NAME}.customers"
    secured.rig.make_topic(topic, 2)
    flags = ("--set", f"tables.customers.topic={topic}")
    secured.broker.users({"table-reader": [*rights.scorer(NAME).values(), (rights.TOPIC, topic, rights.READ)]})
    message = secured.as_user("scorer").run("scorer", "run", "scorer.yaml", *flags, code=3).stderr
    assert f"no right to Read on topic '{topic}'" in message
    rig = secured.as_user("table-reader")
    scorer = rig.start("with-table", *flags).ready()
    rig.run("scorer", "tables", "get", "scorer.yaml", "customers", "C-1", *flags, code=1)
    secured.as_user("watcher").run("scorer", "tables", "scorer.yaml", *flags)
    message = rig.run("scorer", "tables", "get", "scorer.yaml", "customers", "C-1", *flags, code=3).stderr
    assert "run it as the auditor (deploy/rights.md), or grant" in message
    assert scorer.stop() == 0
    assert "no right" not in scorer.said


def test_the_judge_reads_with_its_least_rights(secured: Secured) -> None:
    completed = secured.as_user("judge").run("scorer", "judge", "scorer.yaml", "--to", "1", "--json", code=1)
    assert json.loads(completed.stdout)["verdict"] == "hold"


def test_a_rollout_works_with_the_least_rights(secured: Secured) -> None:
    path = secured.rig.folder / "plan.yaml"
    path.write_text("candidate: 2.0.0\nsteps: [{canary: 50%}, {promote: true}]\n")
    secured.as_user("watcher").run("scorer", "promote", "scorer.yaml", "--to", "1.0.0")
    rig = secured.as_user("controller")
    controller = Service(
        [*rig.program, "rollout", "run", str(rig.path), "--set", "rollout.listen=127.0.0.1:0"], rig.folder / "controller.log"
    )
    with contextlib.closing(contextlib.ExitStack()) as undo:
        undo.callback(controller.kill)
        controller.ready()
        assert controller.metric('scorer_certificate_expiry_timestamp_seconds{setting="kafka.security.ca_file"}') > time.time()
        secured.broker.users({"starter": [*rights.operator(NAME).values(), rights.judge(NAME)["scores.shadow"]]})
        secured.as_user("starter").run("scorer", "rollout", "start", "scorer.yaml", str(path))
        until(lambda: "moved: the rollout starts" in controller.said, "the first move")
        secured.as_user("operator").run("scorer", "rollout", "approve", "scorer.yaml")
        until(lambda: "ended: " in controller.said, "the end")
        assert controller.stop() == 0
    assert "no right" not in controller.said


def test_the_console_reads_with_its_least_rights_and_names_a_revoked_right(secured: Secured) -> None:
    needed = rights.console(NAME)
    secured.broker.users({"console": list(needed.values())})
    with console(secured.as_user("console")) as address:
        until(lambda: ">Kafka connected<" in httpx.get(address, timeout=30).text, "the bus")
        secured.broker.revoke({"console": [needed["scores"]]})
        until(
            lambda: f"no right to Read on topic &#39;{NAME}.scores&#39;" in httpx.get(address, timeout=30).text,
            "the missing right",
        )


def emit(secured: Secured, values: object) -> None:
    secured.as_user("producer").emit(values)  # type: ignore[arg-type]


def scored(secured: Secured) -> int:
    lines = secured.as_user("consumer").run("scorer", "tail", "scorer.yaml", "--no-follow").stdout
    return len(lines.splitlines())


@pytest.mark.parametrize(
    ("right", "delivery"),
    [*((right, "exactly-once") for right in ("output", "input", "group", "transactions")), ("output", "at-least-once")],
)
def test_a_revoked_right_ends_a_running_scorer(secured: Secured, right: str, delivery: str) -> None:
    user = f"revoked-{right}-{delivery}"
    needed = rights.scorer(NAME)
    secured.broker.users({user: list(needed.values())})
    scorer = secured.as_user(user).start(user, "--set", f"delivery={delivery}").ready()
    emit(secured, events(5))
    until(lambda: scorer.metric("scorer_events_total") > 0, "an event")
    secured.broker.revoke({user: [needed[right]]})
    emit(secured, events(5))
    assert scorer.wait() == 3, scorer.said
    assert "uthoriz" in scorer.said or "no right to" in scorer.said
