"""The feature log on the real broker: one record for each score, with the inputs of the model and the version of the score."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import yaml
from confluent_kafka import Message
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from onnx import TensorProto, helper, numpy_helper

from tests.docs import pages
from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.integration.scorer.schema_registry import SchemaRegistry
from tests.integration.scorer.test_canary import moved
from tests.integration.scorer.test_kill import load
from tests.support import auditor, models
from tests.support.processes import Program

PAGE = "scorer/docs/feature-log.md"
COUNT, EARLY = 12_000, 2_000
PAIRED = ("id", "event_ms", "scored_ms", "model", "version", "digest", "role", "revision")
"""The fields that a feature record has in common with its score."""


def log_topic(rig: Rig) -> str:
    return f"{rig.name}.features"


def logged(rig: Rig) -> list[Message]:
    return list(auditor.read(rig.bootstrap_servers, log_topic(rig)))


def make_logging_rig(make_rig: MakeRig, features: dict[str, Any] | None = None, **overrides: Any) -> Rig:
    rig = make_rig(**overrides)
    of_page: dict[str, Any] = yaml.safe_load(pages.blocks(PAGE)["feature-log"])["features"]
    assert of_page == {"topic": "flights.features"}
    rig.configure(features={"topic": log_topic(rig), **(features or {})})
    return rig


def sum_of_integers(path: Path) -> None:
    """Write a model with y = a + b for two integers."""
    nodes = [helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT), helper.make_node("ReduceSum", ["f", "axes"], ["y"])]
    axes = numpy_helper.from_array(np.array([1], np.int64), "axes")
    inputs = [models.tensor("x", TensorProto.INT64, "N", 2)]
    models.save(nodes, inputs, [models.tensor("y", TensorProto.FLOAT, "N", 1)], path, [axes])


def identity(record: dict[str, Any]) -> str:
    return json.dumps([record["source"], *(record[name] for name in PAIRED)])


def assert_one_record_for_each_score(rig: Rig) -> list[dict[str, Any]]:
    """Check the log against the scores, and the inputs against the events; return the records."""
    messages = logged(rig)
    records = [json.loads(message.value() or b"") for message in messages]
    assert Counter(map(identity, records)) == Counter(identity(score) for score in rig.scores() if score["status"] == "scored")
    names = json.loads(pages.blocks(PAGE)["record"]).keys()
    for message, record in zip(messages, records, strict=True):
        assert record.keys() == names
        number = float(record["id"].removeprefix("e"))
        assert record["inputs"] == {"a": number, "b": 0.0}
        assert message.partition() == record["source"]["partition"] % 3
        assert message.timestamp()[1] == record["event_ms"]
    return records


def test_each_score_has_one_feature_record_under_kill_9_and_a_canary(make_rig: MakeRig) -> None:
    rig = make_logging_rig(make_rig).stocked(6, versions=2)
    rig.delete(log_topic(rig))
    rig.make_topic(log_topic(rig), 3)
    first, second = rig.start("a").ready(), rig.start("b").ready()
    rig.emit(events(EARLY, keys=300))
    until(lambda: rig.answered() == EARLY, "the scores before the canary")
    moved(rig, "promote", "scorer.yaml", "--to", "2.0.0", "--canary", "30%")
    flow = load(rig, COUNT - EARLY, start=EARLY)
    rig.produce(b'{"id": "bad", "a": "x", "b": 1}', key=b"k")
    rig.produce(b'{"id": "late", "a": 1, "b": 0}', key=b"k", headers=[("deadline", b"1")])
    until(lambda: rig.answered() > EARLY + 2_000, "scores of both versions")
    first.kill()
    until(lambda: second.metric("scorer_assigned_partitions") == 6, "the take-over")
    third = rig.start("a").ready()
    flow.join()
    until(lambda: rig.answered() >= COUNT + 2, "all scores")
    rig.assert_audited(events=COUNT + 2)
    records = assert_one_record_for_each_score(rig)
    assert {(record["version"], record["role"]) for record in records} >= {("1.0.0", "champion"), ("2.0.0", "canary")}
    assert len(records) == COUNT
    offsets: dict[tuple[int, int], list[int]] = {}
    for record in records:
        offsets.setdefault(record["source"]["partition"], []).append(record["source"]["offset"])
    assert all(numbers == sorted(numbers) for numbers in offsets.values())
    assert [scorer.stop() for scorer in (second, third)] == [0, 0]


def assert_the_consumer_of_the_page_reads(rig: Rig, url: str, count: int) -> None:
    script = pages.blocks(PAGE)["read-avro"]
    for named, actual in (
        ("kafka:9092", rig.bootstrap_servers),
        ("http://schema-registry:8081", url),
        ("flights.features", log_topic(rig)),
        ("feature-sink", f"{rig.name}.sink"),
    ):
        assert named in script
        script = script.replace(named, actual)
    (rig.folder / "sink.py").write_text(script)
    sink = Program([sys.executable, str(rig.folder / "sink.py")], rig.folder / "sink.log")
    rig.others.append(sink)
    until(lambda: sink.said.count("1.0.0 {'a': ") == count or sink.ended, "the records that the consumer of the page prints")
    assert not sink.ended, sink.said


def test_a_plain_consumer_reads_avro_records_and_an_incompatible_schema_refuses_the_version(
    make_rig: MakeRig, schema_registry: SchemaRegistry, tmp_path: Path
) -> None:
    url = schema_registry.url
    rig = make_logging_rig(make_rig, {"format": "avro"}, schema_registry={"url": url}).stocked()
    scorer = rig.start().ready()
    rig.emit(events(200))
    until(lambda: rig.answered() == 200, "the scores")
    registry = SchemaRegistryClient({"url": url})
    context = SerializationContext(log_topic(rig), MessageField.VALUE)
    records: list[Any] = [AvroDeserializer(registry)(message.value(), context) for message in logged(rig)]
    assert_the_consumer_of_the_page_reads(rig, url, 200)
    assert {record["id"]: record["inputs"] for record in records} == {f"e{n}": {"a": float(n), "b": 0.0} for n in range(200)}
    scores = {score["id"]: score for score in rig.scores()}
    assert all(record[name] == scores[record["id"]][name] for record in records for name in PAIRED)
    subject = f"{log_topic(rig)}-value"
    httpx.put(f"{url}/config/{subject}", json={"compatibility": "BACKWARD"}).raise_for_status()
    other = {"inputs": [{"tensor": "x", "dtype": "int64", "fields": ["a", "b"]}], "output": {"tensor": "y"}}
    rig.push(models.package(tmp_path / "integers", sum_of_integers, other), "2.0.0")
    rig.run("model-registry", "promote", "oci:./registry/model", "--to", "2.0.0", "--reason", "test", code=None)
    until(lambda: "rejects the schema of the feature log" in scorer.said, "the refusal")
    rig.emit(events(10, start=200))
    until(lambda: rig.answered() == 210, "scores of the earlier version")
    unreachable = ["schema_registry.url=http://127.0.0.1:1", "schema_registry.extra={max.retries: 0}"]
    waiting = rig.start("b", *(flag for change in unreachable for flag in ("--set", change)))
    until(lambda: "schema-registry: " in waiting.get("/readyz")[1], "the wait for the registry")
    assert [waiting.stop(), scorer.stop()] == [0, 0]


def test_a_feature_record_that_is_too_large_is_dropped_and_its_event_is_scored(make_rig: MakeRig) -> None:
    rig = make_logging_rig(make_rig).stocked(2)
    rig.alter(log_topic(rig), "max.message.bytes", "1300")
    scorer = rig.start().ready()
    rig.emit(events(50))
    until(lambda: rig.answered() == 50, "scores without feature records")
    until(lambda: scorer.metric("scorer_features_dropped_total") == 50, "the count of records that are too large")
    assert logged(rig) == []
    assert scorer.stop() == 0
    rig.alter(log_topic(rig), "max.message.bytes", "1000000")
    restarted = rig.start().ready()
    rig.alter(log_topic(rig), "max.message.bytes", "200")
    rig.emit(events(5, start=50))
    until(lambda: rig.answered() == 55, "scores whose feature records the broker rejects")
    until(lambda: restarted.metric("scorer_features_dropped_total") == 5, "the count of rejected records")
    assert logged(rig) == []
    rig.assert_clean(events=55, scored=55)
    assert "with the reason record-refused" in restarted.said
    assert restarted.stop() == 0


def test_a_sample_and_a_list_of_fields_limit_the_log_and_check_names_unknown_fields(make_rig: MakeRig) -> None:
    rig = make_logging_rig(make_rig, {"sample": 0.5, "fields": ["b"]}, delivery="at-least-once").stocked(2)
    scorer = rig.start().ready()
    rig.emit(events(1_000, keys=100))
    until(lambda: rig.answered() == 1_000, "the scores")
    until(lambda: len(logged(rig)) > 0, "the feature records")
    assert scorer.stop() == 0
    messages = logged(rig)
    by_key = Counter(message.key() for message in messages)
    assert 20 < len(by_key) < 80
    assert set(by_key.values()) == {10}
    assert all(json.loads(message.value() or b"")["inputs"] == {"b": 0.0} for message in messages)
    misspelt = ["--set", "features.fields=[b, c]"]
    checks = json.loads(rig.run("scorer", "check", "scorer.yaml", "--json", *misspelt, code=1).stdout)["checks"]
    (wrong,) = [check for check in checks if not check["ok"]]
    assert (wrong["check"], wrong["detail"]) == ("features", "version 1.0.0 has no field 'c' to log")
