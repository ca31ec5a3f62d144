"""`extra`: every property of the client library is allowed or rejected, and none weakens a guarantee."""

import ctypes
import re
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from pydantic import ValidationError

from publisher.kafka import client_properties
from publisher.kafka.client_properties import ALLOWED, REJECTED, SECRET
from publisher.kafka.clients import KafkaSettings
from publisher.relay import settings as relay_settings
from publisher.runtime.configuration import SettingsError
from scorer import settings as scorer_settings
from tests.support.canary import CANARY, nested
from tests.unit.publisher.relay.test_settings import MINIMAL as RELAY
from tests.unit.scorer.minimal import STATED as SCORER

GUARANTEES = {
    "isolation.level": "read_uncommitted",
    "group.id": "another",
    "group.instance.id": "one",
    "group.protocol": "classic",
    "group.remote.assignor": "range",
    "partition.assignment.strategy": "range",
    "session.timeout.ms": 45_000,
    "heartbeat.interval.ms": 45_000,
    "client.id": "another",
    "bootstrap.servers": "another:9092",
    "metadata.broker.list": "another:9092",
    "transactional.id": "one",
    "transaction.timeout.ms": 900_000,
    "message.timeout.ms": 1,
    "delivery.timeout.ms": 1,
    "enable.auto.commit": True,
    "auto.commit.enable": True,
    "auto.commit.interval.ms": 1,
    "enable.auto.offset.store": True,
    "offset.store.method": "file",
    "auto.offset.reset": "latest",
    "enable.partition.eof": True,
    "enable.idempotence": False,
    "enable.gapless.guarantee": False,
    "acks": 0,
    "request.required.acks": 0,
    "max.in.flight": 1_000,
    "max.in.flight.requests.per.connection": 1_000,
    "retries": 0,
    "message.send.max.retries": 0,
    "queuing.strategy": "lifo",
    "partitioner": "random",
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 1,
    "metadata.recovery.strategy": "rebootstrap",
    "socket.max.fails": 0,
    "batch.size": 1_000_000_000,
    "batch.num.messages": 1_000_000,
    "delivery.report.only.error": True,
    "allow.auto.create.topics": True,
    "topic.blacklist": ".*",
    "topic.metadata.refresh.interval.ms": -1,
    "plugin.library.paths": "another.so",
    "interceptors": "another",
    "enable.ssl.certificate.verification": False,
    "api.version.request": False,
}
"""A value of each property that would weaken a guarantee."""


def library_properties(folder: Path) -> set[str]:
    """Return the names of all properties that the installed library lists."""
    library_folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    library, libc = ctypes.CDLL(str(next(library_folder.glob("librdkafka*")))), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    listed = folder / "properties.md"
    file = ctypes.c_void_p(libc.fopen(str(listed).encode(), b"w"))
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    rows = re.findall(r"^([a-z_.]+) +\| +[*CP] +\|", listed.read_text(), re.MULTILINE)
    return set(rows)


def test_every_property_of_the_library_is_decided_once(tmp_path: Path) -> None:
    decided = [*ALLOWED, *SECRET, *REJECTED]
    assert len(decided) == len(set(decided))
    assert set(decided) == library_properties(tmp_path)


@pytest.mark.parametrize("key", GUARANTEES)
def test_a_property_that_weakens_a_guarantee_is_rejected_with_the_reason(key: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        scorer_settings.load(SCORER | {"kafka": SCORER["kafka"] | {"extra": {key: GUARANTEES[key]}}})
    (line,) = str(refusal.value).splitlines()
    assert line.startswith(f"kafka.extra.{key}: must ")
    assert REJECTED.get(key, "would never be read") in line


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_relay_rejects_the_same_on_both_sides_and_names_each_property(side: str, tmp_path: Path) -> None:
    path = tmp_path / "publisher.yaml"
    extra = dict(list(GUARANTEES.items())[:5])
    path.write_text(str({**RELAY, side: RELAY[side] | {"extra": extra}}))
    with pytest.raises(SettingsError) as refusal:
        relay_settings.load(path)
    assert [line.partition(": ")[0] for line in str(refusal.value).splitlines()] == [
        f"{side}.extra.{key}" for key in sorted(extra)
    ]


def test_an_unknown_property_is_named_with_the_nearest_one_and_without_its_value() -> None:
    assert client_properties.faults({"fetch.max.byte": CANARY}) == {
        "fetch.max.byte": "no property of the Kafka client has this name; the nearest valid name is 'fetch.max.bytes'"
    }
    assert "scorer/docs/client-properties.md" in client_properties.faults({"qqq": CANARY})["qqq"]


def test_tuning_and_credentials_are_accepted() -> None:
    extra: dict[str, Any] = dict.fromkeys(ALLOWED | SECRET, "1")
    assert KafkaSettings(bootstrap_servers="b:1", extra=extra).extra == extra


def test_a_rejected_property_is_no_text_of_its_value() -> None:
    with pytest.raises(ValidationError) as refusal:
        KafkaSettings.model_validate({"bootstrap_servers": "b:1", **nested("extra", {"group.id": CANARY})})
    assert CANARY not in str(refusal.value)
