"""Real brokers that can be killed, frozen and filled: one with a separate controller, or three (each also a controller) with
replication 3 and min.insync.replicas 2.

A single broker that ended is restarted only after its session has expired, and a frozen one is thawed before its session
expires. A broker that believes that it is the leader until the controller reports otherwise does not end the transactions
that it decides in that time (KAFKA-20734, `tests/integration/scorer/test_open_transactions.py`).

Each node has a second listener that advertises the port of a proxy; clients that bootstrap there reach brokers only through
proxies. A dead broker is detected within 4 s, a single one within 6 s (the default is 9 s), so that a round need not wait for
it. With shorter sessions, running brokers are considered dead on a busy machine.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from scorer.demo.broker import class_data_sharing
from scorer.demo.broker.embedded import QUICK_START, WAITING, error_line, java_executable
from scorer.demo.broker.jars import classpath
from scorer.demo.broker.kraft_config import HOST, cluster_id, free_ports, write_node
from scorer.demo.broker.orphan_reaper import OrphanReaper
from tests.chaos.proxy import Proxies
from tests.chaos.stray import TXN_OFFSET_COMMIT
from tests.support.processes import Program

ANSWER_SECONDS = 90.0
SESSION = {
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
SINGLE_BROKER_SESSION = {"broker.session.timeout.ms": "6000"}  # longer than a freeze
REST_SECONDS = 6.0 + 4.0  # on a busy machine the controller is late too
CONTROLLER_HEAP_MB = 128
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class Node:
    """One broker, one controller, or both in one process. `log_folder` holds its data (default: in `folder`). `rest_seconds` is
    the shortest time for which it stays down."""

    def __init__(
        self, number: int, folder: Path, heap_mb: int, log_folder: Path | None = None, roles: str = "broker,controller"
    ) -> None:
        self.number = number
        self.folder = folder
        self.roles = roles
        self.rest_seconds = 0.0 if "controller" in roles else REST_SECONDS
        self._ended_at = float("-inf")
        self.log_folder = log_folder or folder / "data"
        self.directory_id = cluster_id(uuid.uuid4().bytes)
        self.port, self.controller = free_ports()
        self.proxied, _ = free_ports()
        folder.mkdir(parents=True)
        jars = classpath()
        self._java = [java_executable(), f"-Xmx{heap_mb}m", *QUICK_START, *class_data_sharing.java_options(jars)]
        self._java.append(f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}")
        self._java += [f"-Dscorestream.log={folder / 'broker.log'}", "-cp", os.pathsep.join(map(str, jars))]
        self._program: Program | None = None
        self._guard = OrphanReaper(folder)

    @property
    def address(self) -> str:
        """`host:port` without a proxy."""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        return self._program is not None and not self._program.ended

    def format(self, cluster: str, voters: str, servers: str, proxy_port: int, properties: Mapping[str, str]) -> None:
        listeners = {"PLAINTEXT": self.port, "PROXIED": self.proxied, "CONTROLLER": self.controller}
        advertised = {"PLAINTEXT": self.port, "PROXIED": proxy_port}
        if "controller" not in self.roles:
            del listeners["CONTROLLER"]
        if "broker" not in self.roles:
            listeners = advertised = {"CONTROLLER": self.controller}
        broker_properties = {
            "process.roles": self.roles,
            "node.id": str(self.number),
            "log.dirs": str(self.log_folder),
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
            "advertised.listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in advertised.items()),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": servers,
        }
        write_node(self.folder, (self.port, self.controller), SESSION | broker_properties | dict(properties))
        controllers = ["--initial-controllers", voters] if "controller" in self.roles else ["--no-initial-controllers"]
        tool = [*self._java, "kafka.tools.StorageTool", "format", "--cluster-id", cluster, *controllers]
        subprocess.run([*tool, "--config", str(self.folder / "server.properties")], check=True, capture_output=True)

    def start(self) -> None:
        """Start the node after its rest time, unless it is running."""
        if self.running:
            return
        time.sleep(max(0.0, self._ended_at + self.rest_seconds - time.monotonic()))
        command = [*self._java, "kafka.Kafka", str(self.folder / "server.properties")]
        self._program = Program(command, self.folder / "console.log")
        self._guard.watch(self._program.process.pid)
        threading.Thread(target=self._record_end, args=(self._program.process,), daemon=True).start()

    def _record_end(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._ended_at = time.monotonic()

    def send(self, number: signal.Signals) -> None:
        if self._program is not None and self.running:
            self._program.send(number)

    def kill(self) -> None:
        if self._program is not None:
            self._program.kill()

    def close(self) -> None:
        self.kill()
        self._guard.release()
        shutil.rmtree(self.folder, ignore_errors=True)

    def error_in_logs(self) -> str:
        """Return the line of the logs that most likely states the error."""
        files = [self.folder / name for name in ("console.log", "broker.log")]
        return error_line([line for file in files if file.is_file() for line in file.read_text(errors="replace").splitlines()])


class Cluster:
    """`log_folder`: for a cluster of one. `properties`: further properties of the brokers. `apart`: whether the controller of a
    single broker is a separate process, to which no fault happens. `stray_before`: see `stray.py`."""

    def __init__(
        self,
        size: int,
        log_folder: Path | None = None,
        heap_mb: int = 512,
        properties: Mapping[str, str] | None = None,
        *,
        apart: bool = True,
        stray_before: int = TXN_OFFSET_COMMIT,
    ) -> None:
        self.proxies = Proxies(size, stray_before)
        self._properties = (REPLICATED if size == 3 else SINGLE_BROKER_SESSION) | dict(properties or {})
        self.folder = Path(tempfile.mkdtemp(prefix="scorestream-faults-"))
        apart = apart and size == 1
        roles = "broker" if apart else "broker,controller"
        self.nodes = [Node(k + 1, self.folder / f"node-{k + 1}", heap_mb, log_folder, roles) for k in range(size)]
        self._controllers = self.nodes
        if apart:
            self._controllers = [Node(100, self.folder / "controller", CONTROLLER_HEAP_MB, roles="controller")]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes)

    @property
    def proxied_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.proxies.ports)

    def start(self) -> Self:
        """Format and start all nodes, and wait until the cluster is complete."""
        cluster = cluster_id(uuid.uuid4().bytes)
        voters = ",".join(f"{n.number}@{HOST}:{n.controller}:{n.directory_id}" for n in self._controllers)
        servers = ",".join(f"{HOST}:{n.controller}" for n in self._controllers)
        for node in self._controllers:
            if node not in self.nodes:
                node.format(cluster, voters, servers, 0, self._properties)
                node.start()
        for node, port in zip(self.nodes, self.proxies.ports, strict=True):
            node.format(cluster, voters, servers, port, self._properties)
        self.whole()
        self.proxies.connect([node.proxied for node in self.nodes])
        return self

    def heal(self) -> None:
        self.proxies.heal()
        self.whole()

    def whole(self) -> None:
        """Start stopped nodes, thaw frozen ones, and wait until every node is registered. Raises RuntimeError."""
        for node in self.nodes:
            node.start()
            node.send(signal.SIGCONT)
        properties: dict[str, Any] = {"bootstrap.servers": self.bootstrap_servers, "error_cb": lambda _: None, **WAITING}
        admin, deadline = AdminClient(properties), time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            try:
                if len(admin.list_topics(timeout=1.0).brokers) == len(self.nodes):
                    return
            except KafkaException:
                self._restart_ended()
        raise RuntimeError(f"the brokers do not answer: {'; '.join(node.error_in_logs() for node in self.nodes)}")

    def leader(self, topic: str) -> Node:
        """Return the leader of the first partition of a topic: the coordinator, for an internal topic."""
        metadata = AdminClient({"bootstrap.servers": self.bootstrap_servers}).list_topics(topic, timeout=10)
        number = metadata.topics[topic].partitions[0].leader
        return next((node for node in self.nodes if node.number == number), self.nodes[0])

    def keep_logs(self, folder: Path) -> None:
        """Copy the logs of the nodes into this folder."""
        for node in self.nodes:
            for log in node.folder.glob("*.log"):
                shutil.copyfile(log, folder / f"{node.folder.name}-{log.name}")

    def close(self) -> None:
        for node in {*self.nodes, *self._controllers}:
            node.close()
        self.proxies.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _restart_ended(self) -> None:
        for node in self.nodes:
            if not node.running:
                time.sleep(0.5)
                node.start()
