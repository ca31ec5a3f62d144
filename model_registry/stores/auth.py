"""Authorizes requests to a registry, with Basic credentials or with Bearer tokens for the scopes of a request.

Credentials are sent only over TLS, unless plain HTTP is configured, and only to the registry and to trusted token servers
(realms). MODEL_REGISTRY_REALM_HOSTS lists further trusted hosts, separated by commas.
"""

# The registry names the realm, from which tokens are fetched, in its challenge. Trusted realms are on the registry's own host,
# or on its host in WELL_KNOWN_REALMS (for example auth.docker.io for Docker Hub). Specification: distribution.github.io, "Token
# Authentication Specification" and "OAuth2 Token Authentication".

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import httpx
import msgspec

from model_registry.errors import Corrupt, Refused, Unreachable
from model_registry.stores import docker_config
from model_registry.stores.docker_config import Credentials
from model_registry.untrusted_input import json_documents

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PART = re.compile(
    rf'\s*(?:(?P<name>{_TOKEN})\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s",]+))|(?P<scheme>{_TOKEN}))\s*,?'
)
MAX_PARTS = 50


def parse_challenges(header: str) -> list[tuple[str, dict[str, str]]]:
    """Return the schemes in a WWW-Authenticate header in order, each with the parameters of the scheme.

    Names of schemes and parameters are in lower case. The rest of the header after a malformed part is ignored.
    """
    challenges: list[tuple[str, dict[str, str]]] = []
    position = 0
    for _ in range(MAX_PARTS):
        if (part := _PART.match(header, position)) is None:
            break
        position = part.end()
        if part["scheme"]:
            challenges.append((part["scheme"].lower(), {}))
        elif challenges:
            value = part["bare"] if part["quoted"] is None else re.sub(r"\\(.)", r"\1", part["quoted"])
            challenges[-1][1].setdefault(part["name"].lower(), value)
    return challenges


REALM_HOSTS = "MODEL_REGISTRY_REALM_HOSTS"
WELL_KNOWN_REALMS = {"registry-1.docker.io": "auth.docker.io", "registry.gitlab.com": "gitlab.com"}
MIN_SECONDS = 60.0  # validity of a token that states none (Token Authentication Specification, expires_in)
MAX_SECONDS = 1e9  # a longer validity is ignored
EARLY_SECONDS = 10.0  # a token is replaced this long before it expires
MAX_SCOPES = 8  # most scopes of a challenge that are requested
MAX_TOKEN = 32 << 10  # characters; servers reject longer headers

Fetch = Callable[[httpx.Request], tuple[int, bytes]]
"""A function that sends a request without following redirects, and returns the response's status and body (cut to a limit)."""


@dataclass(frozen=True, slots=True)
class _Token:
    value: str
    until: float


class _TokenResponse(msgspec.Struct):
    token: str | None = None
    access_token: str | None = None
    expires_in: float | str | None = None

    @property
    def seconds(self) -> float:
        """The seconds for which the token is valid. MIN_SECONDS if the number is missing, too low or implausible."""
        try:
            stated = float(self.expires_in or 0)
        except ValueError:
            return MIN_SECONDS
        return stated if MIN_SECONDS < stated < MAX_SECONDS else MIN_SECONDS


class Authenticator:
    """Provides the Authorization header of requests to one registry, and fetches and keeps tokens. Threads may share it.

    Args:
        name: The registry, as references and Docker's configuration name it.
        origin: The URL of the registry's API.
    """

    def __init__(
        self, name: str, origin: httpx.URL, realm_hosts: Iterable[str], fetch: Fetch, clock: Callable[[], float]
    ) -> None:
        self._name = name
        self._origin = origin
        self._fetch = fetch
        self._clock = clock
        own_host = origin.netloc.decode()
        self._realm_hosts = {own_host, WELL_KNOWN_REALMS.get(own_host, own_host), *realm_hosts}
        self._basic: str | None = None
        self._tokens: dict[tuple[str, ...], _Token] = {}
        self._lock = threading.Lock()

    def header(self, scopes: tuple[str, ...]) -> str | None:
        """Return the Authorization header for a request with these scopes.

        Returns None if the registry has not asked for credentials yet, or if the token has expired.
        """
        if self._basic is not None:
            return self._basic
        token = self._tokens.get(scopes)
        return f"Bearer {token.value}" if token and self._clock() < token.until else None

    def answer(self, challenge: str, scopes: tuple[str, ...], sent: str | None, *, general: bool = False) -> bool:
        """Get the credentials that a challenge asks for, so that `header` returns them.

        Returns False if there are only the credentials that the registry has just rejected. The request should then not be
        repeated.

        Args:
            challenge: The WWW-Authenticate header of the response.
            scopes: The scopes of the request.
            sent: The Authorization header of the rejected request; None if the request had no such header.
            general: Whether the challenge came from `/v2/` instead of this request. The challenge's scopes are then ignored.

        Raises:
            Refused: The token server (realm) must not receive the credentials.
            Unreachable: The token server returns no token.
            Misconfigured: Docker's configuration file cannot be read.
        """
        with self._lock:
            if self.header(scopes) not in (None, sent):
                return True  # another thread has just done it
            offered = dict(reversed(parse_challenges(challenge)))
            if "bearer" in offered:
                self._tokens[scopes] = self._fetch_token(offered["bearer"], scopes, general)
                self._basic = None
                return True
            if "basic" not in offered:
                return False
            credentials = docker_config.find_credentials(
                self._name
            )  # read every time, because passwords of cloud registries expire after hours
            if credentials is None or not credentials.username or credentials.basic == self._basic:
                return False
            self._basic = credentials.basic
            return True

    def _fetch_token(self, challenge: dict[str, str], scopes: tuple[str, ...], general: bool) -> _Token:
        realm = self._realm(challenge.get("realm", ""))
        if not general and realm.netloc == self._origin.netloc:  # other registries may trust the tokens of a realm elsewhere
            scopes = (*scopes, *other_scopes(challenge.get("scope", ""), scopes))
        credentials = docker_config.find_credentials(self._name)
        status, body = self._fetch(_request(realm, challenge.get("service", ""), scopes, credentials))
        if status != 200:
            hint = f"docker login {self._name}" if status in (400, 401, 403) else "try again later"
            raise Unreachable(f"{realm.host} gives no token for {self._name}: it answered {status}", hint)
        try:
            answer = json_documents.decode(body, _TokenResponse)
        except json_documents.UnreadableDocument:
            raise Corrupt(f"{realm.host} answered with a document that is not a token response") from None
        value = answer.token or answer.access_token
        if not value or len(value) > MAX_TOKEN or not value.isascii() or not value.isprintable() or " " in value:
            raise Corrupt(f"{realm.host} answered without a usable token")
        return _Token(value, self._clock() + answer.seconds - EARLY_SECONDS)

    def _realm(self, text: str) -> httpx.URL:
        """Parse the URL of a token server (realm). Raises Refused if the token server must not receive credentials."""
        try:
            realm = httpx.URL(text)
        except httpx.InvalidURL:
            raise Refused(f"{self._name} names {text!r:.200} as its realm, which is not a valid URL") from None
        realm = upgrade_to_https(realm, self._origin)
        host = realm.netloc.decode()
        if host not in self._realm_hosts or realm.userinfo:
            hint = f"if that host may have the credentials of {self._name}, set {REALM_HOSTS}={host}"
            raise Refused(
                f"{self._name} names {host or text!r:.200} as the host that issues its tokens, which is not a trusted realm",
                hint,
            )
        if realm.scheme not in ("https", self._origin.scheme):
            raise Refused(f"{self._name} asks for credentials over {realm.scheme} at {host}, which is not encrypted")
        return realm


def upgrade_to_https(url: httpx.URL, origin: httpx.URL) -> httpx.URL:
    """Return a registry's http URL as https if `origin` has https. Other URLs are returned unchanged."""
    # A registry behind a proxy that terminates TLS names its own URLs with `http`.
    if url.scheme == "http" and origin.scheme == "https" and url.port is None:
        return url.copy_with(scheme="https", port=origin.port if url.host == origin.host else None)
    return url


def other_scopes(challenge_scopes: str, scopes: tuple[str, ...]) -> list[str]:
    """Return the challenge's scopes for resources that the request's scopes do not name."""
    # They occur if a proxy rewrites paths, so that the registry knows the repository under another name, or if the registry
    # requires further resources.
    resources = {scope.rpartition(":")[0] for scope in scopes}
    return [
        scope
        for scope in challenge_scopes.split()[:MAX_SCOPES]
        if scope not in scopes and scope.rpartition(":")[0] not in resources
    ]


def realm_hosts(environment: Mapping[str, str]) -> list[str]:
    """Return the token servers in MODEL_REGISTRY_REALM_HOSTS (`host` or `host:port`), which may receive all credentials."""
    return [host.strip() for host in environment.get(REALM_HOSTS, "").split(",") if host.strip()]


def _request(realm: httpx.URL, service: str, scopes: tuple[str, ...], credentials: Credentials | None) -> httpx.Request:
    if credentials and credentials.identity_token:
        form = {"grant_type": "refresh_token", "refresh_token": credentials.identity_token, "client_id": "scorestream"}
        return httpx.Request("POST", realm, data=form | {"service": service, "scope": " ".join(scopes)})
    params = [("service", service)] if service else []
    url = realm.copy_merge_params([*realm.params.multi_items(), *params, *(("scope", scope) for scope in scopes)])
    headers = {"Authorization": credentials.basic} if credentials else {}
    return httpx.Request("GET", url, headers=headers)
