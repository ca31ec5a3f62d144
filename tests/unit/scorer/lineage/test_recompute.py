"""The choice between the logged inputs of a score and its event."""

from confluent_kafka import Message

from model_registry.package.signature import InputField, Output, Signature, TensorInput
from scorer.features.log import LoggedInputs
from scorer.features.read import FeatureRecord, FeatureSource
from scorer.lineage.recompute import complete_inputs

FIELDS = (InputField("a", "float32"), InputField("b", "float32"))
SIGNATURE = Signature((TensorInput("x", "float32", FIELDS),), (Output(None, "score"),))


def logged(**inputs: float) -> LoggedInputs:
    source = FeatureSource("flights", 0, 7)
    record = FeatureRecord(id="e", source=source, event_ms=1, scored_ms=2, version="v1", digest="sha256:1", inputs=inputs)
    return LoggedInputs(record, Message())


def test_a_record_with_all_fields_of_the_version_is_used() -> None:
    inputs = logged(a=1.0, b=2.0, c=3.0)
    assert complete_inputs(inputs, SIGNATURE) == (inputs, "")


def test_a_record_without_some_fields_of_the_version_is_not_used() -> None:
    assert complete_inputs(logged(a=1.0), SIGNATURE) == (None, "has a record of this score without the inputs 'b'")


def test_a_score_without_a_record_has_no_logged_inputs() -> None:
    assert complete_inputs(None, SIGNATURE) == (None, "has no record of this score")
