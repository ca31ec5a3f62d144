"""A standalone worker of Kafka Connect with Iceberg's sink connector, in a Java process of its own.

The worker runs the two files of the page, in which the test replaces addresses, names and paths. Kafka Connect's jars are those
of MirrorMaker 2, which contains Connect. `iceberg_jars.txt` has those of the connector: the artifacts that the page names, with
their dependencies except slf4j, which Connect provides, and ORC, which the sink does not use for Parquet.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from scorer.demo.broker.embedded import QUICK_START, java_executable
from scorer.demo.broker.jars import classpath, jar_list
from scorer.demo.broker.kraft_config import HOST
from tests.benchmarks.bench.relay.engines import LOGGING, mirror_maker_jars
from tests.docs import pages
from tests.support.processes import Program, free_port

PAGE = "scorer/docs/features-in-iceberg.md"
CONNECTOR = "flight-features"
JARS = Path(__file__).with_name("iceberg_jars.txt")
HEAP = "768m"
TERMINATED = 143  # the exit code of Java after SIGTERM
LOG_TAIL = 4_000  # characters


class ConnectWorker:
    """A worker that can be started, killed and started again with the same files.

    Args:
        folder: An existing folder for the files, the connector's jars and the logs.
        replaced: The texts of the page that differ in the test, with their replacements.

    Raises:
        ValueError: The page does not contain one of the texts.
    """

    def __init__(self, folder: Path, replaced: Mapping[str, str]) -> None:
        self._folder = folder
        self._port = free_port()
        plugin = folder / "connect-plugins" / "iceberg"
        plugin.mkdir(parents=True)
        for jar in classpath(jars=jar_list(JARS.read_text())):
            shutil.copy(jar, plugin)
        replacements = {"/opt/connect-plugins": str(plugin.parent), "/var/lib/connect": str(folder), **replaced}
        worker, sink = (pages.blocks(PAGE)[name] for name in ("worker", "sink"))
        for text, actual in replacements.items():
            if text not in worker + sink:
                raise ValueError(f"{PAGE} has no {text!r}: correct the replacements of the test, or the page")
            worker, sink = worker.replace(text, actual), sink.replace(text, actual)
        (folder / "connect.properties").write_text(f"{worker}listeners=http://{HOST}:{self._port}\n")
        (folder / "sink.properties").write_text(sink)
        (folder / "log4j2.properties").write_text(LOGGING)
        self.program: Program | None = None

    def start(self) -> None:
        """Start the worker, which reads the two files."""
        jars = os.pathsep.join(map(str, classpath(jars=mirror_maker_jars())))
        java = [java_executable(), f"-Xmx{HEAP}", *QUICK_START, f"-Dlog={self._folder / 'connect.log'}"]
        java += [f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}", "-cp", jars]
        files = [str(self._folder / name) for name in ("connect.properties", "sink.properties")]
        arguments = [*java, "org.apache.kafka.connect.cli.ConnectStandalone", *files]
        self.program = Program(arguments, self._folder / "connect.out")

    def kill(self) -> None:
        """Kill the worker with SIGKILL if it runs."""
        if self.program is not None:
            self.program.kill()

    def stop(self) -> None:
        """Stop the worker with SIGTERM. Raises RuntimeError if it ends in another way than by this signal."""
        assert self.program is not None, "start the worker first"
        if (code := self.program.stop()) not in (0, TERMINATED):
            raise RuntimeError(f"the Connect worker ended with code {code}:\n{self.log()[-LOG_TAIL:]}")

    def failure(self) -> str:
        """Return the reason why the worker has ended or one of its tasks has failed; empty if there is none."""
        assert self.program is not None, "start the worker first"
        if self.program.ended:
            return self.log()[-LOG_TAIL:] + self.program.said[-LOG_TAIL:]
        try:
            response = httpx.get(f"http://{HOST}:{self._port}/connectors/{CONNECTOR}/status", timeout=10)
        except httpx.TransportError:  # not listening yet
            return ""
        status: dict[str, Any] = response.json() if response.is_success else {}
        return "\n".join(task["trace"] for task in status.get("tasks", ()) if task["state"] == "FAILED")

    def log(self) -> str:
        """Return the log of the worker."""
        path = self._folder / "connect.log"
        return path.read_text(errors="replace") if path.is_file() else ""
