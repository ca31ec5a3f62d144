"""Tokens are fetched after a challenge, reused while they are valid, and fetched again after their end."""

import base64
import contextlib
import json
from pathlib import Path
from urllib.parse import parse_qs

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.errors import Corrupt, Refused, Unreachable
from model_registry.stores.auth import EARLY_SECONDS, MIN_SECONDS, Authenticator, parse_challenges
from tests.support import hostile_records

REGISTRY = "registry.example.com"
PULL = ("repository:team/x:pull",)
PUSH = ("repository:team/x:pull,push",)
CHALLENGE = f'Bearer realm="https://{REGISTRY}/token",service="reg"'


class Realm:
    """A realm that returns the tokens t1, t2, ... and records the requests."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []
        self.now, self.status = 0.0, 200
        self.expires: object = 300
        self.body: bytes | None = None

    def fetch(self, request: httpx.Request) -> tuple[int, bytes]:
        self.requests.append(request)
        if self.body is not None:
            return self.status, self.body
        return self.status, json.dumps({"access_token": f"t{len(self.requests)}", "expires_in": self.expires}).encode()


@pytest.fixture
def realm() -> Realm:
    return Realm()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path / "config.json"


@pytest.fixture
def auth(realm: Realm, config: Path) -> Authenticator:
    assert not config.exists()
    return Authenticator(REGISTRY, httpx.URL(f"https://{REGISTRY}"), (), realm.fetch, lambda: realm.now)


@pytest.mark.parametrize("name", hostile_records.LITERALS)
def test_a_realm_may_answer_anything(auth: Authenticator, realm: Realm, name: str) -> None:
    literal = hostile_records.LITERALS[name]
    for body in (literal, b'{"token":%b}' % literal, b'{"token":"t","expires_in":%b}' % literal, b'{"x":%b}' % literal):
        realm.body = body
        with contextlib.suppress(Corrupt):
            assert auth.answer(CHALLENGE, PULL, auth.header(PULL))


def test_an_anonymous_token_for_each_scope(auth: Authenticator, realm: Realm) -> None:
    assert auth.header(PULL) is None
    assert auth.answer(CHALLENGE, PULL, None)
    assert auth.answer(CHALLENGE, (*PUSH, "repository:team/y:pull"), None)
    assert auth.header(PULL) == "Bearer t1"
    assert parse_qs(realm.requests[0].url.query.decode()) == {"service": ["reg"], "scope": [*PULL]}
    assert parse_qs(realm.requests[1].url.query.decode())["scope"] == [*PUSH, "repository:team/y:pull"]
    assert "Authorization" not in realm.requests[0].headers


@pytest.mark.parametrize(
    ("stated", "good"),
    [(300, 300), (0, MIN_SECONDS), ("300", 300), (300.5, 300.5), (None, MIN_SECONDS)]
    + [(text, MIN_SECONDS) for text in ("", "soon", "-5", "nan", "inf", "1e300", "9" * 400)],
)
def test_a_token_ends_before_it_is_refused(auth: Authenticator, realm: Realm, stated: object, good: float) -> None:
    realm.expires = stated
    auth.answer(CHALLENGE, PULL, None)
    realm.now = good - EARLY_SECONDS - 1
    assert auth.header(PULL) == "Bearer t1"
    realm.now += 2
    assert auth.header(PULL) is None


def test_a_token_that_was_refused_is_replaced_once(auth: Authenticator, realm: Realm) -> None:
    auth.answer(CHALLENGE, PULL, None)
    sent_header = auth.header(PULL)
    assert auth.answer(CHALLENGE, PULL, sent_header)
    assert auth.header(PULL) == "Bearer t2"
    assert auth.answer(CHALLENGE, PULL, sent_header)  # another thread, which also sent the old token
    assert len(realm.requests) == 2


def test_a_password_buys_tokens(auth: Authenticator, realm: Realm, config: Path) -> None:
    config.write_text(json.dumps({"auths": {REGISTRY: {"auth": base64.b64encode(b"u:p").decode()}}}))
    auth.answer(CHALLENGE, PULL, None)
    assert realm.requests[0].headers["Authorization"] == "Basic " + base64.b64encode(b"u:p").decode()


def test_an_identity_token_buys_tokens(auth: Authenticator, realm: Realm, config: Path) -> None:
    config.write_text(json.dumps({"auths": {REGISTRY: {"identitytoken": "long"}}}))
    auth.answer(CHALLENGE, PULL, None)
    (request,) = realm.requests
    form = parse_qs(request.read().decode())
    assert (request.method, form["grant_type"], form["refresh_token"]) == ("POST", ["refresh_token"], ["long"])
    assert form["scope"] == [*PULL]


def test_a_realm_that_refuses(auth: Authenticator, realm: Realm) -> None:
    realm.status = 401
    with pytest.raises(Unreachable, match="gives no token") as caught:
        auth.answer(CHALLENGE, PULL, None)
    assert caught.value.hint == f"docker login {REGISTRY}"


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example.com/token",
        f"https://{REGISTRY}.evil.example.com/token",
        f"https://{REGISTRY}:444/token",
        f"https://{REGISTRY}@evil.example.com/token",
        f"https://user@{REGISTRY}/token",
        f"http://{REGISTRY}:81/token",
        f"file://{REGISTRY}/token",
        "//",
        "",
        "https://[",
    ],
)
def test_an_untrusted_realm_is_not_requested(auth: Authenticator, realm: Realm, url: str) -> None:
    with pytest.raises(Refused, match=r"is not a trusted realm|asks for credentials over|as its realm"):
        auth.answer(f'Bearer realm="{url}"', PULL, None)
    assert realm.requests == []


@pytest.mark.parametrize(
    ("origin", "named", "requested"),
    [
        (f"https://{REGISTRY}", f"http://{REGISTRY}/service/token", f"https://{REGISTRY}/service/token"),
        (f"https://{REGISTRY}:8443", f"http://{REGISTRY}/service/token", f"https://{REGISTRY}:8443/service/token"),
        (f"https://{REGISTRY}", "http://auth.example.com/token", "https://auth.example.com/token"),
        (f"http://{REGISTRY}", f"http://{REGISTRY}/service/token", f"http://{REGISTRY}/service/token"),
    ],
)
def test_a_realm_behind_a_proxy_that_ends_tls_is_requested_with_tls(
    realm: Realm, config: Path, origin: str, named: str, requested: str
) -> None:
    """Harbor behind a load balancer names its realm with http (harbor 3933)."""
    assert not config.exists()
    auth = Authenticator(REGISTRY, httpx.URL(origin), ("auth.example.com",), realm.fetch, lambda: 0.0)
    assert auth.answer(f'Bearer realm="{named}"', PULL, None)
    assert str(realm.requests[0].url.copy_with(query=None)) == requested


@pytest.mark.parametrize(
    ("stated", "scopes"),
    [
        ("", [*PUSH]),
        ("repository:team/x:pull", [*PUSH]),
        ("repository:x:pull", [*PUSH, "repository:x:pull"]),
        ("repository:team/x:pull,push repository:team/y:pull", [*PUSH, "repository:team/y:pull"]),
        ("aws", [*PUSH, "aws"]),
        (" ".join(f"repository:x{number}:pull" for number in range(99)), None),
    ],
)
def test_the_scopes_of_a_challenge_are_requested_in_addition(
    auth: Authenticator, realm: Realm, stated: str, scopes: list[str] | None
) -> None:
    """Gateways rewrite paths (oras-go 650); registries add one scope (oras-dotnet 395) or several (container-libs 1130)."""
    assert auth.answer(f'{CHALLENGE},scope="{stated}"', PUSH, None)
    requested_scopes = parse_qs(realm.requests[0].url.query.decode())["scope"]
    assert requested_scopes == scopes if scopes else len(requested_scopes) < 20
    assert auth.header(PUSH) == "Bearer t1"


def test_the_scopes_of_a_challenge_are_not_requested_from_another_host(realm: Realm, config: Path) -> None:
    """Its tokens may be valid for other registries, whose content this registry could then read."""
    assert not config.exists()
    auth = Authenticator(REGISTRY, httpx.URL(f"https://{REGISTRY}"), ("auth.example.com",), realm.fetch, lambda: 0.0)
    request = 'Bearer realm="https://auth.example.com/token",service="other",scope="repository:secret:pull,push"'
    assert auth.answer(request, PULL, None)
    assert parse_qs(realm.requests[0].url.query.decode())["scope"] == [*PULL]


def test_a_bearer_challenge_after_credentials_were_sent_counts(auth: Authenticator, config: Path) -> None:
    config.write_text(json.dumps({"auths": {REGISTRY: {"username": "u", "password": "p"}}}))
    assert auth.answer("Basic", PULL, None)
    sent_header = auth.header(PULL)
    assert sent_header is not None
    assert sent_header.startswith("Basic ")
    assert auth.answer(CHALLENGE, PULL, sent_header)
    assert auth.header(PULL) == "Bearer t1"


def test_the_scope_of_a_general_challenge_is_not_requested(auth: Authenticator, realm: Realm) -> None:
    """zot names a repository that does not exist at `/v2/` (zot 71)."""
    assert auth.answer(f'{CHALLENGE},scope="repository:repo:pull"', PULL, None, general=True)
    assert parse_qs(realm.requests[0].url.query.decode())["scope"] == [*PULL]


def test_docker_hub_has_its_realm(realm: Realm, config: Path) -> None:
    assert not config.exists()
    hub = Authenticator("docker.io", httpx.URL("https://registry-1.docker.io"), (), realm.fetch, lambda: 0.0)
    assert hub.answer('Bearer realm="https://auth.docker.io/token",service="registry.docker.io"', PULL, None)


def test_an_expired_password_is_read_again(auth: Authenticator, config: Path) -> None:
    sent_header = None
    for password in ("p1", "p2"):
        config.write_text(json.dumps({"auths": {REGISTRY: {"username": "u", "password": password}}}))
        assert auth.answer('Basic realm="x"', PULL, sent_header)
        sent_header = auth.header(PUSH)
        assert sent_header == "Basic " + base64.b64encode(f"u:{password}".encode()).decode()
    assert not auth.answer('Basic realm="x"', PULL, sent_header)


def test_a_registry_may_ask_for_a_password_after_a_token(auth: Authenticator, config: Path) -> None:
    """Harbor does so if the rights of the token do not suffice."""
    config.write_text(json.dumps({"auths": {REGISTRY: {"username": "u", "password": "p"}}}))
    assert auth.answer(CHALLENGE, PULL, None)
    assert auth.answer('Basic realm="harbor"', PULL, auth.header(PULL))
    assert auth.header(PULL) == "Basic " + base64.b64encode(b"u:p").decode()


@pytest.mark.parametrize("requested", ["", 'Basic realm="x"', "Negotiate", "gibberish ==="])
def test_other_challenges_are_not_answered(auth: Authenticator, requested: str) -> None:
    assert not auth.answer(requested, PULL, None)
    assert auth.header(PULL) is None


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('Basic realm="x"', [("basic", {"realm": "x"})]),
        (
            'Bearer realm="u",service="reg, one",scope="a:pull,push"',
            [("bearer", {"realm": "u", "service": "reg, one", "scope": "a:pull,push"})],
        ),
        ('BEARER Realm = bare , service="a \\"b\\""', [("bearer", {"realm": "bare", "service": 'a "b"'})]),
        ("Basic realm=/", [("basic", {"realm": "/"})]),
        ("Bearer realm=https://r/token?x=1,service=reg", [("bearer", {"realm": "https://r/token?x=1", "service": "reg"})]),
        ('Basic realm="x", BEARER realm="u"', [("basic", {"realm": "x"}), ("bearer", {"realm": "u"})]),
        ('Negotiate, Basic realm="x"', [("negotiate", {}), ("basic", {"realm": "x"})]),
        ('Bearer realm="a",realm="b"', [("bearer", {"realm": "a"})]),
        ('Basic realm="never closed', [("basic", {}), ("realm", {})]),
        ('realm="of nothing"', []),
        ("", []),
    ],
)
def test_headers(header: str, expected: list[tuple[str, dict[str, str]]]) -> None:
    assert parse_challenges(header) == expected


PIECES = st.sampled_from(["Bearer ", 'realm="', '"', ",", "=", "\\", "a"])


@given(st.text(max_size=200) | st.lists(PIECES, max_size=80).map("".join))
def test_any_header_reads(header: str) -> None:
    assert len(parse_challenges(header)) <= 50
