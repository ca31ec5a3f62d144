"""The relay's settings are strict, and each fault is reported with its value and the remedy."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

import publisher
from publisher.kafka.security import SecuritySettings
from publisher.relay.settings import DestinationSettings, HttpSettings, RelaySettings, SourceSettings, load
from publisher.runtime.configuration import SettingsError
from publisher.runtime.log_settings import LogSettings

MINIMAL: dict[str, Any] = {
    "name": "r",
    "source": {"region": "eu", "bootstrap_servers": "a:1", "topics": ["scores"]},
    "destination": {"region": "us", "bootstrap_servers": "b:1"},
}


def loaded(tmp_path: Path, *flags: str) -> RelaySettings:
    path = tmp_path / "publisher.yaml"
    path.write_text(yaml.safe_dump(MINIMAL))
    return load(path, flags).settings


def test_flags_override_the_environment_and_the_environment_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBLISHER_LANES", "8")
    monkeypatch.setenv("PUBLISHER_SOURCE__FETCH_BYTES", "4096")
    settings = loaded(tmp_path, "lanes=2")
    assert (settings.lanes, settings.source.fetch_bytes, settings.checkpoint_topic) == (2, 4096, "scorestream.checkpoints")


def test_every_setting_is_documented() -> None:
    page = (Path(publisher.__file__).parent / "docs" / "relay-reference.md").read_text()
    sections: dict[str, type[BaseModel]] = {
        "source": SourceSettings,
        "destination": DestinationSettings,
        "http": HttpSettings,
        "log": LogSettings,
    }
    names = {f"{section}.{name}" for section, model in sections.items() for name in model.model_fields}
    names |= set(RelaySettings.model_fields) - set(sections)
    names |= {f"security.{name}" for name in SecuritySettings.model_fields}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


def test_paths_of_both_sides_are_relative_to_their_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hush")
    login = "{protocol: SASL_PLAINTEXT, mechanism: PLAIN, username: relay, password_file: password}"
    path = tmp_path / "publisher.yaml"
    for side, section in (("source", MINIMAL["source"]), ("destination", MINIMAL["destination"])):
        path.write_text(yaml.safe_dump(MINIMAL | {side: section | {"security": yaml.safe_load(login)}}))
        cluster = getattr(load(path).settings, side)
        assert cluster.security.password_file == tmp_path / "password"
        assert cluster.kafka.security == cluster.security
        assert cluster.kafka.section == side


WRONG = {
    "lane=4": ["lane", "'lanes'"],
    "source.topcs=[a]": ["source.topcs", "'topics'"],
    "lanes=0": ["lanes", "0"],
    "source.topics=['^(']": ["source.topics", "not a valid regular expression"],
    "source.topics=[a/b]": ["source.topics", "a/b"],
    "destination.topic='{tpic}'": ["destination.topic", "{tpic}"],
    "destination.region=eu": ["both 'eu'", "each its own name"],
    "destination.compression=lzma": ["lzma", "'lz4'"],
    "source.groups=[scorers]": ["source.groups", "write '{region}.{topic}'"],
    "source.groups=[scorers] & destination.topic={region}.{topic} & filter={decision:[late]}": ["but filter is set"],
    "source.security.password=hush-1": ["source.security.password", "PUBLISHER_SOURCE__SECURITY__PASSWORD"],
    "destination.security.username=relay": ["destination.security.username", "protocol: SASL_PLAINTEXT"],
    "destination.security.protocl=SSL": ["destination.security.protocl", "'protocol'"],
    "source={security: {protocol: SSL}, extra: {ssl.ca.location: ca.pem}}": ["source.extra.ssl.ca.location", "source.security"],
}


@pytest.mark.parametrize("flag", WRONG)
def test_a_wrong_setting_is_named(tmp_path: Path, flag: str) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, *flag.split(" & "))
    assert all(part in str(caught.value) for part in WRONG[flag]), str(caught.value)
    assert "hush-1" not in str(caught.value)


def test_destination_names_and_lanes(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "destination.topic={region}.{topic}", "lanes=3")
    assert settings.destination_topic("scores") == "eu.scores"
    assert {settings.lane("scores", partition) for partition in range(6)} == {0, 1, 2}
    assert settings.transactional_ids(2) == ["r/relay/2/0", "r/relay/2/1"]
