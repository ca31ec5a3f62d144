"""Events to scores on the real broker, through the installed commands."""

import json
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.integration.scorer.rig import MakeRig, events, until
from tests.support import models


def test_every_event_is_scored_once_with_its_provenance(make_rig: MakeRig) -> None:
    rig = make_rig(region="eu-west", output={"headers": ["decision", "version"]}).stocked()
    rig.start().ready()
    count = rig.emit(events(3_000))
    until(lambda: rig.answered() >= count, "all scores")
    records = {record["id"]: record for record in rig.scores()}
    digest = json.loads(rig.run("model-registry", "inspect", "oci:./registry/model:1.0.0", "--json").stdout)["digest"]
    assert len(records) == count
    for number in (0, 1, 2_999):
        record = records[f"e{number}"]
        assert record["score"] == 2.0 * number
        assert record["decision"] == ("high" if 2.0 * number >= 0.5 else "low")
        assert (record["model"], record["version"], record["digest"]) == ("model", "1.0.0", digest)
        assert (record["role"], record["status"], record["region"]) == ("champion", "scored", "eu-west")
        assert record["event_ms"] <= record["scored_ms"]
        assert record["source"]["topic"] == rig.events_topic
    assert rig.audit()["inputs"] == count
    assert rig.faults() == {}
    reader = Consumer({"bootstrap.servers": rig.bootstrap_servers, "group.id": rig.name + ".look"})
    for partition in range(4):
        reader.assign([TopicPartition(rig.scores_topic, partition, 0)])
        for message in reader.consume(5, 10):
            record = json.loads(message.value() or b"")
            assert record["source"]["partition"] == partition
            assert message.key() == f"k{int(record['id'][1:]) % 20}".encode()
            assert message.timestamp()[1] == record["event_ms"]
            assert message.headers() == [("version", b"1.0.0"), ("decision", record["decision"].encode())]
    reader.close()


def test_bad_events_are_dead_lettered_with_their_bytes_and_their_neighbours_scored(make_rig: MakeRig) -> None:
    rig = make_rig(input={"max_event_bytes": 2_000}).stocked()
    rig.alter(rig.scores_topic, "max.message.bytes", "1600")
    valid = list(events(200))
    invalid = {
        "malformed": b'{"id": "m", "key": "k1", "a": 1,',
        "not-utf8": b'{"id": "u", "key": "k1", "a": 1, "b": 2, "name": "\xff"}',
        "missing-field": b'{"id": "f", "key": "k1", "a": 1}',
        "wrong-type": b'{"id": "t", "key": "k1", "a": "1", "b": 2}',
        "not-finite": b'{"id": "n", "key": "k1", "a": NaN, "b": 2}',
        "oversize": json.dumps({"id": "o", "key": "k1", "a": 1, "b": 2, "padding": "x" * 3_000}).encode(),
        "score-oversize": json.dumps({"id": "x" * 1_500, "key": "k1", "a": 1, "b": 2}).encode(),
    }
    rig.emit(valid[:100])
    rig.emit(invalid.values(), key=None)
    rig.emit([b'{"id": "d", "a": 1, "b": 2}'], "--header", "deadline=soon", key=None)
    rig.produce(None, key=b"k1", headers=[("trace", b"t-1")])
    rig.emit(valid[100:])
    scorer = rig.start().ready()
    until(lambda: rig.answered() >= 209, "all answers")
    dead = rig.dead()
    assert sorted(letter["reason"] for letter in dead) == sorted([*invalid, "tombstone", "bad-deadline"])
    letters = {letter["reason"]: letter for letter in dead}
    for reason, value in invalid.items():
        assert letters[reason]["value"] == value.decode("utf-8", "backslashreplace")
        assert letters[reason]["error"]
        assert letters[reason]["source"].startswith(f"local/{rig.events_topic}/")
        assert letters[reason]["model"].startswith("model:1.0.0@sha256:")
    assert letters["tombstone"]["value"] is None
    assert letters["tombstone"]["key"] == "k1"
    assert sorted(record["id"] for record in rig.scores()) == sorted(event["id"] for event in valid)
    assert rig.audit()["missing"] == 0
    assert scorer.metric("scorer_dead_letters_total") == len(letters)
    until(lambda: rig.fleet()[0]["counters"]["dead_letters"] == len(letters), "their number in the status")
    assert "dead" in rig.run("scorer", "status", "scorer.yaml").stdout.split()


def test_skipped_tombstones_padded_batches_and_events_past_their_deadline(make_rig: MakeRig) -> None:
    rig = make_rig(input={"tombstones": "skip"}, kafka={"extra": {"client.rack": "r1"}}, model={"buckets": [4, 32]}).stocked()
    rig.start().ready()
    rig.produce(None, key=b"k1")
    past, future = int(time.time() * 1_000) - 60_000, int(time.time() * 1_000) + 600_000
    rig.emit(events(10), "--header", f"deadline={future}")
    rig.emit(events(1), "--header", f"deadline={past}", "--header", "ce_id=named-by-its-header")
    until(lambda: rig.answered() == 11, "the answers")
    assert rig.dead() == []
    answers = {record["id"]: (record["status"], record["score"], record["decision"]) for record in rig.scores()}
    assert answers.pop("named-by-its-header") == ("expired", None, None)
    assert {id_: (status, score) for id_, (status, score, _) in answers.items()} == {
        e["id"]: ("scored", 2.0 * (e["a"] + e["b"])) for e in events(10)
    }
    assert json.loads(rig.run("scorer", "offsets", "scorer.yaml", "--json").stdout)["offsets"]


def test_a_version_without_a_signature_scores_one_array_field(make_rig: MakeRig, tmp_path: Path) -> None:
    rig = make_rig()
    bare = models.package(tmp_path / "bare", lambda path: models.linear(path, 1.0, width=3), signature=None)
    rig.push_unchecked(bare, "1.0.0")
    rig.promote("1.0.0")
    rig.create()
    scorer = rig.start().ready()
    rig.emit([{"id": "one", "key": "k", "x": [1, 2, 3]}])
    until(lambda: rig.answered() == 1, "the score")
    assert rig.scores()[0]["score"] == 6.0
    assert "derived" in scorer.said


def test_retention_of_the_input_is_exported(make_rig: MakeRig) -> None:
    rig = make_rig().stocked(1)
    rig.alter(rig.events_topic, "retention.ms", "3600000")
    assert rig.start().ready().metric("scorer_input_retention_seconds") == 3_600
