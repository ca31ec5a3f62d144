"""The manifests' topics, users and rights on a real broker: every component does its work with them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AclOperation, NewTopic, ResourceType

from tests.integration.scorer.rig import Rig, until
from tests.integration.security.broker import PASSWORD, Right, SecuredBroker
from tests.packaging.deploy.manifests import configuration, of_kind, rendered
from tests.support import models

KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "transactionalId": ResourceType.TRANSACTIONAL_ID}
OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}
COUNT = 300


def rights(user: dict[str, Any]) -> list[Right]:
    """What a KafkaUser may do, as an authorizer is told."""
    found: list[Right] = []
    for rule in user["spec"]["authorization"]["acls"]:
        resource = rule["resource"]
        name = resource["name"] + ("*" if resource.get("patternType") == "prefix" else "")
        found += [(KINDS[resource["type"]], name, OPERATIONS[operation]) for operation in rule["operations"]]
    return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker with the topics and the users of the manifests."""
    things = rendered("kafka/cluster")
    with SecuredBroker(tmp_path_factory.mktemp("broker") / "broker") as running:
        admin = running.admin()
        topics = []
        for name, thing in of_kind(things, "KafkaTopic").items():
            config = {key: str(value) for key, value in thing["spec"]["config"].items() if key != "min.insync.replicas"}
            topics.append(NewTopic(name, thing["spec"]["partitions"], 1, config=config))
        for future in admin.create_topics(topics).values():
            future.result(30)
        running.users({name: rights(user) for name, user in of_kind(things, "KafkaUser").items()})
        yield running


def at_work(broker: SecuredBroker, folder: Path) -> Rig:
    """The overlay's configuration with the broker's address and a registry in `folder`."""
    things = rendered("overlays/cpu")
    values = yaml.safe_load(configuration(things, of_kind(things, "StatefulSet")["scorer"]))
    rig = Rig(broker.administrator, folder, values["name"])
    rig.configuration = values | {"kafka": {}}
    rig.configure(
        kafka={"bootstrap_servers": broker.address("SCRAM")},
        model={"source": "oci:./registry/model", "poll_seconds": 0.2, "cache": "./cache"},
        http={"listen": "127.0.0.1:0"},
    )
    return rig


def identified(rig: Rig, broker: SecuredBroker, user: str) -> None:
    """Have the rig's commands come as this user."""
    password = rig.folder / "password"
    password.write_text(PASSWORD)
    security = {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "username": user, "password_file": str(password)}
    rig.configure(kafka={"security": security | {"ca_file": str(broker.certificates.ca)}})


def test_every_component_does_its_work_with_its_rights(broker: SecuredBroker, tmp_path: Path) -> None:
    rig = at_work(broker, tmp_path)
    rig.push(models.package(tmp_path / "one", lambda path: models.linear(path, 2.0)), "1.0.0")
    rig.promote("1.0.0")
    try:
        identified(rig, broker, "scorer")
        rig.run("scorer", "check", "scorer.yaml")
        rig.start("scorer-0").ready()
        identified(rig, broker, "producer")
        flow = [{"flight_id": f"f{n}", "key": f"k{n % 9}", "a": float(n), "b": 0.0} for n in range(COUNT)]
        assert rig.emit([*flow, {"flight_id": "bad", "key": "k"}]) == COUNT + 1
        identified(rig, broker, "auditor")
        until(lambda: json.loads(rig.run("scorer", "audit", "scorer.yaml", "--json").stdout)["scored"] == COUNT, "all scores")
        assert len(rig.run("scorer", "tail", "scorer.yaml", "--dead", "--no-follow").stdout.splitlines()) == 1
        assert rig.fleet()
        identified(rig, broker, "replayer")
        rig.run("scorer", "replay", "scorer.yaml")
        identified(rig, broker, "scorer")
        assert rig.scorers[0].stop() == 0
    finally:
        rig.close()
