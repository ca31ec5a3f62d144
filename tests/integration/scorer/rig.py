"""A scorer's whole surroundings for one test: a registry folder, a configuration, topics of its own on the real broker, and the
installed commands, used as a person would use them."""

import functools
import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import yaml
from confluent_kafka import (
    OFFSET_END,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from model_registry.oci import reference
from model_registry.package import push as store_package
from model_registry.stores.open import open_store
from tests.support import auditor, warm
from tests.support.follower import Follower
from tests.support.processes import Program, Service, command
from tests.support.topics import settle
from tests.support.waiting import STEP_SECONDS, until

__all__ = ["STEP_SECONDS", "MakeRig", "Rig", "ScorerProcess", "command", "events", "until"]

LOG_TAIL = 6_000  # characters
COORDINATOR_STARTS = {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR}
"""The errors of a coordinator that has not yet loaded a group, for example after a restart of its broker."""
PASSING = {KafkaError.TOPIC_ALREADY_EXISTS, KafkaError._TIMED_OUT, KafkaError._TRANSPORT}


class ScorerProcess(Service):
    def __init__(self, rig: "Rig", replica: str, flags: Sequence[str], workers: int, environment: dict[str, str]) -> None:
        self.replica = replica
        Rig.tested_keys |= {"replica"} | {flag.partition("=")[0] for flag in flags}
        arguments = [*rig.program, "run", str(rig.path), "--workers", str(workers), "--set", f"replica={replica}", *flags]
        super().__init__(arguments, rig.folder / f"scorer-{replica}-{len(rig.scorers)}.log", environment)

    @property
    def worker(self) -> int:
        until(lambda: "worker 0 is process " in self.said, "the worker in the log")
        return int(re.findall(r"worker 0 is process (\d+)", self.said)[-1])

    @property
    def deaths(self) -> int:
        """How many workers were started in place of another."""
        return self.said.count("starting it again in")


class Rig:
    """See the module. `overrides` are merged into the configuration; every key in it counts as tested."""

    tested_keys: ClassVar[set[str]] = set()

    def __init__(self, bootstrap_servers: str, folder: Path, name: str, **overrides: Any) -> None:
        self.folder = folder
        self.name = name
        self.bootstrap_servers = bootstrap_servers
        self.configuration: dict[str, Any] = {
            "name": name,
            "kafka": {"bootstrap_servers": bootstrap_servers, "session_timeout_ms": 6_000},
            "input": {"topics": [f"{name}.events"], "id": "id"},
            "output": {"topic": f"{name}.scores"},
            "dead_letter": {"topic": f"{name}.dead"},
            "model": {"source": "oci:./registry/model", "poll_seconds": 0.2, "cache": "./cache"},
            "http": {"listen": "127.0.0.1:0"},
        }
        self.path = folder / "scorer.yaml"
        self.program = [command("scorer")]
        self.scorers: list[ScorerProcess] = []
        self.others: list[Program] = []
        self._follower: Follower | None = None
        self.configure(**overrides)

    def configure(self, **overrides: Any) -> None:
        for key, value in overrides.items():
            self.configuration[key] = {**self.configuration.get(key, {}), **value} if isinstance(value, dict) else value
        self.path.write_text(yaml.safe_dump(self.configuration))
        self._note_keys(self.configuration, "")

    def _note_keys(self, values: dict[str, Any], prefix: str) -> None:
        for key, value in values.items():
            if prefix + key == "tables":
                Rig.tested_keys.add("tables")
                for table in value.values():
                    self._note_keys(table, "tables.NAME.")
            elif isinstance(value, dict) and prefix + key not in ("kafka.extra", "schema_registry.extra"):
                self._note_keys(value, f"{prefix}{key}.")
            else:
                Rig.tested_keys.add(prefix + key)

    @property
    def events_topic(self) -> str:
        return f"{self.name}.events"

    @property
    def scores_topic(self) -> str:
        return f"{self.name}.scores"

    @property
    def dead_topic(self) -> str:
        return f"{self.name}.dead"

    def run(self, *arguments: str, code: int | None = 0, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        """A command in the rig's folder, which must end with `code`; None: with any."""
        completed = warm.run([command(arguments[0]), *arguments[1:]], self.folder, stdin)
        out, err = completed.stdout.decode(), completed.stderr.decode()
        assert code in (None, completed.returncode), f"{arguments} ended with {completed.returncode}, not {code}:\n{out}\n{err}"
        return subprocess.CompletedProcess(completed.args, completed.returncode, out, err)

    def push(self, package: Path, version: str, *flags: str) -> None:
        self.run("model-registry", "push", str(package), f"oci:./registry/model:{version}", *flags)

    def push_unchecked(self, package: Path, version: str) -> None:
        """A version into the registry, by something that does not look at what it stores."""
        store = open_store(reference.parse("oci:./registry/model", base_dir=self.folder))
        store_package(store, package, "model", version)

    def promote(self, version: str, reason: str = "test") -> None:
        self.run("model-registry", "promote", "oci:./registry/model", "--to", version, "--reason", reason)

    def stocked(self, partitions: int = 4, versions: int = 1) -> Self:
        """Version 1.0.0, score = 2 n, in production, and all topics; with two versions also 2.0.0, score = 3 n."""
        from tests.support import models  # slow to import, and not every test with a broker asks for it

        for number in range(1, versions + 1):
            self.push(models.linear_package(self.folder / f"{number}.0.0", number + 1.0), f"{number}.0.0")
        self.promote("1.0.0")
        self.create(partitions)
        return self

    def create(self, partitions: int = 4, code: int = 0) -> None:
        """Every topic; `code` 1 where there is no model yet."""
        self.run("scorer", "check", "scorer.yaml", "--create", "--partitions", str(partitions), code=code)

    def start(self, replica: str = "a", *flags: str, workers: int = 1, **environment: str) -> ScorerProcess:
        scorer = ScorerProcess(self, replica, flags, workers, environment)
        self.scorers.append(scorer)
        return scorer

    def emit(self, events: Iterable[Any], *flags: str, key: str | None = "{key}") -> int:
        """Write events (JSON values, or bytes as they are); how many."""
        values = list(events)
        if any(isinstance(e, bytes) for e in values) and "--value" not in flags:
            flags = (*flags, "--raw")
        lines = b"".join((e if isinstance(e, bytes) else json.dumps(e).encode()) + b"\n" for e in values)
        keys = ("--key", key) if key else ()
        completed = self.run("scorer", "emit", "scorer.yaml", "--json", *keys, *flags, stdin=lines)
        count: int = json.loads(completed.stdout)["written"]
        return count

    def produce(self, value: bytes | None, *, key: bytes, headers: Sequence[tuple[str, bytes]] = ()) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap_servers})
        producer.produce(self.events_topic, value, key, headers=list(headers))
        assert producer.flush(10) == 0

    @functools.cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def alter(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result()

    def make_topic(self, topic: str, partitions: int) -> None:
        """Create a topic, and wait until the broker lists it; a recently deleted one may still exist."""

        def made() -> bool:
            try:
                self.admin.create_topics([NewTopic(topic, partitions)])[topic].result()
            except KafkaException as error:
                if error.args[0].retriable() or error.args[0].code() in PASSING:
                    return False
                raise
            return True

        until(made, f"topic {topic}")
        until(lambda: self.leaders(topic) == partitions, f"the leaders of topic {topic}")

    def leaders(self, topic: str) -> int:
        """Return the number of partitions of a topic that have a leader, by the broker's metadata."""
        topics = self.admin.list_topics(timeout=10).topics
        return sum(p.leader >= 0 for p in topics[topic].partitions.values()) if topic in topics else 0

    def make_again(self, topic: str, partitions: int) -> None:
        self.delete(topic)
        self.make_topic(topic, partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until the broker does not list it."""

        def gone() -> bool:
            try:
                self.admin.delete_topics([topic])[topic].result()
            except KafkaException as error:
                return bool(error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART)
            return True

        until(gone, f"the end of topic {topic}")
        until(lambda: self.leaders(topic) == 0, f"the end of topic {topic} in what the broker tells")

    def scores(self) -> list[dict[str, Any]]:
        return [json.loads(m.value() or b"") for m in auditor.read(self.bootstrap_servers, self.scores_topic)]

    def dead(self) -> list[dict[str, Any]]:
        lines = self.run("scorer", "tail", "scorer.yaml", "--dead", "--no-follow").stdout.split("\n")
        return [json.loads(line) for line in lines if line]

    def swaps(self) -> list[dict[str, Any]]:
        rows = [json.loads(m.value() or b"") for m in auditor.read(self.bootstrap_servers, f"{self.name}.swaps")]
        return sorted(rows, key=lambda row: (row["partition"], row["revision"]))

    def fleet(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.run("scorer", "status", "scorer.yaml", "--json").stdout)["scorers"]
        return rows

    def delete_records(self, topic: str) -> None:
        """Delete all records of the topic, as retention does."""
        metadata = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
        partitions = [TopicPartition(topic, p, OFFSET_END) for p in metadata]
        settle(self.admin.delete_records(partitions))

    def marks(self) -> dict[int, dict[str, Any]]:
        """Return the metadata of each partition's committed offset, with the offset, once the coordinator has loaded them."""
        answers: list[ConsumerGroupTopicPartitions] = []

        def is_answered() -> bool:
            request = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.name)])
            try:
                answers.append(request[self.name].result())
            except KafkaException as error:
                if error.args[0].code() not in COORDINATOR_STARTS:
                    raise
            return bool(answers)

        until(is_answered, f"the coordinator of group {self.name}")
        partitions = answers[0].topic_partitions or []
        return {p.partition: {"offset": p.offset, **json.loads(p.metadata or "{}")} for p in partitions}

    def ends(self) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": f"{self.name}.ends"})
        numbers = consumer.list_topics(self.events_topic, timeout=10).topics[self.events_topic].partitions
        return {n: consumer.get_watermark_offsets(TopicPartition(self.events_topic, n), timeout=10)[1] for n in numbers}

    def faults(self) -> dict[str, int]:
        """Return the faults that the second auditor reports, with their counts."""
        return {name: count for name, count in self.audit().items() if name != "inputs" and count}

    def assert_clean(self, **counts: int) -> None:
        """Neither auditor finds anything wrong, the product's counts so, and the other one as many events."""
        report = self.audit()
        assert not any(count for name, count in report.items() if name != "inputs"), report
        assert report["inputs"] == counts.get("events", report["inputs"])
        self.assert_audited(**counts)

    def assert_audited(self, **counts: int) -> None:
        """The product's own auditor finds nothing wrong, and counts so."""
        report = json.loads(self.run("scorer", "audit", "scorer.yaml", "--json").stdout)
        assert report["clean"], report
        assert {name: report[name] for name in counts} == counts

    def audit(self, since_ms: int = 0) -> dict[str, Any]:
        """The count of an auditor that shares no code with the product; of answers to events of that time or later."""
        return auditor.audit(self.bootstrap_servers, self.events_topic, self.scores_topic, self.dead_topic, since_ms)

    def answered(self) -> int:
        """Scores and dead letters that read_committed readers have seen so far."""
        if self._follower is None:
            self._follower = Follower(self.bootstrap_servers, self.scores_topic, self.dead_topic, grows=False)
        return self._follower.seen()

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()
        for program in [*self.scorers, *self.others]:
            program.kill()
            print(f"the end of {program.log.name}:", program.said[-LOG_TAIL:], sep="\n")  # shown of a test that failed


MakeRig = Callable[..., Rig]
"""What the fixture `make_rig` gives: a Rig on fresh topics, with the given settings changed."""


def events(count: int, start: int = 0, keys: int = 20) -> Iterator[dict[str, Any]]:
    """Numbered events for the linear test model: a + b = number."""
    for number in range(start, start + count):
        yield {"id": f"e{number}", "key": f"k{number % keys}", "a": float(number), "b": 0.0}
