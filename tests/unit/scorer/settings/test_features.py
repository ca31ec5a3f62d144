"""The settings of the feature log."""

import pytest
from pydantic import ValidationError

from scorer.settings.shadow_worker import ShadowWorkerSettings
from tests.unit.scorer.minimal import minimal


def test_without_a_topic_there_is_no_feature_log() -> None:
    settings = minimal()
    assert (settings.features.topic, settings.features.sample, settings.features.fields) == (None, 1.0, "all")
    assert settings.answer_topics == ("out", "in.dead", "n.swaps")


def test_the_feature_log_is_written_in_the_transaction_of_a_batch_but_not_by_a_shadow() -> None:
    settings = minimal(features={"topic": "log"})
    assert "log" in settings.answer_topics
    assert ShadowWorkerSettings.from_scorer(settings).features.topic is None


@pytest.mark.parametrize(
    ("features", "error"),
    [
        ({"topic": "out"}, "output.topic and features.topic are the same topic"),
        ({"topic": "log", "sample": 0}, "greater than 0"),
        ({"topic": "log", "sample": 1.5}, "less than or equal to 1"),
        ({"topic": "log", "fields": []}, "at least one name"),
        ({"topic": "log", "fields": ["a", "a"]}, "each once"),
        ({"topic": "log", "format": "avro"}, "set schema_registry.url"),
    ],
)
def test_settings_that_contradict_each_other_are_rejected(features: dict[str, object], error: str) -> None:
    with pytest.raises(ValidationError, match=error):
        minimal(features=features)


def test_a_feature_log_in_avro_uses_the_registry_beside_a_schema_file() -> None:
    settings = minimal(
        features={"topic": "log", "format": "avro"},
        input={"format": "avro", "schema_file": "event.avsc"},
        schema_registry={"url": "http://registry"},
    )
    assert settings.features.format == "avro"
