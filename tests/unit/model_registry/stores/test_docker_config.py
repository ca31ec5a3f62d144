"""Docker's configuration: its path, its content, the answers of helpers, and its faults."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from model_registry.errors import Misconfigured, Unreachable
from model_registry.stores.docker_config import HUB_KEY, Credentials, find_credentials

REGISTRY = "registry.example.com:5000"


def auth(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "config.json"


def helper(folder: Path, name: str, script: str) -> None:
    program = folder / f"docker-credential-{name}"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (None, None),
        ({}, None),
        ({"auths": {}}, None),
        ({"auths": {"other.example.com": auth("u", "p")}}, None),
        ({"auths": {REGISTRY: {}}}, None),
        ({"auths": {REGISTRY: auth("u", "p:q")}}, Credentials("u", "p:q")),
        ({"auths": {f"https://{REGISTRY}/v2/": auth("u", "p")}}, Credentials("u", "p")),
        ({"auths": {REGISTRY: {"username": "u", "password": "p"}}}, Credentials("u", "p")),
        ({"auths": {REGISTRY: {"identitytoken": "t"}}}, Credentials("", "", "t")),
        ({"auths": {REGISTRY: auth("u", "p")}, "unknown": [1]}, Credentials("u", "p")),
        ({"auths": None, "credHelpers": None, "credsStore": None}, None),
        ({"auths": {REGISTRY: None}}, None),
        ({"auths": {"other": None, REGISTRY: {**auth("u", "p"), "identitytoken": None}}}, Credentials("u", "p")),
        ({"auths": {REGISTRY: {"auth": None, "username": "u", "password": "p"}}}, Credentials("u", "p")),
        ({"auths": {REGISTRY: {"username": "u", "password": None}}}, Credentials("u", "")),
        ({"auths": {REGISTRY: auth("u", "p")}, "credHelpers": {REGISTRY: None}}, Credentials("u", "p")),
        ({"auths": {REGISTRY: {"auth": "dTpsb25n\nbG9uZw==\n"}}}, Credentials("u", "longlong")),
        ({"auths": {f"{REGISTRY}/team": auth("team", "t"), REGISTRY: auth("u", "p")}}, Credentials("u", "p")),
        ({"auths": {f"{REGISTRY}/team": auth("team", "t")}}, Credentials("team", "t")),
        ({"auths": {f"https://{REGISTRY}": {}, REGISTRY: auth("u", "p")}}, Credentials("u", "p")),
    ],
)
@pytest.mark.parametrize("at_home", [False, True])
def test_credentials_are_read_from_the_file(
    config: Path, monkeypatch: pytest.MonkeyPatch, at_home: bool, document: Any, expected: Credentials | None
) -> None:
    if at_home:
        monkeypatch.delenv("DOCKER_CONFIG")
        monkeypatch.setenv("HOME", str(config.parent))
        config = config.parent / ".docker" / "config.json"
        config.parent.mkdir()
    if document is not None:
        config.write_text(json.dumps(document))
    assert find_credentials(REGISTRY) == expected


@pytest.mark.parametrize("text", ["", "\n", "\ufeff{}"])
def test_a_file_without_content_holds_no_credentials(config: Path, text: str) -> None:
    config.write_text(text)
    assert find_credentials(REGISTRY) is None


@pytest.mark.parametrize("name", [HUB_KEY, "docker.io", "index.docker.io", "https://registry-1.docker.io/v2/"])
def test_docker_hub_has_several_names(config: Path, name: str) -> None:
    config.write_text(json.dumps({"auths": {name: auth("u", "p")}}))
    assert find_credentials("docker.io") == Credentials("u", "p")
    assert find_credentials("docker.io.example.com") is None


def test_a_helper_for_one_registry_precedes_the_store_of_all(config: Path) -> None:
    helper(config.parent, "one", """echo '{"Username": "one", "Secret": "p"}'""")
    helper(config.parent, "all", """echo '{"Username": "<token>", "Secret": "t"}'""")
    config.write_text(json.dumps({"credsStore": "all", "credHelpers": {REGISTRY: "one"}}))
    assert find_credentials(REGISTRY) == Credentials("one", "p")
    assert find_credentials("other.example.com") == Credentials("", "", "t")


@pytest.mark.parametrize("name", [HUB_KEY, "docker.io"])
def test_the_helper_of_docker_hub_precedes_the_store_of_all(config: Path, name: str) -> None:
    helper(config.parent, "hub", f"""[ "$(cat)" = '{HUB_KEY}' ] && echo '{{"Username": "hub", "Secret": "p"}}'""")
    helper(config.parent, "all", """echo '{"Username": "all", "Secret": "p"}'""")
    config.write_text(json.dumps({"credsStore": "all", "credHelpers": {name: "hub"}}))
    assert find_credentials("docker.io") == Credentials("hub", "p")
    config.write_text(json.dumps({"credsStore": "all", "credHelpers": {name: ""}, "auths": {HUB_KEY: auth("u", "p")}}))
    assert find_credentials("docker.io") == Credentials("u", "p")


def test_the_file_is_used_if_a_helper_has_no_credentials(config: Path) -> None:
    helper(config.parent, "none", "echo 'credentials not found in native keychain'; exit 1")
    config.write_text(json.dumps({"credsStore": "none", "auths": {REGISTRY: auth("u", "p")}}))
    assert find_credentials(REGISTRY) == Credentials("u", "p")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"x": ' + "[" * 5_000 + "]" * 5_000 + "}", "nests more than 100 levels deep"),
        ('{"auths": {"registry.example.com:5000": {"auth": "?"}}}', "is not base64"),
        ('{"credsStore": "../evil"}', "names the credential helper '../evil'"),
        ('{"credsStore": "absent"}', "docker-credential-absent, which is not installed"),
    ],
)
def test_an_unusable_configuration_is_named(config: Path, text: str, error: str) -> None:
    config.write_text(text)
    with pytest.raises(Misconfigured, match=error) as caught:
        find_credentials(REGISTRY)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("script", "error"),
    [("echo 'no keyring' >&2; exit 3", "ended with exit code 3: no keyring"), ("exit 0", "did not return credentials")],
)
def test_the_failure_of_a_helper_is_retriable(config: Path, script: str, error: str) -> None:
    helper(config.parent, "broken", script)
    config.write_text('{"credsStore": "broken"}')
    with pytest.raises(Unreachable, match=error) as caught:
        find_credentials(REGISTRY)
    assert caught.value.transient


def test_credentials_do_not_show_their_secret() -> None:
    assert "p4ss" not in repr(Credentials("u", "p4ss", "t0ken"))
    assert "t0ken" not in repr(Credentials("u", "p4ss", "t0ken"))
