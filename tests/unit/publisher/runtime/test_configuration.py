"""No error about a configuration and no printed configuration contains a secret. The models list all settings."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from publisher.kafka import client_properties
from publisher.relay.settings import RelaySettings
from publisher.runtime import configuration
from publisher.runtime.configuration import Configuration, SettingsError, flatten, shown
from scorer.settings import Settings, registry_properties
from scorer.settings.shadow_worker import ShadowWorkerSettings
from tests.support import canary
from tests.support.canary import CANARY, FORMS, URL, is_secret, is_section, merged, nested, places, seen_in
from tests.unit.publisher.relay.test_settings import MINIMAL as RELAY
from tests.unit.scorer.minimal import STATED as SCORER
from training.settings import TrainingSettings

Stated = dict[type[Configuration], dict[str, Any]]
MODELS: Stated = {Settings: SCORER, RelaySettings: RELAY, TrainingSettings: {"scorer": "scorer.yaml"}}
KAFKA_EXTRA = dict.fromkeys(sorted(client_properties.SECRET), CANARY)
SCHEMA_EXTRA = dict.fromkeys(sorted(registry_properties.SECRET), CANARY) | {"proxy": URL}
SECRETS: Stated = {
    Settings: {
        "kafka": {"extra": KAFKA_EXTRA | {"sasl.oauthbearer.token.endpoint.url": URL}},
        "schema_registry": {"url": URL, "extra": SCHEMA_EXTRA},
        "tracing": {"endpoint": URL},
    },
    RelaySettings: {"source": {"extra": KAFKA_EXTRA}, "destination": {"extra": KAFKA_EXTRA}},
    TrainingSettings: {},
}
"""Configurations with a secret in each map and each URL that may contain one."""
BETWEEN: dict[str, dict[str, Any]] = {
    "output topic equal to an input topic": {"output": {"topic": "in"}},
    "labels topic equal to the output topic": {"labels": {"topic": "out"}},
    "Avro without a schema": {"schema_registry": {"url": None}, "input": {"format": "avro"}},
    "carry with float32": {"input": {"format": "float32", "id": "header:ce_id"}, "output": {"carry": ["a"]}},
    "fallback without servers": {"model": {"fallback": {"score": 0.5, "after_ms": 100}}},
    "id in an array": {"input": {"format": "json-array", "id": "id"}},
}
"""Faults between settings of a scorer."""


def kinds() -> Iterator[Any]:
    """Yield every setting of every configuration with a wrong value for it."""
    for model in MODELS:
        for name, kind in places(model):
            for value in (f"{CANARY}", [CANARY], URL, f"htp{URL[4:]}", URL.partition("://")[2]):
                if is_section(kind) or is_secret(kind) or "@" in value:
                    yield pytest.param(model, name, value, id=f"{model.__name__}-{name}-{str(value)[:8]}")
            if is_section(kind):
                yield pytest.param(model, f"{name}.passwort", CANARY, id=f"{model.__name__}-{name}.passwort")


def error_text(model: type[Configuration], values: dict[str, Any], *flags: str) -> str:
    """Return the error of a configuration; empty if it is valid."""
    try:
        configuration.load(model, merged(merged(MODELS[model], SECRETS[model]), values), flags)
    except SettingsError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("model", "name", "wrong"), list(kinds()))
def test_a_wrong_value_of_any_setting_is_not_repeated_if_it_may_be_a_secret(
    model: type[Configuration], name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seen_in(error_text(model, nested(name, wrong))) == []
    assert seen_in(error_text(model, {}, f"{name}={wrong}")) == []
    monkeypatch.setenv(f"{model.model_config['env_prefix']}{name.upper().replace('.', '__')}", str(wrong))
    assert seen_in(error_text(model, {})) == []


@pytest.mark.parametrize("fault", BETWEEN)
def test_a_fault_between_settings_names_them_and_prints_no_value_of_others(fault: str) -> None:
    message = error_text(Settings, BETWEEN[fault])
    assert seen_in(message) == []
    assert len(message.splitlines()) == 1
    assert any(part in message for name, _ in flatten(BETWEEN[fault]) for part in name.split(".")[1:]), message


def test_regions_and_topics_of_a_relay_that_are_equal_print_nothing_else() -> None:
    for values in ({"destination": {"region": "eu"}}, {"refusal_topic": "scorestream.checkpoints"}):
        message = error_text(RelaySettings, values)
        assert message
        assert seen_in(message) == []


def test_a_flag_without_a_value_is_not_repeated() -> None:
    with pytest.raises(SettingsError, match="--set key=value") as refusal:
        configuration.load(Settings, SCORER, [CANARY])
    assert seen_in(str(refusal.value)) == []


def test_a_variable_that_is_no_json_is_named_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SCORER_KAFKA", "SCORER_KAFKA__EXTRA"):
        with monkeypatch.context() as variable:
            variable.setenv(name, f"sasl.password={CANARY}")
            message = error_text(Settings, {})
        assert name.partition("__")[0] in message or "kafka" in message
        assert seen_in(message) == []


def test_a_printed_configuration_contains_no_secret() -> None:
    for model, values in MODELS.items():
        settings = configuration.load(model, merged(values, SECRETS[model])).settings
        printed = {key: shown(key, value) for key, value in flatten(settings.model_dump(mode="json"))}
        printed |= {
            key: shown(key, value, registry_properties.ALLOWED)
            for key, value in flatten(settings.model_dump(mode="json"))
            if key.startswith("schema_registry.extra")
        }
        assert seen_in(str(printed)) == []
        masked = [key for key, value in printed.items() if value == "***"]
        assert len(masked) >= len(SECRETS[model]) // 2


def test_a_setting_that_is_named_like_a_secret_is_declared_as_one() -> None:
    marks = ("passw", "secret", "token", "credential")
    named = [
        (name, kind)
        for model in MODELS
        for name, kind in places(model)
        if any(mark in name.rpartition(".")[2] for mark in marks) and not name.endswith("_file")
    ]
    assert named
    assert [name for name, kind in named if not is_secret(kind)] == []


def test_every_form_of_the_canary_is_another_text() -> None:
    assert len(set(FORMS)) == len(FORMS) >= 6
    assert all(map(partial(str.__contains__, canary.URL), [FORMS[3]]))


def test_a_name_that_is_too_long_for_its_shadow_is_a_fault_of_the_settings() -> None:
    settings = configuration.load(Settings, merged(SCORER, SECRETS[Settings] | {"name": "n" * 95})).settings
    with pytest.raises(SettingsError, match="name: ") as refusal:
        ShadowWorkerSettings.from_scorer(settings)
    assert seen_in(str(refusal.value)) == []
