"""The settings log.level and log.format of scorers and relays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from publisher.relay import settings as relay_settings
from publisher.runtime.configuration import SettingsError
from publisher.runtime.log_settings import LogSettings, flags_with_level
from scorer import settings as scorer_settings
from tests.support.canary import merged
from tests.unit.scorer.minimal import STATED

RELAY = {
    "name": "r",
    "source": {"region": "eu", "bootstrap_servers": "a:1", "topics": ["t"]},
    "destination": {"region": "us", "bootstrap_servers": "b:1"},
}
Load = Callable[..., LogSettings]


@pytest.fixture(params=["SCORER", "PUBLISHER"])
def prefix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def load(prefix: str, tmp_path: Path) -> Load:
    """Return a function that loads the section `log` of a scorer or relay, from a file with this section and from flags."""

    def load_section(section: dict[str, Any], *flags: str) -> LogSettings:
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(merged(STATED if prefix == "SCORER" else RELAY, {"log": section})))
        module: Any = scorer_settings if prefix == "SCORER" else relay_settings
        section_settings: LogSettings = module.load(path, flags).settings.log
        return section_settings

    return load_section


def test_the_defaults_are_info_and_auto(load: Load) -> None:
    assert load({}) == LogSettings(level="info", format="auto")


def test_a_level_is_valid_in_any_case(load: Load) -> None:
    assert load({"level": "WARNING"}).level == "warning"


def test_the_option_overrides_the_environment_and_the_environment_the_file(
    load: Load, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{prefix}_LOG__LEVEL", "error")
    monkeypatch.setenv(f"{prefix}_LOG__FORMAT", "json")
    assert load({"level": "warning", "format": "text"}) == LogSettings(level="error", format="json")
    assert load({}, *flags_with_level(["name=other"], "DEBUG")).level == "debug"
    assert load({}, *flags_with_level(None, None)).level == "error"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"levl": "info"}, "log.levl (CONFIG): unknown key; the nearest valid name is 'level'"),
        ({"level": "loud"}, "log.level (CONFIG): 'loud' is not one of 'debug', 'info', 'warning' or 'error'"),
        ({"format": "yaml"}, "log.format (CONFIG): 'yaml' is not one of 'auto', 'json' or 'text'"),
    ],
)
def test_a_wrong_name_or_value_is_named_with_the_valid_ones(
    load: Load, tmp_path: Path, section: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError) as error:
        load(section)
    assert str(error.value).replace(str(tmp_path / "config.yaml"), "CONFIG") == message
