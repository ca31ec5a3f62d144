"""No password in anything that a process prints, serves or writes to the bus: found by search, for every command."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.scorer.rig import Rig, command, events, until
from tests.integration.security.conftest import NAME, Secured
from tests.support import auditor, warm
from tests.support.canary import CANARY, URL, seen_in

COMMANDS = (
    "config",
    "config --json",
    "check",
    "status",
    "tail --no-follow",
    "emit",
    "replay",
    "audit",
    "offsets",
    "run --log-level DEBUG",
)
EVERYTHING = {"debug": "all", "log_level": 7}
"""The client's own log, as loud as it can be."""


def output_of(rig: Rig, *arguments: str, program: str = "scorer") -> str:
    completed = warm.run([command(program), *arguments], rig.folder)
    return (completed.stdout + completed.stderr).decode()


@pytest.fixture
def loud(secured: Secured) -> Iterator[Secured]:
    secured.rig.configure(kafka={"extra": EVERYTHING})
    yield secured
    del secured.rig.configuration["kafka"]["extra"]


@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_prints_a_password_that_the_broker_refuses(loud: Secured, words: str) -> None:
    secret = "hush-hush-0815"
    (loud.folder / "refused").write_text(secret)
    rig = loud.configure("SCRAM", loud.login("scorer", password_file="refused"))
    verb, *flags = words.split()
    output = output_of(rig, verb, "scorer.yaml", *flags)
    assert output
    assert secret not in output


def test_a_working_scorer_prints_no_password(loud: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    security = loud.login("scorer")
    del security["password_file"]
    monkeypatch.setenv("SCORER_KAFKA__SECURITY__PASSWORD", loud.broker.password)
    rig = loud.configure("SCRAM", security)
    Rig.tested_keys.add("kafka.security.password")
    settings = (f"tracing.endpoint={URL}", f"kafka.extra={{sasl.oauthbearer.client.secret: '{CANARY}'}}")
    scorer = rig.start("loud", "--log-level", "DEBUG", *(word for flag in settings for word in ("--set", flag))).ready()
    monkeypatch.delenv("SCORER_KAFKA__SECURITY__PASSWORD")
    loud.as_user("producer").emit(events(3))
    until(lambda: scorer.metric("scorer_events_total") > 0, "an event")
    served = "".join(scorer.get(path)[1] for path in ("/metrics", "/livez", "/readyz"))
    assert scorer.stop() == 0
    status = b"".join((m.value() or b"") for m in auditor.read(loud.broker.administrator, f"{NAME}.status"))
    printed = scorer.said + served + status.decode()
    assert loud.broker.password not in printed
    assert seen_in(printed) == []


def test_the_audit_takes_a_file_of_client_properties_and_keeps_it(secured: Secured, tmp_path: Path) -> None:
    rig = secured.as_user("auditor")
    lines = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "auditor",
        "sasl.password": secured.broker.password,
        "ssl.ca.location": str(secured.broker.certificates.ca),
    }
    file = tmp_path / "client.properties"
    file.write_text("# an auditor\n\n" + "".join(f"{key} = {value}\n" for key, value in lines.items()))
    address = secured.broker.address("SCRAM")
    topics = ("--bootstrap-servers", address, "--input", f"{NAME}.events", "--output", f"{NAME}.scores", "--json")
    options = ("--dead", f"{NAME}.dead", "--kafka-config", str(file))
    report = json.loads(output_of(rig, "audit", *topics, *options, program="publisher"))
    assert "missing" in report
    file.write_text(file.read_text().replace("sasl.password = ", "sasl.password "))
    output = output_of(rig, "audit", *topics, *options, program="publisher")
    assert f"{file}:6" in " ".join(output.replace("│", "").split()) or "has no '='" in output
    assert secured.broker.password not in output


WRITTEN: tuple[tuple[dict[str, str], tuple[str, ...]], ...] = (
    ({"password": "hush-1"}, ()),
    ({}, ("--set", "kafka.security.password=hush-1")),
    ({"passwort": "hush-1", "password_file": "password"}, ()),
)


def test_a_password_in_the_wrong_place_is_refused_and_not_repeated(secured: Secured) -> None:
    secured.as_user("scorer")
    values = yaml.safe_load(secured.rig.path.read_text())
    for changes, flags in WRITTEN:
        security = secured.login("scorer") | changes
        if "password" in changes:
            del security["password_file"]
        values["kafka"]["security"] = security
        secured.rig.path.write_text(yaml.safe_dump(values))
        message = secured.rig.run("scorer", "config", "scorer.yaml", *flags, code=2).stderr
        assert "kafka.security.passwor" in message
        assert "password_file" in message or "the nearest valid name is 'password'" in message
        assert "hush-1" not in message
    secured.rig.path.write_text("kafka:\n  extra:\n    sasl.password: hush-1: hush-2\n")
    message = secured.rig.run("scorer", "config", "scorer.yaml", code=2).stderr
    assert "in line 3" in message
    assert "hush" not in message
