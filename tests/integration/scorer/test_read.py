"""`scorer read` and `scorer.read.scores`: scores on a real broker as tables."""

import csv
import io
import json
from typing import Any

import pandas
import pyarrow
import pytest
from confluent_kafka import Producer
from pyarrow import parquet

import scorer.read
from tests.integration.scorer.rig import STEP_SECONDS, MakeRig, Rig, events, until
from tests.support import auditor, models

OLD = "2025-03-01T12:00:00"
OLD_MS = 1_740_830_400_000
COUNT = 60


def produce(rig: Rig, topic: str, values: list[tuple[bytes | None, bytes | None]]) -> None:
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
    for key, value in values:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(STEP_SECONDS) == 0


def abort(rig: Rig, value: bytes) -> None:
    """Write a record into the topic of scores in a transaction that is aborted."""
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers, "transactional.id": f"{rig.name}.aborted"})
    producer.init_transactions(STEP_SECONDS)
    producer.begin_transaction()
    producer.produce(rig.scores_topic, value)
    producer.flush(STEP_SECONDS)
    producer.abort_transaction(STEP_SECONDS)


def lines(rig: Rig, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rig.run("scorer", "read", "scorer.yaml", *arguments).stdout.splitlines()]


def scored(rig: Rig, count: int) -> None:
    rig.start().ready()
    until(lambda: rig.answered() == count, "the scores")


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    """Scores 2 n of events n: the first of March 2025, the others of now; the last has expired."""
    rig = make_rig(output={"carry": ["a", {"path": "key", "as": "customer", "type": "string"}]})
    rig.configure(labels={"topic": f"{rig.name}.labels", "value": "outcome"})
    rig.make_topic(f"{rig.name}.labels", 1)
    rig.stocked(2)
    old = [{**event, "at": OLD} for event in events(COUNT)]
    rig.emit(old, "--time", "at")
    rig.emit(events(COUNT, start=COUNT))
    rig.produce(b'{"id": "late", "key": "k", "a": 1, "b": 1}', key=b"k", headers=[("deadline", b"1")])
    scored(rig, 2 * COUNT + 1)
    return rig


def test_scores_of_a_time_range_in_every_format(rig: Rig) -> None:
    abort(rig, next(iter(auditor.read(rig.bootstrap_servers, rig.scores_topic))).value() or b"")
    records = {record["id"]: record for record in rig.scores()}
    rows = {row["id"]: row for row in lines(rig)}
    assert len(lines(rig)) == len(rows) == 2 * COUNT + 1
    for id_, row in rows.items():
        record = records[id_]
        source, carried = record.pop("source"), record.pop("carried")
        times = {name: record.pop(f"{name}_ms") for name in ("event", "scored")}
        assert {name: row[name] for name in record} == record
        assert {name: row[f"source_{name}"] for name in source} == source
        assert row["carried_customer"] == carried["customer"]
        assert row["carried_a"] == (None if carried["a"] is None else str(carried["a"]))
        assert all(pandas.Timestamp(row[f"{name}_time"]).timestamp() == ms / 1_000 for name, ms in times.items())
    old = {f"e{n}" for n in range(COUNT)}
    assert {row["id"] for row in lines(rig, "--since", "1h")} == rows.keys() - old
    assert {row["id"] for row in lines(rig, "--until", "2025-06-01")} == old
    assert lines(rig, "--since", "2025-03-02", "--until", "1d") == []

    printed = rig.run("scorer", "read", "scorer.yaml", "--format", "csv").stdout
    cells = {row["id"]: row for row in csv.DictReader(io.StringIO(printed))}
    assert cells["e7"]["score"] == "14.0"
    assert cells["e7"]["event_time"] == "2025-03-01T12:00:00.000+00:00"
    assert (cells["late"]["score"], cells["late"]["status"]) == ("", "expired")

    message = rig.run("scorer", "read", "scorer.yaml", "--output", "scores.parquet").stderr
    assert f"{2 * COUNT + 1} scores written to scores.parquet" in message
    table = parquet.read_table(rig.folder / "scores.parquet")
    types = {field.name: field.type for field in table.schema}
    assert types["score"] == pyarrow.float64()
    assert types["event_time"] == types["scored_time"] == pyarrow.timestamp("ms", tz="UTC")
    assert pyarrow.types.is_dictionary(types["version"])
    assert types["source_offset"] == types["revision"] == pyarrow.int64()
    frame = table.to_pandas().set_index("id")
    assert frame["score"].drop("late").to_dict() == {f"e{n}": 2.0 * n for n in range(2 * COUNT)}
    assert frame.loc["e7", "event_time"] == pandas.Timestamp(OLD, tz="UTC")
    empty = rig.run("scorer", "read", "scorer.yaml", "--until", "1", "--output", "none.parquet").stderr
    assert "0 scores" in empty
    assert parquet.read_table(rig.folder / "none.parquet").schema.names == table.schema.names


def test_labels_beside_their_scores(rig: Rig) -> None:
    topic = f"{rig.name}.labels"
    outcomes: list[tuple[bytes | None, bytes | None]] = [
        (b"e1", b'{"outcome": 1}'),
        (b"e2", b'{"outcome": true}'),
        (b"e2", b'{"outcome": 0}'),
        (b"e3", b'{"outcome": 1}'),
        (b"e3", None),
        (b"e4", b"{"),
        (b"of another event", b'{"outcome": 1}'),
    ]
    produce(rig, topic, outcomes)
    frame = scorer.read.scores(rig.path, since=OLD, until="1h", labels=True).to_pandas().set_index("id")
    assert frame["label"].dropna().to_dict() == {"e1": 1.0, "e2": 0.0}
    assert frame["label"].dtype == "float64"
    assert frame.loc["e1", "label_time"].tz is not None
    assert "label" not in lines(rig)[0]
    produce(rig, topic, [(b"e5", b'{"outcome": "high"}')])
    classes = ("--set", "labels.classes=[low, high]")
    rows = {row["id"]: row["label"] for row in lines(rig, "--labels", *classes)}
    assert {id_: label for id_, label in rows.items() if label is not None} == {"e1": "high", "e2": "low", "e5": "high"}
    completed = rig.run("scorer", "read", "scorer.yaml", "--labels", "--output", "labels.parquet")
    assert "1 labels are not used: not-json" in completed.stderr
    assert set(parquet.read_table(rig.folder / "labels.parquet").column("label").to_pylist()) == {None, "1", "0", "high"}
    assert (
        "labels: {topic: NAME"
        in rig.run("scorer", "read", "scorer.yaml", "--labels", "--set", "labels.topic=null", code=2).stderr
    )


@pytest.mark.parametrize("format_", ["avro", "protobuf"])
def test_scores_in_the_other_formats_of_records(make_rig: MakeRig, format_: str) -> None:
    rig = make_rig(output={"format": format_, "carry": [{"path": "a", "type": "double"}]}).stocked(2)
    rig.emit(events(10))
    scored(rig, 10)
    rows = {row["id"]: (row["score"], row["carried_a"], row["source_topic"]) for row in lines(rig)}
    assert rows == {f"e{n}": (2.0 * n, float(n), rig.events_topic) for n in range(10)}
    frame = scorer.read.scores(str(rig.path)).to_pandas()
    assert sorted(frame["score"]) == [2.0 * n for n in range(10)]


VECTOR = {
    "inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a", "b"]}],
    "output": {"tensor": "probabilities"},
    "labels": ["no", "yes"],
}


def test_scores_of_different_forms_are_read_as_text(make_rig: MakeRig) -> None:
    rig = make_rig().stocked(1)
    rig.emit(events(5))
    scored(rig, 5)
    rig.push(models.package(rig.folder / "vector", models.classifier, VECTOR), "2.0.0")
    rig.promote("2.0.0")
    until(lambda: rig.fleet()[0]["versions"]["champion"]["version"] == "2.0.0", "the swap")
    rig.emit(events(5, start=5))
    until(lambda: rig.answered() == 10, "the vectors")
    produce(rig, rig.scores_topic, [(None, b"{"), (None, None)])
    message = rig.run("scorer", "read", "scorer.yaml", "--output", "s.parquet", code=2).stderr
    assert "no common type" in message
    assert "--score-text" in message
    assert not (rig.folder / "s.parquet").exists()
    rig.run("scorer", "read", "scorer.yaml", "--output", "s.parquet", "--score-text")
    texts = parquet.read_table(rig.folder / "s.parquet").column("score").to_pylist()
    rows = lines(rig)
    assert [json.loads(text) for text in texts] == [row["score"] for row in rows]
    vectors = [row for row in rows if row["version"] == "2.0.0"]
    assert len(vectors) == 5
    (first, *_) = vectors
    since = first["source_offset"]
    assert since == 5
    table = scorer.read.scores(rig.path, since="1h", score_text=True)
    assert sum(len(batch) for batch in table) == 10


def test_read_errors_are_named(make_rig: MakeRig) -> None:
    rig = make_rig()
    assert "no topic" in rig.run("scorer", "read", "scorer.yaml", code=2).stderr
    assert "1y" in rig.run("scorer", "read", "scorer.yaml", "--since", "1y", code=2).stderr
    assert "is not before" in rig.run("scorer", "read", "scorer.yaml", "--since", "1h", "--until", "2h", code=2).stderr
    rig.make_topic(rig.scores_topic, 1)
    produce(rig, rig.scores_topic, [(None, b"no score")])
    assert "none is a readable score" in rig.run("scorer", "read", "scorer.yaml", code=2).stderr
    message = rig.run("scorer", "read", "scorer.yaml", "--output", "nowhere/s.csv", code=2).stderr
    assert "nowhere/s.csv cannot be written" in message
