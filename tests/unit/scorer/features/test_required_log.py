"""Which versions need the feature log, and the errors if it is not configured or has too few inputs."""

import pytest

from model_registry.package.signature import InputField, Output, Signature, TensorInput
from publisher.errors import USAGE, Fatal
from scorer.features.required_log import joined_names, require_log
from scorer.settings.features import FeatureLogSettings

JOINED = InputField("customers.age", "float32", source="table:customers")
TIER = InputField("customers.tier", "float32", source="table:customers")
AMOUNT = InputField("amount", "float32")


def signature(*fields: InputField) -> Signature:
    return Signature((TensorInput("x", "float32", fields),), (Output(None, "score"),))


def test_fields_of_tables_are_joined_fields() -> None:
    key = InputField("key", "float32", source="key")
    assert joined_names(signature(AMOUNT, TIER, key, JOINED)) == ["customers.tier", "customers.age"]


def test_a_version_without_joined_names_needs_no_log() -> None:
    assert not require_log(FeatureLogSettings(), [signature(AMOUNT)])


def test_a_version_with_joined_names_needs_the_log() -> None:
    assert require_log(FeatureLogSettings(topic="f"), [signature(AMOUNT), signature(AMOUNT, JOINED)])


def test_without_a_log_the_error_names_the_joined_names_and_the_remedy() -> None:
    with pytest.raises(Fatal, match=r"'customers.age', 'customers.tier' .* are not recoverable") as error:
        require_log(FeatureLogSettings(), [signature(JOINED), signature(AMOUNT, JOINED, TIER)])
    assert error.value.exit_code == USAGE
    assert "set features.topic" in error.value.hint


def test_a_log_without_all_fields_of_the_version_is_an_error_that_names_the_missing_fields() -> None:
    features = FeatureLogSettings(topic="f", fields=["customers.age"])
    with pytest.raises(Fatal, match=r"features\.fields does not hold 'amount', 'customers.tier'") as error:
        require_log(features, [signature(AMOUNT, JOINED, TIER)])
    assert error.value.exit_code == USAGE
    assert require_log(features, [signature(JOINED)])


def test_the_log_needs_the_fields_of_all_compared_versions_if_one_has_joined_fields() -> None:
    features = FeatureLogSettings(topic="f", fields=["customers.age"])
    with pytest.raises(Fatal, match=r"features\.fields does not hold 'amount'"):
        require_log(features, [signature(AMOUNT), signature(JOINED)])
