"""Scores in Avro and in Protobuf, on the real broker: a shadow writes them, and judge, labels and lineage read them."""

import json
import struct
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.integration.scorer.rig import STEP_SECONDS, MakeRig, Rig, events, until
from tests.integration.scorer.schema_registry import SchemaRegistry
from tests.integration.scorer.test_canary import digest_of, moved
from tests.integration.scorer.test_shadow import SHADOWED, reached, serves, start
from tests.support import auditor, models
from tests.unit.scorer.decoding.schema_events import proto_class

COUNT = 100
FACTOR = 1 / COUNT  # event n scores about n / 100, by the candidate half of that: from 50 on they decide otherwise


def of_protobuf(rig: Rig, value: bytes) -> Any:
    """Read by the schema that is printed, behind the schema's number and the path of the first message, if they are there."""
    schema = rig.run("scorer", "schema", "--scores", "--format", "protobuf", "--config", "scorer.yaml").stdout
    return proto_class(schema, "Score").FromString(value)


def roles(rig: Rig, topic: str) -> dict[str, tuple[Any, str]]:
    """By event, its score and the role in a record of this topic, read without the product's code."""
    values = [message.value() or b"" for message in auditor.read(rig.bootstrap_servers, topic)]
    if rig.configuration["output"]["format"] == "avro":
        read = AvroDeserializer(SchemaRegistryClient({"url": rig.configuration["schema_registry"]["url"]}))
        records = [read(value, SerializationContext(topic, MessageField.VALUE)) for value in values]
        return {record["id"]: (record["score"], record["role"]) for record in records}
    header = struct.Struct(">bIb").size if "schema_registry" in rig.configuration else 0
    messages = [of_protobuf(rig, value[header:]) for value in values[:1]]
    messages += [type(messages[0]).FromString(value[header:]) for value in values[1:]]
    return {score.id: (score.score.number if score.score.HasField("number") else None, score.role) for score in messages}


@pytest.mark.parametrize(("format_", "registered"), [("avro", True), ("protobuf", True), ("protobuf", False)])
def test_a_rollout_is_judged_labelled_and_traced(
    make_rig: MakeRig, schema_registry: SchemaRegistry, format_: str, registered: bool
) -> None:
    rig = stocked(make_rig, format_, schema_registry.url if registered else None)
    champion, shadow = rig.start("a").ready(), start(rig, "--share", "100%")
    moved(rig, *SHADOWED)
    until(lambda: serves(rig, "shadow"), "the candidate in the shadow")
    rig.emit(events(COUNT))
    rig.produce(b"{", key=b"k")
    until(lambda: rig.answered() == COUNT + 1 and reached(rig) == rig.ends(), "both answers to all events")
    assert [process.stop() for process in (champion, shadow)] == [0, 0]
    expected = {f"e{n}": n / COUNT for n in range(COUNT)}
    assert roles(rig, rig.scores_topic) == {id_: (pytest.approx(score), "champion") for id_, score in expected.items()}
    unseen = roles(rig, f"{rig.scores_topic}.shadow")
    (failed,) = unseen.keys() - expected.keys()
    assert unseen.pop(failed) == (None, "shadow")
    assert unseen == {id_: (pytest.approx(score / 2), "shadow") for id_, score in expected.items()}
    labelled(rig)
    of_judge(rig)
    of_labels(rig)
    of_lineage(rig)
    of_invalid_scores(rig)


def stocked(make_rig: MakeRig, format_: str, url: str | None) -> Rig:
    rig = make_rig(output={"format": format_}, **({"schema_registry": {"url": url}} if url else {}))
    rig.configure(labels={"topic": f"{rig.name}.labels", "id": "id", "value": "outcome", "classes": ["low", "high"]})
    for version, factor in (("1.0.0", FACTOR), ("2.0.0", FACTOR / 2)):
        rig.push(models.linear_package(rig.folder / version, factor), version)
    rig.promote("1.0.0")
    rig.make_topic(f"{rig.name}.labels", 1)
    rig.create(2)
    return rig


def late(n: int) -> bool:
    return n % 3 == 0


def labelled(rig: Rig) -> None:
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
    for n in range(0, COUNT, 2):
        producer.produce(f"{rig.name}.labels", json.dumps({"id": f"e{n}", "outcome": late(n)}).encode())
    assert producer.flush(STEP_SECONDS) == 0


def squares(factor: float) -> float:
    return float(np.mean([(factor * n - late(n)) ** 2 for n in range(0, COUNT, 2)]))


def of_judge(rig: Rig) -> None:
    """Few pairs decide nothing; the bad event counts for neither version."""
    verdict = json.loads(rig.run("scorer", "judge", "scorer.yaml", "--max-brier", "0.01", "--json", code=1).stdout)
    assert [verdict[side]["digest"] for side in ("champion", "candidate")] == [digest_of(rig, v) for v in ("1.0.0", "2.0.0")]
    rules = {rule["rule"]: (rule["pairs"], rule["estimate"]) for rule in verdict["rules"]}
    assert rules == {
        "errors": (COUNT + 1, 0.0),
        "flips": (COUNT, 0.5),
        "brier": (COUNT // 2, pytest.approx(squares(FACTOR / 2) - squares(FACTOR), abs=1e-4)),
    }
    assert set(verdict["dropped"].values()) == {0}


def of_labels(rig: Rig) -> None:
    report = json.loads(rig.run("scorer", "labels", "scorer.yaml", "--json").stdout)
    (version,) = report["versions"]
    assert (report["answered"], report["labelled"], version["version"]) == (COUNT, COUNT // 2, "1.0.0")
    assert version["brier"] == pytest.approx(squares(FACTOR), abs=1e-6)
    high = [n >= COUNT // 2 for n in range(0, COUNT, 2)]
    outcomes = [late(n) for n in range(0, COUNT, 2)]
    counts = [
        [sum((c, h) == (actual, predicted) for c, h in zip(outcomes, high, strict=True)) for predicted in (False, True)]
        for actual in (False, True)
    ]
    assert version["matrix"] == counts


def of_lineage(rig: Rig) -> None:
    lineage = json.loads(rig.run("scorer", "lineage", "scorer.yaml", "e7", "--recompute", "--json").stdout)
    answer, again = lineage["answer"], lineage["recomputed"]
    assert (answer["score"], answer["decision"], answer["version"], answer["role"]) == (
        pytest.approx(0.07),
        "low",
        "1.0.0",
        "champion",
    )
    assert (again["same"], again["score"]) == (True, answer["score"])
    (dead,) = rig.dead()
    letter = json.loads(rig.run("scorer", "lineage", "scorer.yaml", dead["source"], "--recompute", "--json").stdout)
    assert (letter["answer"]["reason"], letter["recomputed"]["same"]) == ("malformed", True)


def of_invalid_scores(rig: Rig) -> None:
    """A record without a value is named and skipped, and never read as a score that says nothing."""
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
    producer.produce(rig.scores_topic, None, b"k", 0)
    assert producer.flush(STEP_SECONDS) == 0
    for command, code in ((("judge",), 1), (("labels",), 0), (("tail", "--no-follow"), 0)):
        message = rig.run("scorer", command[0], "scorer.yaml", *command[1:], code=code).stderr
        assert f"{rig.scores_topic}[0]@" in message, message
        assert "not a score record" in message, message
