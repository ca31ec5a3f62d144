"""Hints about missing rights: the role of a command, and the user to whom they grant rights."""

import pytest
import typer

from publisher.cli import app as publisher
from publisher.kafka import roles
from scorer.cli import app as scorer
from tests.packaging.deploy.manifests import of_kind, rendered

APPS = {"scorer": typer.main.get_command(scorer), "publisher": typer.main.get_command(publisher)}


@pytest.mark.parametrize(
    ("line", "role"),
    [
        ("/usr/bin/scorer run scorer.yaml", "scorer"),
        ("scorer run scorer.yaml --shadow --share 10%", "shadow"),
        ("scorer replay scorer.yaml --rate 500", "replayer"),
        ("scorer replay scorer.yaml --dry-run", "auditor"),
        ("scorer rollout run scorer.yaml", "rollout-controller"),
        ("scorer rollout approve scorer.yaml", "promoter"),
        ("publisher audit publisher.yaml", "relay"),
        ("publisher audit --input=flights --output flights.scores", "auditor"),
        ("publisher failover publisher.yaml --to us-east", "relay-inputs"),
        ("scorer config scorer.yaml", None),
        ("python -c pass", None),
        ("", None),
    ],
)
def test_the_role_of_a_command_is_that_of_its_most_specific_entry(line: str, role: str | None) -> None:
    assert roles.role_of(line.split()) == role


def test_a_hint_names_the_role_before_the_grant() -> None:
    assert roles.hint("grant Read", "auditor") == "run it as the auditor (deploy/rights.md), or grant Read"
    assert roles.hint("grant Read", None) == "grant Read"


@pytest.mark.parametrize(
    ("role", "user"), [("scorer", "eva"), ("relay", "eva"), (None, "eva"), ("replayer", "REPLAYER"), ("producer", "PRODUCER")]
)
def test_rights_of_another_role_are_never_granted_to_the_current_user(role: str | None, user: str) -> None:
    assert roles.principal("eva", role) == user
    assert roles.principal("", "scorer") == "NAME"


def test_every_role_has_a_user_of_its_name() -> None:
    assert set(roles.ROLES) <= set(of_kind(rendered("kafka/failover/us-east"), "KafkaUser"))
    assert set(roles.ROLES) >= roles.SERVICES


@pytest.mark.parametrize("command", [command for commands in roles.ROLES.values() for command in commands])
def test_every_command_of_a_role_exists(command: str) -> None:
    program, *words = command.split()
    group = APPS[program]
    for word in words:
        if word.startswith("-"):
            assert any(word in parameter.opts for parameter in group.params)
        else:
            group = group.commands[word]  # type: ignore[attr-defined]
