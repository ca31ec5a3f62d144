"""Two regions with the topics, users and rights of `deploy/kubernetes/kafka/failover`, and the pods that the runbooks name.

One broker stands for both clusters: it has the users of each region as principals of their own, `<region>.<user>`. A pod is a
folder with the configuration of its user, in which its commands run.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, NewTopic, ResourceType

from tests.integration.scorer.rig import Rig, events, until
from tests.integration.security.broker import Right
from tests.integration.security.conftest import Secured
from tests.packaging.deploy.manifests import of_kind, rendered
from tests.support import auditor, warm
from tests.support.follower import Follower
from tests.support.processes import Service, command
from tests.support.runbooks import MACHINE, RunbookCommand, users_by_place
from tests.support.topics import settle

REGIONS = ("eu-west", "us-east")
HOME = "eu-west"
"""The region of commands without the option `--context`, and the region that scores."""
SCORER = "flight-delay-scorer-0"
PROMOTER = "deployment/flight-delay-toolbox-promoter"
SCORES_RELAY = "flight-delay-relay-us-east-0"
INPUTS_RELAY = "flight-delay-relay-inputs-0"
REGISTRY = "registry.example.com/team/flight-delay"
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactionalId": ResourceType.TRANSACTIONAL_ID,
}
OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}
PARTITIONS = 2  # instead of 12, so that the test is short
EVENTS = 40


def rights_of(user: dict[str, Any]) -> list[Right]:
    """Return the rights of a KafkaUser."""
    rights = []
    for rule in user["spec"]["authorization"]["acls"]:
        resource = rule["resource"]
        name = resource["name"] + ("*" if resource.get("patternType") == "prefix" else "")
        rights += [(KINDS[resource["type"]], name, OPERATIONS[operation]) for operation in rule["operations"]]
    return rights


class ShippedRegions:
    """The regions, a scorer in `HOME`, a relay of scores into it, and relays of inputs in both directions."""

    def __init__(self, secured: Secured, folder: Path) -> None:
        self._secured = secured
        self._folder = folder
        self._create_users_and_topics()
        (folder / "administrator").mkdir()
        self._rig = Rig(secured.broker.administrator, folder / "administrator", "flight-delay")
        self._rig.configure(
            input={"topics": ["flights"], "id": "id"},
            output={"topic": "flights.scores"},
            dead_letter={"topic": "flights.dead"},
        )
        self._stock_registry()
        for region in REGIONS:
            for place, users in users_by_place().items():
                self._write_pod(region, place, users)
        self._scorer: Service | None = None
        self._relays: dict[tuple[str, str], Service] = {}

    def start(self) -> Self:
        """Start the scorer and the relays, and write events of which some become dead letters."""
        self._start_scorer()
        wrong = [{"id": "no-field", "key": "k", "a": 1.0}, {"id": "wrong-type", "key": "k", "a": "one", "b": 0.0}]
        self._rig.emit([*events(EVENTS), *wrong])
        for region, place in ((HOME, SCORES_RELAY), (HOME, INPUTS_RELAY), ("us-east", INPUTS_RELAY)):
            self.start_relay(region, place).ready()
        with contextlib.closing(Follower(self._secured.broker.administrator, "flights.scores", "flights.dead")) as answers:
            until(lambda: answers.seen() >= EVENTS + len(wrong), "the answers")
        until(lambda: all(self._is_copied(region, place) for region, place in self._relays), "the copies")
        return self

    def stop(self) -> None:
        for process in (self._scorer, *self._relays.values()):
            if process is not None:
                process.kill()
                print(f"the end of {process.log.name}:", process.said[-3_000:], sep="\n")  # shown of a test that failed
        self._rig.close()

    def start_relay(self, region: str, place: str) -> Service:
        """Start the relay of a place, after the running one is stopped."""
        if (region, place) in self._relays:
            assert self._relays[region, place].stop() == 0
        arguments = [command("publisher"), "run", str(self.pod(region, place) / "publisher.yaml")]
        relay = Service(arguments, self._folder / f"{region}-{place}.log")
        self._relays[region, place] = relay
        return relay

    def claim_further_copy(self) -> None:
        """Move a position of the relay of scores to the end of the source, as if the copies there had been truncated."""
        servers = self._secured.broker.administrator
        positions: dict[bytes, dict[str, Any]] = {}
        for message in auditor.read(servers, "scores.checkpoints"):
            value = json.loads(message.value() or b"{}")
            if value.get("copied", -1) >= 0:
                positions[message.key() or b""] = value
        key, position = next(iter(positions.items()))
        partition = TopicPartition("flights.scores", int(key.rpartition(b"/")[2]))
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "claim"})
        _, end = consumer.get_watermark_offsets(partition, timeout=30)
        consumer.close()
        producer = Producer({"bootstrap.servers": servers})
        producer.produce("scores.checkpoints", json.dumps(position | {"next": end, "copied": end - 1}), key)
        assert producer.flush(30) == 0

    def pod(self, region: str, place: str) -> Path:
        """Return the folder in which the commands of a place run."""
        return self._folder / region / place.replace("/", "-").replace(" ", "-")

    def run(self, step: RunbookCommand) -> tuple[int, str]:
        """Run a command of a runbook at its place. Return its exit code, and its output with its error messages."""
        assert step.place is not None
        region = step.context or HOME
        words = [word.replace(REGISTRY, "oci:./registry/model") for word in step.words]
        stdin = b""
        with contextlib.ExitStack() as after:
            if "failover" in words and "--dry-run" not in words:
                stdin = words[words.index("--to") + 1].encode() + b"\n"  # the confirmation
                self._stop_scorer()
                after.callback(self._start_scorer)
            if "rollback" in words:
                self._promote_newer_version(region)
            completed = warm.run([command(words[0]), *words[1:]], self.pod(region, step.place), stdin)
        return completed.returncode, (completed.stdout + completed.stderr).decode()

    def _create_users_and_topics(self) -> None:
        broker = self._secured.broker
        topics: dict[str, Any] = {}
        for region in REGIONS:
            objects = rendered(f"kafka/failover/{region}")
            users = of_kind(objects, "KafkaUser")
            broker.users({f"{region}.{name}": rights_of(user) for name, user in users.items()})
            topics |= of_kind(objects, "KafkaTopic")
        new = []
        for name, topic in topics.items():
            spec = topic["spec"]
            config = {key: str(value) for key, value in spec["config"].items() if key != "min.insync.replicas"}
            new.append(NewTopic(name, min(spec["partitions"], PARTITIONS), 1, config=config))
        settle(broker.admin().create_topics(new))

    def _stock_registry(self) -> None:
        from tests.support import models  # slow to import

        for number in (1, 2):
            package = models.linear_package(self._rig.folder / f"{number}.0.0", number + 1.0)
            self._rig.push(package, f"{number}.0.0")
        self._rig.promote("1.0.0")

    def _write_pod(self, region: str, place: str, users: tuple[str, ...]) -> None:
        folder = self.pod(region, place)
        folder.mkdir(parents=True)
        (folder / "registry").symlink_to(self._rig.folder / "registry")
        if place == MACHINE:
            for each in REGIONS:
                (folder / each).mkdir()
                (folder / each / "scorer.yaml").write_text(yaml.safe_dump(self._scorer_configuration(each, users[0])))
        elif len(users) == 1:
            (folder / "scorer.yaml").write_text(yaml.safe_dump(self._scorer_configuration(region, users[0])))
        else:
            (folder / "publisher.yaml").write_text(yaml.safe_dump(self._relay_configuration(region, place, *users)))

    def _scorer_configuration(self, region: str, user: str) -> dict[str, Any]:
        inputs = {"topics": ["flights", f"{_other(region)}.flights"], "id": "id"}
        kafka = {**self._rig.configuration["kafka"], **self._client(region, user)}
        return self._rig.configuration | {"region": region, "input": inputs, "kafka": kafka}

    def _relay_configuration(self, region: str, place: str, user: str, source_user: str) -> dict[str, Any]:
        kind = "scores" if place == SCORES_RELAY else "inputs"
        source: dict[str, Any] = {"region": _other(region), **self._client(_other(region), source_user)}
        source |= {"topics": ["flights.scores"]} if kind == "scores" else {"topics": ["flights"], "groups": ["flight-delay"]}
        form = "{topic}.{region}" if kind == "scores" else "{region}.{topic}"
        return {
            "name": f"{kind}-{_other(region)}-to-{region}",
            "source": source,
            "destination": {"region": region, "topic": form, **self._client(region, user)},
            "checkpoint_topic": f"{kind}.checkpoints",
            "http": {"listen": "127.0.0.1:0"},
        }

    def _client(self, region: str, user: str) -> dict[str, Any]:
        security = self._secured.login(f"{region}.{user}", password_file=str(self._secured.folder / "password"))
        return {"bootstrap_servers": self._secured.broker.address("SCRAM"), "security": security}

    def _start_scorer(self) -> None:
        path = self.pod(HOME, SCORER) / "scorer.yaml"
        arguments = [command("scorer"), "run", str(path), "--set", f"replica={SCORER}"]
        self._scorer = Service(arguments, self._folder / "scorer.log").ready()

    def _stop_scorer(self) -> None:
        assert self._scorer is not None
        assert self._scorer.stop() == 0

    def _promote_newer_version(self, region: str) -> None:
        words = ("scorer", "promote", "scorer.yaml", "--to", "2.0.0", "--reason", "the test of a rollback", "--wait")
        completed = warm.run([command(words[0]), *words[1:]], self.pod(region, PROMOTER))
        assert completed.returncode == 0, completed.stderr.decode()

    def _is_copied(self, region: str, place: str) -> bool:
        completed = warm.run([command("publisher"), "status", "publisher.yaml", "--json"], self.pod(region, place))
        rows = json.loads(completed.stdout)["partitions"]
        return bool(rows) and all(row["lag_records"] == 0 for row in rows)


def _other(region: str) -> str:
    return next(each for each in REGIONS if each != region)


@contextlib.contextmanager
def shipped_regions(secured: Secured, folder: Path) -> Iterator[ShippedRegions]:
    """Yield running regions, and stop their processes afterwards."""
    regions = ShippedRegions(secured, folder)
    try:
        yield regions.start()
    finally:
        regions.stop()
