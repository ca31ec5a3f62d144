"""`schema_registry.extra` and URLs: rejected properties, and secrets that no error prints."""

from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from publisher.errors import USAGE, Fatal
from publisher.runtime.configuration import SettingsError
from publisher.runtime.dependency_wait import schema_registry_unavailable
from scorer.decoding.schema_formats import schema_source
from scorer.decoding.schema_formats.schema import LookUpFailed, SchemaId
from scorer.decoding.schema_formats.schema_registry_client import SchemaRegistryHttpClient
from scorer.settings import load, registry_properties
from scorer.settings.input import SchemaRegistrySettings
from scorer.settings.registry_properties import ALLOWED, SECRET
from tests.support.canary import CANARY, URL, merged, seen_in
from tests.unit.scorer.minimal import STATED

BROKEN_URL = f"http://me:{CANARY[:4]}/{CANARY[4:]}@host:8081"


def refusal_message(**changes: Any) -> str:
    with pytest.raises(SettingsError) as refusal:
        load(merged(STATED, changes))
    return str(refusal.value)


def test_unknown_property_is_rejected_with_the_nearest_one() -> None:
    message = refusal_message(schema_registry={"extra": {"basic.auth.userinfo": CANARY, "url": URL, "max.retry": 3}})
    assert "the nearest valid name is 'basic.auth.user.info'" in message
    assert "url must not be set: `schema_registry.url` sets it" in message
    assert "the nearest valid name is 'max.retries'" in message
    assert seen_in(message) == []


def test_the_client_knows_every_property_that_is_allowed() -> None:
    numbers = {"cache.capacity", "cache.latest.ttl.sec", "max.retries", "retries.max.wait.ms", "retries.wait.ms", "timeout"}
    files = {name for name in ALLOWED | SECRET if name.startswith("ssl.")}
    bearer = {name for name in ALLOWED | SECRET if name.startswith("bearer.")}
    values: dict[str, Any] = dict.fromkeys(numbers, 1) | {"proxy": "http://127.0.0.1:1", "basic.auth.user.info": "a:b"}
    assert values.keys() | files | bearer == ALLOWED | SECRET
    with SchemaRegistryClient({"url": "http://127.0.0.1:1", **values}) as client:
        assert client is not None


@pytest.mark.parametrize("section", ["schema_registry.url", "schema_registry.extra.proxy", "tracing.endpoint"])
def test_url_with_unescaped_password_is_rejected_without_printing_it(section: str) -> None:
    value: Any = BROKEN_URL
    for part in reversed(section.split(".")):
        value = {part: value}
    message = refusal_message(**value)
    assert "escape special characters of a password" in message
    assert section.rpartition(".")[2] in message
    assert CANARY[:4] not in message
    assert CANARY[4:] not in message


BEARER = {
    "bearer.auth.credentials.source": "STATIC_TOKEN",
    "bearer.auth.logical.cluster": "cluster",
    "bearer.auth.token": CANARY,
}


@pytest.mark.parametrize("extra", [{}, {"proxy": URL}, BEARER])
def test_unavailable_registry_prints_no_password(extra: dict[str, Any]) -> None:
    settings = SchemaRegistrySettings(url=URL, extra={"max.retries": 0, "timeout": 1, **extra})
    client = SchemaRegistryHttpClient(settings)
    with pytest.raises(LookUpFailed) as failure:
        client.schema(SchemaId("id", 1))
    assert seen_in(f"{failure.value!r} {schema_registry_unavailable(settings.url, failure.value)!r}") == []


def test_only_harmless_properties_are_printed() -> None:
    assert ALLOWED.isdisjoint(SECRET)
    assert registry_properties.REJECTED.keys().isdisjoint(ALLOWED | SECRET)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"bearer.auth.credentials.source": "STATIC_TOKEN"}, "bearer.auth.logical.cluster"),
        ({"basic.auth.user.info": CANARY}, "basic.auth.user.info"),
        ({"ssl.ca.location": "/no/such/file"}, "No such file"),
    ],
)
def test_contradicting_properties_are_rejected_by_name(extra: dict[str, str], message: str) -> None:
    changes = {"input": {"format": "avro"}, "schema_registry": {"url": "http://localhost:1", "extra": extra}}
    with pytest.raises(Fatal, match=message) as raised:
        schema_source.create_schema_source(load(merged(STATED, changes)).settings)
    assert raised.value.exit_code == USAGE
    assert seen_in(str(raised.value)) == []
