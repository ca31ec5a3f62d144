"""A relay's whole surroundings for one test: a configuration, topics of its own on two real clusters, the installed command,
and a count of what arrived that shares no code with the product."""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import yaml
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, NewPartitions, NewTopic, ResourceType

from tests.integration.relay.counting import compare
from tests.support import auditor, warm
from tests.support.follower import Follower
from tests.support.processes import Service, command
from tests.support.topics import admin, settle
from tests.support.waiting import until


class RelayRig:
    """See the module. `overrides` are merged into the configuration."""

    def __init__(self, clusters: tuple[str, str], folder: Path, name: str, **overrides: Any) -> None:
        self.name = name
        self.topic = f"{name}.scores"
        self.source, self.destination = source, destination = clusters
        self.folder = folder
        self.path = folder / f"{name}.yaml"
        self.configuration: dict[str, Any] = {
            "name": name,
            "source": {"region": "eu", "bootstrap_servers": source, "topics": [self.topic]},
            "destination": {"region": "us", "bootstrap_servers": destination, "create_topics": True},
            "checkpoint_topic": f"{name}.checkpoints",
            "http": {"listen": "127.0.0.1:0"},
        }
        self.program = [command("publisher")]
        self.processes: list[Service] = []
        self.written = 0
        self._followers: dict[str, Follower] = {}
        self.configure(**overrides)

    def configure(self, **overrides: Any) -> None:
        for key, value in overrides.items():
            old = self.configuration.get(key, {})
            self.configuration[key] = {**old, **value} if isinstance(value, dict) and key != "filter" else value
        self.path.write_text(yaml.safe_dump(self.configuration))

    def turn_round(self, topic: str) -> None:
        """From now on the relay of the other direction, of this topic."""
        self.source, self.destination, self.topic = self.destination, self.source, topic
        self.configure(
            source={"region": "us", "bootstrap_servers": self.source, "topics": [topic]},
            destination={"region": "eu", "bootstrap_servers": self.destination},
        )

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        words = [*arguments[:2]] if arguments[0] == "checkpoint" else [arguments[0]]
        full = [*self.program, *words, str(self.path), *arguments[len(words) :]]
        completed = warm.run(full)
        out, err = completed.stdout.decode(), completed.stderr.decode()
        assert completed.returncode == code, f"{full} ended with {completed.returncode}, not {code}:\n{out}\n{err}"
        return subprocess.CompletedProcess(full, code, out, err)

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def start(self, *flags: str, program: Sequence[str] = (), **environment: str) -> Service:
        settings = [word for flag in flags for word in ("--set", flag)]
        arguments = [*(program or self.program), "run", str(self.path), *settings]
        process = Service(arguments, self.folder / f"{self.name}-{len(self.processes)}.log", environment)
        self.processes.append(process)
        return process

    def run_once(self, count: int) -> Self:
        self.create(self.source)
        self.fill(count)
        relay = self.start().ready()
        self.wait_copied(count)
        assert relay.stop() == 0
        return self

    def refused(self, code: int = 3, *flags: str) -> str:
        process = self.start(*flags)
        assert process.wait() == code, process.said
        return process.said

    def create(self, servers: str, topic: str = "", partitions: int = 4, **config: str) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        settle(admin(servers).create_topics([NewTopic(topic or self.topic, partitions, 1, config=settings)]))
        until(lambda: self.partitions(servers, topic or self.topic) == partitions, "the topic")

    def delete(self, servers: str, topic: str = "") -> None:
        settle(admin(servers).delete_topics([topic or self.topic]))
        until(lambda: self.partitions(servers, topic or self.topic) == 0, "the end of the topic")

    def grow(self, servers: str, partitions: int) -> None:
        settle(admin(servers).create_partitions([NewPartitions(self.topic, partitions)]))

    def partitions(self, servers: str, topic: str) -> int:
        """Return the number of partitions; 0 if the topic does not exist."""
        topics = admin(servers).list_topics(timeout=10).topics
        return len(topics[topic].partitions) if topic in topics else 0

    def config(self, servers: str, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return {name: entry.value for name, entry in admin(servers).describe_configs([resource])[resource].result().items()}

    def truncate(self, servers: str) -> None:
        """Delete all records so far, as retention does."""
        ends = [TopicPartition(self.topic, p, OFFSET_END) for p in range(self.partitions(servers, self.topic))]
        settle(admin(servers).delete_records(ends))

    def fill(self, count: int, topic: str = "", partitions: int = 4, servers: str = "", **headers: str) -> None:
        """Numbered records, a moment apart by their timestamps, over all partitions."""
        producer = Producer({"bootstrap.servers": servers or self.source, "linger.ms": 5})
        for number in range(self.written, self.written + count):
            producer.produce(
                topic or self.topic,
                b"value %d" % number,
                b"key %d" % (number % 50),
                number % partitions,
                timestamp=1_700_000_000_000 + number,
                headers=[("number", str(number)), *headers.items()],
            )
            producer.poll(0)
        assert producer.flush(30) == 0
        self.written += count

    def copied(self, topic: str = "") -> int:
        """Records that readers of committed records see at the destination."""
        name = topic or self.topic
        if name not in self._followers:
            self._followers[name] = Follower(self.destination, name)
        return self._followers[name].seen()

    def wait_copied(self, count: int, topic: str = "") -> None:
        try:
            until(lambda: self.copied(topic) >= count, f"{count} copies")
        except AssertionError as error:
            raise AssertionError(f"{error}; there are {self.copied(topic)}\n{self.processes[-1].said}") from None

    def at_rest(self) -> bool:
        return all(row["lag_records"] == 0 for row in self.json("status")["partitions"])

    def audit(self, topic: str = "", target: str = "") -> dict[str, int]:
        """Hold the copy against the source, record by record; the product's own count must say the same."""
        name = topic or self.topic
        report = self.json("audit")
        assert report["clean"], report
        return compare(list(auditor.read(self.source, name)), list(auditor.read(self.destination, target or name)))

    def close(self) -> None:
        for follower in self._followers.values():
            follower.close()
        for process in self.processes:
            process.kill()


MakeRelay = Callable[..., RelayRig]
"""What the fixture `make_relay` gives: a RelayRig on fresh topics, with the given settings changed."""
