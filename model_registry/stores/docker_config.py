"""Reads credentials from Docker's config.json (in DOCKER_CONFIG, else ~/.docker) and its credential helpers."""

import base64
import binascii
import codecs
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_registry.errors import Misconfigured, Unreachable
from model_registry.untrusted_input import json_documents

HUB_KEY = "https://index.docker.io/v1/"  # Docker Hub's key, for historical reasons
HUB_HOSTS = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})
HELPER_SECONDS = 30.0
_HELPER = re.compile(r"[A-Za-z0-9._-]+")
_NOT_FOUND = "credentials not found"  # printed by helpers for an unknown registry
RUN_HINT = "run this command in a shell to see its error"
_IDENTITY = "<token>"  # the user name of an identity token


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name and a password, or an identity token that is exchanged for access tokens. Never printed."""

    username: str
    password: str
    identity_token: str = ""

    def __repr__(self) -> str:
        return f"Credentials(username={self.username!r}, ...)"

    @property
    def basic(self) -> str:
        """The value of a Basic Authorization header."""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


class _AuthEntry(msgspec.Struct):
    auth: str | None = None
    username: str | None = None
    password: str | None = None
    identitytoken: str | None = None


class _DockerConfig(msgspec.Struct, rename="camel"):
    """The keys of config.json that this module reads. Some tools write null for an unset value."""

    auths: dict[str, _AuthEntry | None] | None = None
    cred_helpers: dict[str, str | None] | None = None
    creds_store: str | None = None


class _HelperCredentials(msgspec.Struct, rename="pascal"):
    username: str
    secret: str


def find_credentials(registry: str) -> Credentials | None:
    """Return the credentials for a registry (`host` or `host:port`); None if there are none.

    Raises:
        Misconfigured: The configuration file cannot be read, or its credential helper is not installed.
        Unreachable: The credential helper fails, for example because the cloud service that it calls is unavailable.
    """
    home = os.path.expanduser("~")  # noqa: PTH111 - unlike Path.home() never an error: containers run as users without a home
    path = Path(os.environ.get("DOCKER_CONFIG") or f"{home}/.docker") / "config.json"
    config = _read(path)
    key = HUB_KEY if registry == "docker.io" else registry
    helpers = config.cred_helpers or {}
    helper = helpers.get(key, helpers.get(registry, config.creds_store))  # an empty helper name means no helper, as in Docker
    if helper and (credentials := _run_helper(helper, key, path)):
        return credentials
    hosts = HUB_HOSTS if registry == "docker.io" else {registry}
    entries = {name: entry or _AuthEntry() for name, entry in (config.auths or {}).items() if _host(name) in hosts}
    # An entry for the registry takes precedence over an entry for a namespace in the registry (`host/team`, by Podman).
    for name in sorted(entries, key=lambda name: (name != key, name != registry, name.count("/"))):
        if credentials := _credentials(entries[name], name, path):
            return credentials
    return None


def _read(path: Path) -> _DockerConfig:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return _DockerConfig()
    except OSError as error:
        raise Misconfigured(f"{path}: {error.strerror}", "make it readable, or set DOCKER_CONFIG to another folder") from None
    try:
        data = data.removeprefix(codecs.BOM_UTF8)  # PowerShell writes a byte order mark
        return json_documents.decode(data, _DockerConfig) if data.strip() else _DockerConfig()
    except json_documents.UnreadableDocument as error:
        raise Misconfigured(f"{path} cannot be read: {error}", "repair it, or recreate it with docker login") from None


def _host(name: str) -> str:
    """Return the registry (`host` or `host:port`) in the name of an `auths` entry, which may be a URL."""
    return name.removeprefix("https://").removeprefix("http://").partition("/")[0]


def _credentials(entry: _AuthEntry, name: str, path: Path) -> Credentials | None:
    """Return the credentials in an `auths` entry; None if the entry is empty."""
    # An empty entry means that a credential helper has the credentials.
    username = entry.username or ""
    password = entry.password or ""
    if packed := "".join((entry.auth or "").split()):  # `base64` wraps its lines
        try:
            username, _, password = base64.b64decode(packed, validate=True).decode().rstrip("\0").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise Misconfigured(f"{path}: auth of {name!r} is not base64 of user:password", "run docker login again") from None
    if not username and not entry.identitytoken:
        return None
    return Credentials(username, password, entry.identitytoken or "")


def _run_helper(helper: str, key: str, path: Path) -> Credentials | None:
    """Run `docker-credential-HELPER get` for the registry `key` and return the credentials; None if the helper has none."""
    program = f"docker-credential-{helper}"
    if not _HELPER.fullmatch(helper):
        raise Misconfigured(
            f"{path} names the credential helper {helper!r}, which is not a valid name",
            "the name of a helper has only letters, digits, '.', '_' and '-'",
        )
    try:
        process = subprocess.run(
            [program, "get"], input=key, capture_output=True, text=True, timeout=HELPER_SECONDS, check=False
        )
    except FileNotFoundError:
        raise Misconfigured(
            f"{path} names {program}, which is not installed", f"install {program}, or remove it from {path}"
        ) from None
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        raise Unreachable(f"{program} get for {key} failed: {error}", RUN_HINT) from None
    if process.returncode != 0:
        output = (process.stdout + process.stderr).strip()
        if _NOT_FOUND in output:
            return None
        raise Unreachable(f"{program} get for {key} ended with exit code {process.returncode}: {output:.200}", RUN_HINT)
    try:
        response = json_documents.decode(process.stdout, _HelperCredentials)
    except json_documents.UnreadableDocument:
        raise Unreachable(f"{program} get for {key} did not return credentials", RUN_HINT) from None
    if response.username == _IDENTITY:
        return Credentials("", "", response.secret)
    return Credentials(response.username, response.secret)
