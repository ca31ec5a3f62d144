"""`scorer config` masks secrets; `check`, `run` and `config` reject the same configuration with the same message."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from publisher.kafka import client_properties
from publisher.runtime import logs
from publisher.runtime.configuration import SettingsError
from scorer.cli import app
from scorer.settings import registry_properties
from tests.support.canary import CANARY, URL, merged, seen_in
from tests.unit.scorer.minimal import STATED


def invoke(folder: Path, verb: str, *flags: str, **changes: Any) -> Result:
    path = folder / "scorer.yaml"
    path.write_text(yaml.safe_dump(merged(STATED, changes)))
    return CliRunner().invoke(app, [verb, str(path), *flags])


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_secrets_of_both_maps_and_of_urls_are_masked(flags: tuple[str, ...], tmp_path: Path) -> None:
    kafka = dict.fromkeys(client_properties.SECRET, CANARY) | {"sasl.oauthbearer.token.endpoint.url": URL, "client.rack": "r1"}
    registry = dict.fromkeys(registry_properties.SECRET, CANARY) | {"proxy": URL, "timeout": 7}
    result = invoke(
        tmp_path,
        "config",
        *flags,
        kafka={"extra": kafka},
        schema_registry={"url": URL, "extra": registry},
        tracing={"endpoint": URL},
    )
    assert result.exit_code == 0
    assert seen_in(result.output) == []
    if flags:
        values = {key: row["value"] for key, row in json.loads(result.stdout).items()}
        assert values["kafka.extra.client.rack"] == "r1"
        assert values["schema_registry.extra.timeout"] == 7
        assert values["schema_registry.url"] == values["tracing.endpoint"] == "http://***@127.0.0.1:1/path"
        assert {values[f"kafka.extra.{key}"] for key in client_properties.SECRET} == {"***"}
        assert {values[f"schema_registry.extra.{key}"] for key in registry_properties.SECRET} == {"***"}


@pytest.mark.parametrize("verb", ["check", "run", "config"])
def test_every_command_rejects_a_property_that_breaks_a_guarantee(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "configure", lambda *_: None)  # which `run` calls for the whole process
    result = invoke(tmp_path, verb, kafka={"extra": {"isolation.level": "read_uncommitted"}})
    assert isinstance(result.exception, SettingsError)
    assert str(result.exception) == (
        "kafka.extra.isolation.level: must not be set: events and scores of aborted transactions would be read; remove it"
    )
