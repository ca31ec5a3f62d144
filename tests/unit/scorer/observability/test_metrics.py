"""The metrics of batches."""

import confluent_kafka
import onnxruntime
from prometheus_client import generate_latest

from publisher.transactions.counters import Counters
from scorer.observability.metrics import Metrics
from scorer.settings.model import ModelSettings


def test_batches_are_counted_by_label() -> None:
    metrics = Metrics(Counters(), ModelSettings(source="oci:registry"))
    for _ in range(2):
        metrics.batch(3, "empty", {"scored": 2, "expired": 1}, {"malformed": 0}, {"decode": 0.5, "commit": -1e-9})
    value = metrics.registry.get_sample_value
    assert value("scorer_events_total", {"outcome": "scored"}) == 4
    assert value("scorer_events_total", {"outcome": "expired"}) == 2
    assert value("scorer_dead_letters_total", {"reason": "malformed"}) == 0
    assert value("scorer_batches_limited_total", {"by": "empty"}) == 2
    assert value("scorer_stage_seconds_total", {"stage": "decode"}) == 1.0
    assert value("scorer_stage_seconds_total", {"stage": "commit"}) == 0.0, "a counter never falls"
    assert b"# TYPE scorer_stage_seconds_total counter" in generate_latest(metrics.registry)


def test_the_device_is_that_of_the_served_versions() -> None:
    metrics = Metrics(Counters(), ModelSettings(source="oci:registry", device="cuda"))
    assert b"scorer_device_info{" not in generate_latest(metrics.registry), "no version is served yet"
    metrics.serving([], 1, {"cpu"})
    labels = {"backend": "onnx-runtime", "device": "cpu"}
    assert metrics.registry.get_sample_value("scorer_device_info", labels) == 1


def test_the_build_names_the_libraries_that_are_installed() -> None:
    metrics = Metrics(Counters(), ModelSettings(source="oci:registry"))
    (sample,) = (s for family in metrics.registry.collect() for s in family.samples if s.name == "scorer_build_info")
    assert sample.labels["onnxruntime"] == onnxruntime.__version__
    assert sample.labels["librdkafka"] == confluent_kafka.libversion()[0]


def test_retention_is_exported_by_input_topic() -> None:
    metrics = Metrics(Counters(), ModelSettings(source="oci:registry"))
    metrics.set_input_retentions({"flights": 604_800.0})
    assert metrics.registry.get_sample_value("scorer_input_retention_seconds", {"topic": "flights"}) == 604_800
