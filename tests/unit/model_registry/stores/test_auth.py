"""Tokens: fetched when asked for, kept while they are good, fetched again when they are not."""

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
ASKED = f'Bearer realm="https://{REGISTRY}/token",service="reg"'


class Realm:
    """A realm that gives the tokens t1, t2, ... and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[httpx.Request] = []
        self.now, self.status = 0.0, 200
        self.expires: object = 300
        self.body: bytes | None = None

    def fetch(self, request: httpx.Request) -> tuple[int, bytes]:
        self.asked.append(request)
        if self.body is not None:
            return self.status, self.body
        return self.status, json.dumps({"access_token": f"t{len(self.asked)}", "expires_in": self.expires}).encode()


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
            assert auth.answer(ASKED, PULL, auth.header(PULL))


def test_an_anonymous_token_for_each_scope(auth: Authenticator, realm: Realm) -> None:
    assert auth.header(PULL) is None
    assert auth.answer(ASKED, PULL, None)
    assert auth.answer(ASKED, (*PUSH, "repository:team/y:pull"), None)
    assert auth.header(PULL) == "Bearer t1"
    assert parse_qs(realm.asked[0].url.query.decode()) == {"service": ["reg"], "scope": [*PULL]}
    assert parse_qs(realm.asked[1].url.query.decode())["scope"] == [*PUSH, "repository:team/y:pull"]
    assert "Authorization" not in realm.asked[0].headers


@pytest.mark.parametrize(
    ("stated", "good"),
    [(300, 300), (0, MIN_SECONDS), ("300", 300), (300.5, 300.5), (None, MIN_SECONDS)]
    + [(text, MIN_SECONDS) for text in ("", "soon", "-5", "nan", "inf", "1e300", "9" * 400)],
)
def test_a_token_ends_before_it_is_refused(auth: Authenticator, realm: Realm, stated: object, good: float) -> None:
    realm.expires = stated
    auth.answer(ASKED, PULL, None)
    realm.now = good - EARLY_SECONDS - 1
    assert auth.header(PULL) == "Bearer t1"
    realm.now += 2
    assert auth.header(PULL) is None


def test_a_token_that_was_refused_is_replaced_once(auth: Authenticator, realm: Realm) -> None:
    auth.answer(ASKED, PULL, None)
    sent = auth.header(PULL)
    assert auth.answer(ASKED, PULL, sent)
    assert auth.header(PULL) == "Bearer t2"
    assert auth.answer(ASKED, PULL, sent)  # another thread, which had sent the old one as well
    assert len(realm.asked) == 2


def test_a_password_buys_tokens(auth: Authenticator, realm: Realm, config: Path) -> None:
    config.write_text(json.dumps({"auths": {REGISTRY: {"auth": base64.b64encode(b"u:p").decode()}}}))
    auth.answer(ASKED, PULL, None)
    assert realm.asked[0].headers["Authorization"] == "Basic " + base64.b64encode(b"u:p").decode()


def test_an_identity_token_buys_tokens(auth: Authenticator, realm: Realm, config: Path) -> None:
    config.write_text(json.dumps({"auths": {REGISTRY: {"identitytoken": "long"}}}))
    auth.answer(ASKED, PULL, None)
    (request,) = realm.asked
    form = parse_qs(request.read().decode())
    assert (request.method, form["grant_type"], form["refresh_token"]) == ("POST", ["refresh_token"], ["long"])
    assert form["scope"] == [*PULL]


def test_a_realm_that_refuses(auth: Authenticator, realm: Realm) -> None:
    realm.status = 401
    with pytest.raises(Unreachable, match="gives no token") as caught:
        auth.answer(ASKED, PULL, None)
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
def test_a_realm_that_is_not_asked(auth: Authenticator, realm: Realm, url: str) -> None:
    with pytest.raises(Refused, match=r"is not a trusted realm|asks for credentials over|as its realm"):
        auth.answer(f'Bearer realm="{url}"', PULL, None)
    assert realm.asked == []


@pytest.mark.parametrize(
    ("origin", "named", "requested"),
    [
        (f"https://{REGISTRY}", f"http://{REGISTRY}/service/token", f"https://{REGISTRY}/service/token"),
        (f"https://{REGISTRY}:8443", f"http://{REGISTRY}/service/token", f"https://{REGISTRY}:8443/service/token"),
        (f"https://{REGISTRY}", "http://auth.example.com/token", "https://auth.example.com/token"),
        (f"http://{REGISTRY}", f"http://{REGISTRY}/service/token", f"http://{REGISTRY}/service/token"),
    ],
)
def test_a_realm_behind_a_proxy_that_ends_tls_is_asked_with_tls(
    realm: Realm, config: Path, origin: str, named: str, requested: str
) -> None:
    """Harbor behind a load balancer names its realm with http (harbor 3933)."""
    assert not config.exists()
    auth = Authenticator(REGISTRY, httpx.URL(origin), ("auth.example.com",), realm.fetch, lambda: 0.0)
    assert auth.answer(f'Bearer realm="{named}"', PULL, None)
    assert str(realm.asked[0].url.copy_with(query=None)) == requested


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
def test_the_scopes_of_a_challenge_are_asked_for_beside_the_own(
    auth: Authenticator, realm: Realm, stated: str, scopes: list[str] | None
) -> None:
    """Gateways rewrite paths (oras-go 650), others are a registry's own (oras-dotnet 395) or several (container-libs 1130)."""
    assert auth.answer(f'{ASKED},scope="{stated}"', PUSH, None)
    requested_scopes = parse_qs(realm.asked[0].url.query.decode())["scope"]
    assert requested_scopes == scopes if scopes else len(requested_scopes) < 20
    assert auth.header(PUSH) == "Bearer t1"


def test_the_scopes_of_a_challenge_are_not_asked_for_at_a_realm_elsewhere(realm: Realm, config: Path) -> None:
    """Its tokens may be good for other registries, of which this one wants to know something."""
    assert not config.exists()
    auth = Authenticator(REGISTRY, httpx.URL(f"https://{REGISTRY}"), ("auth.example.com",), realm.fetch, lambda: 0.0)
    request = 'Bearer realm="https://auth.example.com/token",service="other",scope="repository:secret:pull,push"'
    assert auth.answer(request, PULL, None)
    assert parse_qs(realm.asked[0].url.query.decode())["scope"] == [*PULL]


def test_a_bearer_challenge_after_credentials_were_sent_counts(auth: Authenticator, config: Path) -> None:
    config.write_text(json.dumps({"auths": {REGISTRY: {"username": "u", "password": "p"}}}))
    assert auth.answer("Basic", PULL, None)
    sent = auth.header(PULL)
    assert sent is not None
    assert sent.startswith("Basic ")
    assert auth.answer(ASKED, PULL, sent)
    assert auth.header(PULL) == "Bearer t1"


def test_the_scope_of_a_general_challenge_is_not_asked_for(auth: Authenticator, realm: Realm) -> None:
    """zot names a repository of its own making at `/v2/` (zot 71)."""
    assert auth.answer(f'{ASKED},scope="repository:repo:pull"', PULL, None, general=True)
    assert parse_qs(realm.asked[0].url.query.decode())["scope"] == [*PULL]


def test_docker_hub_has_its_realm(realm: Realm, config: Path) -> None:
    assert not config.exists()
    hub = Authenticator("docker.io", httpx.URL("https://registry-1.docker.io"), (), realm.fetch, lambda: 0.0)
    assert hub.answer('Bearer realm="https://auth.docker.io/token",service="registry.docker.io"', PULL, None)


def test_a_password_that_has_ended_is_looked_up_again(auth: Authenticator, config: Path) -> None:
    sent = None
    for password in ("p1", "p2"):
        config.write_text(json.dumps({"auths": {REGISTRY: {"username": "u", "password": password}}}))
        assert auth.answer('Basic realm="x"', PULL, sent)
        sent = auth.header(PUSH)
        assert sent == "Basic " + base64.b64encode(f"u:{password}".encode()).decode()
    assert not auth.answer('Basic realm="x"', PULL, sent)


def test_a_registry_may_ask_for_a_password_after_a_token(auth: Authenticator, config: Path) -> None:
    """As Harbor does where the token does not suffice."""
    config.write_text(json.dumps({"auths": {REGISTRY: {"username": "u", "password": "p"}}}))
    assert auth.answer(ASKED, PULL, None)
    assert auth.answer('Basic realm="harbor"', PULL, auth.header(PULL))
    assert auth.header(PULL) == "Basic " + base64.b64encode(b"u:p").decode()


@pytest.mark.parametrize("requested", ["", 'Basic realm="x"', "Negotiate", "gibberish ==="])
def test_nothing_to_say(auth: Authenticator, requested: str) -> None:
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
