"""The commands of the page on topics and users create the topics and users that the chart creates for Strimzi, and remove them.

The commands of Kafka and kubectl are programs that record their arguments.
"""

import os
import re
import shlex
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.docs import pages
from tests.packaging.deploy.chart import EXAMPLES, needs_helm, render
from tests.packaging.deploy.manifests import of_kind, rendered
from tests.support.environment import ROOT

PAGE = "deploy/kafka.md"
PROGRAMS = ("kafka-topics.sh", "kafka-configs.sh", "kafka-acls.sh", "kafka-consumer-groups.sh", "kubectl")
RECORD = '#!/bin/sh\n{ printf "%s\\t" "$0" "$@"; echo; } >> "$LOG"\n'
RESOURCES = {"topic": "topic", "group": "group", "transactional-id": "transactionalId"}

Right = tuple[str, str, bool, str]
"""Type and name of the resource, whether the name is a prefix, and the operation."""


def options(arguments: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each option; an option without a value has none."""
    values = defaultdict[str, list[str]](list)
    name = ""
    for argument in arguments:
        if argument.startswith("--"):
            name, _, value = argument.partition("=")
            values[name] += [value] if value else []
        else:
            values[name].append(argument)
    return values


def commands(
    folder: Path, names: Iterable[str], change: Mapping[str, str] | None = None
) -> list[tuple[str, dict[str, list[str]]]]:
    """Run blocks of the page, and return the recorded programs with their options.

    Args:
        folder: An empty folder in which the blocks run.
        names: The blocks.
        change: Texts to replace in the blocks.
    """
    (folder / "programs").mkdir()
    for program in PROGRAMS:
        path = folder / "programs" / program
        path.write_text(RECORD)
        path.chmod(0o755)
    (folder / "kafka-ca.pem").touch()
    script = "set -eu\n" + "".join(pages.blocks(PAGE)[name] for name in names)
    for old, new in (change or {}).items():
        assert old in script
        script = script.replace(old, new)
    environment = os.environ | {"PATH": f"{folder / 'programs'}:{os.environ['PATH']}", "LOG": str(folder / "log")}
    subprocess.run(["sh", "-c", script], cwd=folder, env=environment, check=True)
    recorded = [line.rstrip("\t").split("\t") for line in (folder / "log").read_text().splitlines()]
    return [(Path(program).name, options(arguments)) for program, *arguments in recorded]


def churn(kind: str) -> dict[str, Any]:
    """Return the objects of Strimzi, by name, that the chart creates for the release of the page."""
    values = {"strimzi.enabled": True, "strimzi.cluster": "events"}
    return of_kind(render([EXAMPLES / "churn.yaml"], values, release="churn", namespace="ml"), kind)


def rights_in(acls: Iterable[dict[str, list[str]]], action: str) -> dict[str, set[Right]]:
    """Return the rights that calls of kafka-acls.sh add or remove, by principal."""
    rights = defaultdict[str, set[Right]](set)
    for call in acls:
        assert action in call
        is_prefix = call.get("--resource-pattern-type") == ["prefixed"]
        (principal,) = call["--allow-principal"]
        for option, kind in RESOURCES.items():
            for name in call.get(f"--{option}", []):
                rights[principal] |= {(kind, name, is_prefix, operation) for operation in call["--operation"]}
    return rights


def rights_of_users() -> dict[str, set[Right]]:
    return {
        f"User:{name}": {
            (rule["resource"]["type"], rule["resource"]["name"], "patternType" in rule["resource"], operation)
            for rule in user["spec"]["authorization"]["acls"]
            for operation in rule["operations"]
        }
        for name, user in churn("KafkaUser").items()
    }


@needs_helm
def test_the_commands_create_the_topics_of_the_release(tmp_path: Path) -> None:
    created = {}
    for program, call in commands(tmp_path, ["kafka-names", "kafka-topics"]):
        assert program == "kafka-topics.sh"
        assert call["--command-config"] == ["admin.properties"]
        (name,), (partitions,), (replicas,) = (call[f"--{key}"] for key in ("topic", "partitions", "replication-factor"))
        created[name] = (int(partitions), int(replicas), dict(setting.split("=") for setting in call["--config"]))
    expected = {
        thing["spec"]["topicName"]: (
            thing["spec"]["partitions"],
            thing["spec"]["replicas"],
            {key: str(value) for key, value in thing["spec"]["config"].items()},
        )
        for thing in churn("KafkaTopic").values()
    }
    assert created == expected


@needs_helm
def test_the_commands_create_a_user_and_a_secret_for_each_component(tmp_path: Path) -> None:
    recorded = commands(tmp_path, ["kafka-names", "kafka-users"])
    users = {call["--entity-name"][0] for program, call in recorded if program == "kafka-configs.sh"}
    assert users == set(churn("KafkaUser"))
    secrets = [call for program, call in recorded if program == "kubectl" and "secret" in call[""]]
    assert all(set(call["--from-file"]) == {"password", "ca.crt=kafka-ca.pem"} for call in secrets)
    names = {call["--from-literal"][0].removeprefix("username="): call[""][-1] for call in secrets}
    assert names == {user: f"churn-{user.rpartition('.')[2]}-kafka" for user in users}
    assert not (tmp_path / "password").exists()


@needs_helm
def test_the_commands_grant_the_rights_of_each_user(tmp_path: Path) -> None:
    recorded = commands(tmp_path, ["kafka-names", "kafka-rights"])
    assert rights_in((call for _, call in recorded), "--add") == rights_of_users()


@needs_helm
def test_the_commands_remove_the_topics_and_users_that_they_created(tmp_path: Path) -> None:
    instruction = re.search(r"with `(acls\(\) \{.*?\})`", (ROOT / PAGE).read_text().partition("## Remove them")[2], re.DOTALL)
    assert instruction
    recorded = commands(
        tmp_path,
        ["kafka-names", "kafka-rights", "kafka-removal"],
        {'acls() { kafka kafka-acls.sh --add "$@"; }': " ".join(instruction[1].split())},
    )
    acls = [call for program, call in recorded if program == "kafka-acls.sh"]
    assert all("--force" in call for call in acls)
    assert rights_in(acls, "--remove") == rights_of_users()
    deleted = {call["--topic"][0] for program, call in recorded if program == "kafka-topics.sh" and "--delete" in call}
    assert deleted == {thing["spec"]["topicName"] for thing in churn("KafkaTopic").values()}
    assert {call["--entity-name"][0] for program, call in recorded if program == "kafka-configs.sh"} == set(churn("KafkaUser"))
    (groups,) = (call["--group"] for program, call in recorded if program == "kafka-consumer-groups.sh")
    assert groups == ["ml.churn"]


def test_partitions_are_added_to_the_input_last(tmp_path: Path) -> None:
    recorded = commands(tmp_path, ["kafka-names", "kafka-partitions"])
    altered = [call["--topic"][0] if program == "kafka-topics.sh" else program for program, call in recorded]
    outputs = {"ml.churn.scores", "ml.churn.scores.corrections", "ml.churn.scores.shadow", "ml.churn.dead"}
    assert set(altered[:4]) == outputs
    assert altered[4:] == ["kubectl", "kubectl", "clicks"]
    assert {call["--partitions"][0] for program, call in recorded if program == "kafka-topics.sh"} == {"12"}


PLACEHOLDERS = {
    "eu-west.flights": "copies",
    "us-east.flights": "copies in `O`",
    "flights": "inputs",
    "flight-delay": "`N`",
    "inputs.checkpoints": "`inputs.checkpoints`",
    "inputs-": "prefix `inputs-`",
}


@pytest.mark.parametrize(("user", "region"), [("relay-inputs", "us-east"), ("relay-inputs-source", "eu-west")])
def test_the_page_lists_the_rights_of_the_relays_for_a_failover(user: str, region: str) -> None:
    """The relay runs in us-east and copies the inputs of eu-west; in eu-west there are copies of the inputs of us-east."""
    section = (ROOT / PAGE).read_text().partition("## For a failover between regions")[2].partition("\n## ")[0]
    (row,) = re.findall(rf"^\| `{user}` in .*? \| .*? \| (.*) \|$", section, re.MULTILINE)
    cells: dict[str, dict[str, list[str]]] = {"topic": {}, "group": {}, "transactionalId": {}}
    acls = of_kind(rendered(f"kafka/failover/{region}"), "KafkaUser")[user]["spec"]["authorization"]["acls"]
    for rule in acls:
        name = PLACEHOLDERS[rule["resource"]["name"]]
        cells[rule["resource"]["type"]].setdefault(", ".join(rule["operations"]), []).append(name)
    listed = [set(filter(None, cell.strip().split("; "))) for cell in row.split("|")]
    assert listed == [{f"{operations}: {', '.join(names)}" for operations, names in cell.items()} for cell in cells.values()]


def test_the_page_lists_the_settings_of_the_checkpoint_topic() -> None:
    section = (ROOT / PAGE).read_text().partition("## For a failover between regions")[2].partition("\n## ")[0]
    (row,) = re.findall(r"^\| `inputs\.checkpoints` \| 1 \| (.*) \|$", section, re.MULTILINE)
    config = of_kind(rendered("kafka/failover/us-east"), "KafkaTopic")["inputs.checkpoints"]["spec"]["config"]
    settings = {f"{key}={value}" for key, value in config.items() if key != "min.insync.replicas"}
    assert set(shlex.split(row.replace("`", "").replace(",", ""))) == settings
