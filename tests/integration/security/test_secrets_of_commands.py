"""Every command of every program, with a password in each place that takes one: nothing that is printed or logged holds it.

The commands and their arguments are taken from the programs, so that a new command is covered or named here.
"""

import base64
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
import yaml
from typer.testing import CliRunner

from model_registry.cli import app as model_registry
from publisher.cli import app as publisher
from publisher.errors import Fatal
from publisher.runtime import command_line
from publisher.runtime.configuration import SettingsError
from scorer.cli import app as scorer
from tests.docs.reference import flat
from tests.integration.security.conftest import Secured
from tests.support.canary import CANARY, URL, USER, merged, seen_in
from training.cli import VERBS

PROGRAMS = {
    "scorer": scorer,
    "publisher": publisher,
    "model-registry": model_registry,
    "training": command_line.program("The verbs of scorer train.", VERBS),
}
CONFIGURATIONS = {"scorer": "scorer.yaml", "publisher": "publisher.yaml", "training": "training.yaml"}
ELSEWHERE = {
    "scorer demo": "starts a broker of its own and takes no secret",
    "training demo": "starts a broker of its own and takes no secret",
    "scorer train": "restarts the process: its verbs are called as `training`",
    "scorer run": "forks workers: test_secrets.py runs it as a process",
    "scorer console": "serves until it is ended",
}
"""Commands that cannot be called within a test, and why."""
REGISTRY = "registry.invalid"
REFERENCE = f"{REGISTRY}/models/flight"
GIVEN = {
    "event": "flight-1",
    "file": "events.jsonl",
    "table": "customers",
    "to": "1.0.0",
    "plan": "plan.yaml",
    "seq": "1",
    "candidate": "2.0.0",
    "model": f"{REFERENCE}:1.0.0",
    "refs": f"{REFERENCE}:1.0.0",
    "ref": f"{REFERENCE}:1.0.0",
    "repo": REFERENCE,
    "source": REFERENCE,
    "destination": f"{REFERENCE}-copy",
    "folder": "package",
    "predicate": "predicate.json",
    "type_": "https://example.com/type",
    "key": "missing.key",
    "prefix": "new-key",
    "topic": "topic",
    "version": "1.0.0",
    "name": "run-1",
    "mlflow": "mlflow",
}
"""A value of each argument and option that some command requires, by its name."""
BESIDE = {"scorer rescore": ["--status", "scored"], "scorer schema": [f"{REFERENCE}:1.0.0"], "scorer tail": ["--no-follow"]}
"""What commands need that is not declared as required, and what makes them end."""


def commands() -> Iterator[Any]:
    for program, app in PROGRAMS.items():
        group: Any = typer.main.get_command(app)
        for name, command in sorted(flat(group.commands)):
            yield pytest.param(program, name, command, id=f"{program}-{name.replace(' ', '-')}")


COMMANDS = list(commands())
CONFIGURED = [p for p in COMMANDS if any(one.metavar == "CONFIG" for one in p.values[2].params)]
CALLED = [p for p in COMMANDS if f"{p.values[0]} {p.values[1]}" not in ELSEWHERE]


def line(program: str, name: str, command: Any) -> list[str]:
    """The words of a command with everything that it requires."""
    words = [*name.split(), *BESIDE.get(f"{program} {name}", ())]
    for parameter in command.params:
        if parameter.metavar == "CONFIG" and program in CONFIGURATIONS:
            words.append(CONFIGURATIONS[program])
        elif parameter.required and parameter.param_type_name == "argument":
            words.append(GIVEN[parameter.name])
        elif parameter.required:
            words += [parameter.opts[0], GIVEN[parameter.name]]
    return words


def printed(program: str, words: list[str], caplog: pytest.LogCaptureFixture) -> tuple[BaseException | None, str]:
    """What the command raises, and everything that it prints, logs and raises as text."""
    caplog.clear()
    caplog.set_level(logging.DEBUG)
    result = CliRunner().invoke(PROGRAMS[program], words)
    return result.exception, f"{result.output}{result.exception}{result.exception!r}{caplog.text}"


SECRETS: dict[str, dict[str, Any]] = {
    "scorer.yaml": {
        "name": "n",
        "kafka": {"extra": {"sasl.oauthbearer.client.secret": CANARY, "ssl.keystore.password": CANARY}},
        "input": {"topics": ["in"], "format": "avro"},
        "output": {"topic": "out"},
        "schema_registry": {"url": URL, "extra": {"ssl.key.password": CANARY, "bearer.auth.token": CANARY, "proxy": URL}},
        "model": {"source": REFERENCE, "cache": "cache"},
        "tracing": {"endpoint": URL},
    },
    "publisher.yaml": {
        "name": "r",
        "source": {"region": "eu", "topics": ["in"], "extra": {"sasl.oauthbearer.client.secret": CANARY}},
        "destination": {"region": "us", "extra": {"ssl.keystore.password": CANARY}},
    },
    "training.yaml": {"scorer": "scorer.yaml", "signature": "signature.json"},
}
"""A password in each map and URL of each configuration; those of the log-ins are variables."""
FAULTS: dict[str, dict[str, Any]] = {
    "scorer.yaml": {"output": {"topic": "in"}},
    "publisher.yaml": {"destination": {"region": "eu"}},
    "training.yaml": {},
}
"""A fault between settings of each configuration."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, and an environment in which every variable that takes a password holds it."""
    monkeypatch.chdir(tmp_path)
    login = base64.b64encode(f"{USER}:{CANARY}".encode()).decode()
    (tmp_path / "config.json").write_bytes(msgspec.json.encode({"auths": {REGISTRY: {"auth": login}}}))
    (tmp_path / "plan.yaml").write_text("steps: [{weight: 5}]\n")
    variables = {
        "DOCKER_CONFIG": str(tmp_path),
        "MODEL_REGISTRY_KEY_PASSWORD": CANARY,
        "HTTPS_PROXY": URL,
        "https_proxy": URL,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={CANARY}",
        "SCORER_KAFKA__SECURITY__PASSWORD": CANARY,
        "PUBLISHER_SOURCE__SECURITY__PASSWORD": CANARY,
        "PUBLISHER_DESTINATION__SECURITY__PASSWORD": CANARY,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def write(folder: Path, over: dict[str, dict[str, Any]], kafka: dict[str, Any]) -> None:
    """Every configuration, with these values over its own, and with these settings of every cluster."""
    for name, values in SECRETS.items():
        document = merged(values, over.get(name, {}))
        for section in ("kafka", "source", "destination"):
            if section in document:
                document[section] = merged(document[section], kafka)
        (folder / name).write_text(yaml.safe_dump(document))


@pytest.mark.parametrize(("program", "name", "command"), CONFIGURED)
def test_a_fault_between_settings_prints_no_password(
    program: str, name: str, command: Any, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    login = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": USER}
    write(folder, FAULTS, {"bootstrap_servers": "127.0.0.1:1", "security": login})
    error, output = printed(program, line(program, name, command), caplog)
    assert seen_in(output) == []
    assert isinstance(error, SettingsError | Fatal), output


@pytest.mark.parametrize(("program", "name", "command"), CALLED)
def test_a_service_that_refuses_a_password_has_no_command_print_it(
    program: str, name: str, command: Any, folder: Path, secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    login = secured.login("scorer")
    del login["password_file"]
    broker = {"bootstrap_servers": secured.broker.address("SCRAM"), "security": login}
    write(folder, {}, broker | {"extra": {"debug": "all", "log_level": 7}})
    _, output = printed(program, line(program, name, command), caplog)
    assert seen_in(output) == []
    assert "Usage" not in output, output


@pytest.mark.parametrize(("program", "name", "command"), [p for p in COMMANDS if p.values[0] == "model-registry"])
def test_user_information_in_a_reference_is_masked(
    program: str, name: str, command: Any, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for reference in (URL, f"{USER}:{CANARY}@{REFERENCE}:1.0.0"):
        words = [reference if word.startswith(REGISTRY) else word for word in line(program, name, command)]
        assert seen_in(printed(program, words, caplog)[1]) == []
    assert folder.exists()
