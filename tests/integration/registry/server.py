"""Debian's docker-registry (distribution 2.8.2) on a loopback port of its own: with a password, with TLS, killed, restarted."""

import contextlib
import http.client
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import free_port

START_SECONDS = 20.0


@dataclass(frozen=True)
class Tls:
    """PEM files: of the server, and of the authority that a client has to trust."""

    certificate: Path
    key: Path
    ca: Path


@dataclass(frozen=True)
class Tokens:
    """Where users get their tokens (issuer `test`, service `registry`), and the PEM certificates that may sign them."""

    realm: str
    roots: Path


class DockerRegistry:
    """A registry whose content stays in `folder` over restarts."""

    def __init__(
        self, folder: Path, *, htpasswd: Path | None = None, tls: Tls | None = None, tokens: Tokens | None = None
    ) -> None:
        folder.mkdir(parents=True)
        self.folder, self._tls = folder, tls
        self.port = free_port()
        self._config = folder / "config.yml"
        self._config.write_text(config(folder / "content", self.port, htpasswd, tls, tokens))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`host:port`, for references."""
        return f"localhost:{self.port}"

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(["docker-registry", "serve", self._config], stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"docker-registry does not start: {(self.folder / 'log').read_text()[-2000:]}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def blob(self, digest: str) -> Path:
        """Where it keeps some content."""
        digits = digest.removeprefix("sha256:")
        return self.folder / "content/docker/registry/v2/blobs/sha256" / digits[:2] / digits / "data"

    def _answers(self) -> bool:
        try:
            connection = http.client.HTTPConnection("localhost", self.port, timeout=2)
            if self._tls:
                context = ssl.create_default_context(cafile=self._tls.ca)
                connection = http.client.HTTPSConnection("localhost", self.port, timeout=2, context=context)
            with contextlib.closing(connection):
                connection.request("GET", "/v2/")
                return connection.getresponse().status in (200, 401)
        except OSError:
            return False


@contextlib.contextmanager
def running(registry: DockerRegistry) -> Iterator[DockerRegistry]:
    """The registry, started, and killed in the end."""
    try:
        registry.start()
        yield registry
    finally:
        registry.kill()


def config(content: Path, port: int, htpasswd: Path | None, tls: Tls | None, tokens: Tokens | None) -> str:
    """Its configuration file. The secret is fixed, so that an upload survives a restart."""
    secured = f", tls: {{certificate: {tls.certificate}, key: {tls.key}}}" if tls else ""
    lines = [
        "version: 0.1",
        "log: {level: warn}",
        f"storage: {{filesystem: {{rootdirectory: {content}}}, delete: {{enabled: true}}}}",
        f"http: {{addr: 'localhost:{port}', secret: fixed{secured}}}",
    ]
    if htpasswd:
        lines.append(f"auth: {{htpasswd: {{realm: test, path: {htpasswd}}}}}")
    if tokens:
        signer = f"issuer: test, service: registry, rootcertbundle: {tokens.roots}"
        lines.append(f"auth: {{token: {{realm: '{tokens.realm}', {signer}}}}}")
    return "\n".join(lines) + "\n"
