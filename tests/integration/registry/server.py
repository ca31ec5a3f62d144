"""Debian's docker-registry (distribution 2.8.2) on a loopback port of its own: with a password, with TLS, killed, restarted."""

import contextlib
import http.client
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trustme

from tests.support.processes import Program, free_port
from tests.support.waiting import within

START_SECONDS = 20.0


@dataclass(frozen=True)
class Tls:
    """PEM files: of the server, and of the authority that a client has to trust."""

    certificate: Path
    key: Path
    ca: Path


def tls_for(folder: Path, *names: str) -> Tls:
    """A certificate for these host names, of an authority that no client trusts."""
    authority = trustme.CA()
    issued, files = authority.issue_cert(*names), Tls(folder / "server.pem", folder / "server.key", folder / "ca.pem")
    issued.cert_chain_pems[0].write_to_path(files.certificate)
    issued.private_key_pem.write_to_path(files.key)
    authority.cert_pem.write_to_path(files.ca)
    return files


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
        self._program: Program | None = None

    @property
    def address(self) -> str:
        """`host:port`, for references."""
        return f"localhost:{self.port}"

    def start(self) -> None:
        program = self._program = Program(["docker-registry", "serve", str(self._config)], self.folder / "log")
        within(lambda: self._answers() or program.ended, START_SECONDS)
        if program.ended or not self._answers():
            raise RuntimeError(f"docker-registry does not start: {program.said[-2000:]}")

    def kill(self) -> None:
        if self._program is not None:
            self._program.kill()

    def blob(self, digest: str) -> Path:
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
