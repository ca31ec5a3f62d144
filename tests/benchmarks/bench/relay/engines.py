"""The two measured engines, each as the process that an operator would start."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from scorer.demo.broker.embedded import java_executable
from scorer.demo.broker.jars import Jar, classpath, jar_list
from tests.benchmarks.bench.machine import status_mib
from tests.support.processes import Service, command
from tests.support.waiting import within

JARS = Path(__file__).with_name("mirror_maker_jars.txt")
STOP_SECONDS = 20.0
LOGGING = """status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = ${sys:log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


@dataclass(frozen=True)
class Job:
    """A copy of one topic. `number` makes names unique."""

    number: int
    source: str
    destination: str
    topic: str
    folder: Path


class Running(Service):
    @property
    def cpu_seconds(self) -> float:
        return sum(psutil.Process(self.process.pid).cpu_times()[:2])

    @property
    def peak_mb(self) -> float:
        return status_mib("VmHWM", self.process.pid) * 2**20 / 1e6

    @property
    def log_tail(self) -> str:
        logs = [self.log, self.log.with_suffix(".info")]
        return "\n".join(log.read_text(errors="replace")[-2_000:] for log in logs if log.is_file())


@contextlib.contextmanager
def relay(job: Job) -> Iterator[Running]:
    """Run `publisher run` with its defaults."""
    configuration = {
        "name": f"bench-{job.number}",
        "source": {"region": "eu", "bootstrap_servers": job.source, "topics": [job.topic]},
        "destination": {"region": "us", "bootstrap_servers": job.destination, "create_topics": True},
        "checkpoint_topic": f"bench-checkpoints-{job.number}",
        "http": {"listen": "127.0.0.1:0"},
    }
    path = job.folder / f"relay-{job.number}.yaml"
    path.write_text(yaml.safe_dump(configuration))
    yield from _run([command("publisher"), "run", str(path)], path.with_suffix(".log"))


@contextlib.contextmanager
def mirror_maker(job: Job) -> Iterator[Running]:
    """Run MirrorMaker 2, tuned, with exactly-once. New names of the clusters make it start without offsets."""
    source, destination = f"eu{job.number}", f"us{job.number}"
    path = job.folder / f"mirror-maker-{job.number}.properties"
    path.write_text("".join(f"{key} = {value}\n" for key, value in mirror_maker_properties(job, source, destination).items()))
    logging = path.with_suffix(".log4j2.properties")
    logging.write_text(LOGGING)
    jars = os.pathsep.join(map(str, classpath(jars=mirror_maker_jars())))
    java = [java_executable(), "-Xmx1g", f"-Dlog={path.with_suffix('.info')}", f"-Dlog4j2.configurationFile=file:{logging}"]
    java += ["-cp", jars, "org.apache.kafka.connect.mirror.MirrorMaker", str(path)]
    yield from _run(java, path.with_suffix(".log"))


ENGINES = {"relay": relay, "MirrorMaker 2": mirror_maker}


def mirror_maker_properties(job: Job, source: str, destination: str) -> dict[str, str]:
    """Return settings for throughput: large polls, fetches and batches, and nothing but the copy of records."""
    unreplicated = (
        "checkpoints.topic",
        "heartbeats.topic",
        "offset-syncs.topic",
        "offset.storage",
        "status.storage",
        "config.storage",
    )
    disabled = ("emit.checkpoints", "emit.heartbeats", "sync.group.offsets", "sync.topic.acls")
    way = f"{source}->{destination}"
    return {
        "clusters": f"{source}, {destination}",
        f"{source}.bootstrap.servers": job.source,
        f"{destination}.bootstrap.servers": job.destination,
        f"{way}.enabled": "true",
        f"{destination}->{source}.enabled": "false",
        f"{way}.topics": job.topic,
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "replication.factor": "1",
        **{f"{name}.replication.factor": "1" for name in unreplicated},
        **{f"{name}.enabled": "false" for name in disabled},
        "exactly.once.source.support": "enabled",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": "http://127.0.0.1:0",
        "offset-syncs.topic.location": "target",
        "tasks.max": "2",
        f"{source}.consumer.isolation.level": "read_committed",
        f"{source}.consumer.max.poll.records": "10000",
        f"{source}.consumer.max.partition.fetch.bytes": "4194304",
        f"{source}.consumer.receive.buffer.bytes": "-1",
        f"{destination}.producer.batch.size": "524288",
        f"{destination}.producer.linger.ms": "5",
        f"{destination}.producer.compression.type": "lz4",
    }


def mirror_maker_jars() -> tuple[Jar, ...]:
    """Return the pinned jars of MirrorMaker 2, and the other jars of the embedded broker."""
    pinned = jar_list(JARS.read_text())
    return (*pinned, *(jar for jar in jar_list() if (jar.group, jar.artifact) not in {(p.group, p.artifact) for p in pinned}))


def _run(arguments: Sequence[str], log: Path) -> Iterator[Running]:
    running = Running(arguments, log, {})
    try:
        yield running
    finally:
        running.process.terminate()
        if not within(lambda: running.ended, STOP_SECONDS):
            running.kill()
