"""The files and ports of one KRaft node of the embedded broker: broker and controller in one process, on loopback.

The settings are those of a small test cluster: single-partition internal topics, no waiting, little to do while idle, group
sessions as short as a second, nothing deleted by age (replayed records may be years old).
"""

import base64
import errno
import random
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

HOST = "127.0.0.1"
PORTS = range(15_000, 32_000)  # below what Linux gives to clients: while the broker is down none of them can take its port
SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "metadata.max.idle.interval.ms": "5000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "1000",
    "log.retention.ms": "-1",
    "log.cleaner.dedupe.buffer.size": "4194304",
}
LOGGING = """status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = ${sys:scorestream.log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


def write_node(folder: Path, ports: tuple[int, int], properties: Mapping[str, str]) -> None:
    """Write `server.properties` and `log4j2.properties` for the ports (broker, controller); any data is removed."""
    shutil.rmtree(folder / "data", ignore_errors=True)
    broker, controller = ports
    settings = SINGLE_NODE | {
        "log.dirs": str(folder / "data"),
        "listeners": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{broker}",
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
    }
    lines = "".join(f"{key}={value}\n" for key, value in (settings | dict(properties)).items())
    (folder / "server.properties").write_text(lines)
    (folder / "log4j2.properties").write_text(LOGGING)


def cluster_id(random_bytes: bytes) -> str:
    """A Kafka cluster id, 22 characters, of 16 random bytes. The first bit is left out: an id must not begin with a dash."""
    return base64.urlsafe_b64encode(bytes([random_bytes[0] & 0x7F]) + random_bytes[1:]).decode().rstrip("=")


def free_ports() -> tuple[int, int]:
    found: list[int] = []
    while len(found) < 2:
        port = random.choice(PORTS)
        if port not in found and not is_taken(port):
            found.append(port)
    return found[0], found[1]


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does: a port in TIME_WAIT is free
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise
    return False
