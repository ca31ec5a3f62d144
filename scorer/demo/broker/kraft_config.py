"""The files and ports of the embedded broker: one KRaft node on loopback, with broker and controller in one process."""

# The settings are those of a small test cluster: internal topics have one partition, rebalances have no initial delay, session
# timeouts may be as short as a second, and the broker does not remove old records, because replayed records may be years old.

import base64
import errno
import random
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

HOST = "127.0.0.1"
PORTS = range(15_000, 32_000)  # below Linux's ephemeral ports: no client can take the port while the broker is down
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
    """Write `server.properties` and `log4j2.properties` for the ports (broker, controller), and remove existing data."""
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
    """Return a Kafka cluster id of 22 characters from 16 random bytes.

    The first bit is set to 0, so that no id starts with a dash.
    """
    return base64.urlsafe_b64encode(bytes([random_bytes[0] & 0x7F]) + random_bytes[1:]).decode().rstrip("=")


def free_ports() -> tuple[int, int]:
    """Return two free ports: for the broker and for the controller."""
    ports: list[int] = []
    while len(ports) < 2:
        port = random.choice(PORTS)
        if port not in ports and not is_port_in_use(port):
            ports.append(port)
    return ports[0], ports[1]


def is_port_in_use(port: int) -> bool:
    """Return True if a process listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does: a port in TIME_WAIT is free
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise
    return False
