"""Training, and what begins it, with exactly the rights that deploy/rights.md lists, and with each one missing."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from publisher.errors import REFUSED, Fatal
from publisher.kafka.connection import ANSWER_SECONDS
from publisher.kafka.partitions import LATEST
from tests.chaos.training.ground import PARTITIONS, Ground
from tests.integration.security import rights
from tests.integration.security.broker import PASSWORD, Right
from tests.integration.security.conftest import Secured, without
from tests.integration.security.test_rights import names
from training.pipeline.model_lease import held
from training.publish.commit_label_offsets import commit
from training.settings import load
from training.snapshot.freeze import freeze

NAME = "trained"
WORK = {"training": rights.training(NAME), "trigger": rights.trigger(NAME)}
RECORDING = "training-that-records-its-runs"
DESCRIBES = "training-that-only-describes-its-group"
CASES = [(component, right) for component, needed in WORK.items() for right in needed]


@pytest.fixture(scope="module")
def ground(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """Events and labels, written by the administrator, and a user of each component, also without each of its rights."""
    users = {component: list(needed.values()) for component, needed in WORK.items()}
    users[RECORDING] = [*WORK["training"].values(), *rights.recorder(NAME).values(), *rights.run_reader(NAME).values()]
    for component, right in CASES:
        users[without(component, right)] = [granted for name, granted in WORK[component].items() if name != right]
    users[DESCRIBES] = [*users[without("training", "trigger")], rights.trigger(NAME)["trigger"]]
    secured.broker.users(users)
    folder = tmp_path_factory.mktemp("ground") / NAME
    training_ground = Ground(secured.broker.administrator, folder, None, 2013, champion=False)
    (folder / "password").write_text(PASSWORD)
    return training_ground


def as_user(secured: Secured, ground: Ground, user: str) -> Path:
    """Configure the ground as this user; its training.yaml."""
    path = ground.folder / "scorer.yaml"
    kafka = {"bootstrap_servers": secured.broker.address("SCRAM"), "security": secured.login(user)}
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "kafka": kafka}))
    return ground.folder / "training.yaml"


def lag(secured: Secured, ground: Ground, user: str) -> int:
    """What KEDA adds up: where the labels' partitions end, less what their group has committed. Raises KafkaException."""
    admin = AdminClient(properties(secured, user))
    partitions = [TopicPartition(ground.labels_topic, number) for number in range(PARTITIONS)]
    futures = admin.list_offsets(dict.fromkeys(partitions, LATEST))
    ends: int = sum(future.result(ANSWER_SECONDS).offset for future in futures.values())
    group = f"{NAME}.training"
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(ANSWER_SECONDS)
    committed: int = sum(partition.offset for partition in offsets.topic_partitions or [])
    return ends - committed


def properties(secured: Secured, user: str) -> dict[str, Any]:
    login = secured.login(user)
    return {
        "bootstrap.servers": secured.broker.address("SCRAM"),
        "security.protocol": login["protocol"],
        "sasl.mechanism": login["mechanism"],
        "sasl.username": user,
        "sasl.password": PASSWORD,
        "ssl.ca.location": login["ca_file"],
    }


def test_a_run_works_with_the_least_rights_and_its_trigger_sees_it(secured: Secured, ground: Ground) -> None:
    as_user(secured, ground, "training")
    run = ground.training("run")
    document, _ = run.communicate(timeout=120)
    log_text = (ground.folder / "log").read_text()
    assert run.returncode == 0, log_text
    assert json.loads(document)["outcome"] == "promoted"
    assert "no right" not in log_text
    assert "not written to trained.runs: Broker: Topic authorization failed" in log_text
    assert lag(secured, ground, "trigger") == 0


def test_a_run_with_the_right_on_the_topic_of_runs_writes_its_events(secured: Secured, ground: Ground) -> None:
    as_user(secured, ground, RECORDING)
    log_length = len((ground.folder / "log").read_text())
    run = ground.training("run")
    document, _ = run.communicate(timeout=120)
    log_text = (ground.folder / "log").read_text()[log_length:]
    assert (run.returncode, json.loads(document)["outcome"]) == (0, "nothing-new"), log_text
    assert "was not written" not in log_text
    listed = ground.training("list")
    rows, _ = listed.communicate(timeout=120)
    outcomes = [row["outcome"] for row in json.loads(rows)]
    assert outcomes == ["nothing-new", "promoted"], "the end of the run that had no right is published again"


@pytest.mark.parametrize("right", ["events", "labels"])
def test_a_topic_that_a_run_may_not_read_is_named(secured: Secured, ground: Ground, right: str) -> None:
    training, settings = load(as_user(secured, ground, without("training", right)))
    with pytest.raises(Fatal) as raised:
        freeze(settings, training, time.time_ns() // 1_000_000)
    assert refused(raised.value, WORK["training"][right])


def test_a_run_without_the_right_to_the_lease_names_it(secured: Secured, ground: Ground, tmp_path: Path) -> None:
    _, settings = load(as_user(secured, ground, without("training", "lease")))
    with pytest.raises(Fatal) as raised, held(settings, tmp_path):
        pass
    assert refused(raised.value, WORK["training"]["lease"])


@pytest.mark.parametrize("missing", ["labels", "trigger", "all but Describe"])
def test_the_missing_right_to_commit_is_named(secured: Secured, ground: Ground, missing: str) -> None:
    training, settings = load(as_user(secured, ground, "training"))
    frozen = freeze(settings, training, time.time_ns() // 1_000_000)
    user = DESCRIBES if missing == "all but Describe" else without("training", missing)
    _, settings = load(as_user(secured, ground, user))
    with pytest.raises(Fatal) as raised:
        commit(settings, frozen)
    kind, name, _ = WORK["training"]["labels" if missing == "labels" else "trigger"]
    assert refused(raised.value, (kind, name, rights.DESCRIBE if missing == "trigger" else rights.READ))


@pytest.mark.parametrize(
    ("right", "error"),
    [("labels", KafkaError._NOENT), ("trigger", KafkaError.GROUP_AUTHORIZATION_FAILED)],  # no leader has the labels
)
def test_the_trigger_is_blind_without_any_of_its_rights(secured: Secured, ground: Ground, right: str, error: int) -> None:
    with pytest.raises(KafkaException) as raised:
        lag(secured, ground, without("trigger", right))
    assert raised.value.args[0].code() == error


def refused(error: Fatal, right: Right) -> bool:
    """Whether it ends with 3, and names the right and what grants it."""
    return error.exit_code == REFUSED and names(f"{error}\n{error.hint}", right)
