"""Snapshots of the feature log of a real scorer: their rows equal what was served, bit for bit."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from confluent_kafka import Producer
from onnx import TensorProto, helper

from model_registry.package.signature_schema import parse_signature
from scorer.features.log import create_reader
from scorer.features.read import FeatureLogDecoder
from tests.integration.scorer.rig import MakeRig, Rig, until
from tests.integration.scorer.schema_registry import SchemaRegistry
from tests.support import models
from training.settings import load
from training.snapshot.files import Copied
from training.snapshot.freeze import copy, freeze
from training.snapshot.join_labels import Joined, join

COUNT = 200
FIELDS = [
    "a",
    {"name": "b", "required": False, "default": 0.1},
    {"name": "customers.c", "required": False, "default": 0.3, "from": "table:customers"},
]
SIGNATURE = {
    "inputs": [{"tensor": "x", "dtype": "float32", "fields": FIELDS}],
    "output": {"tensor": "y", "shape": [3]},
}


def identity(path: Path) -> None:
    """Write a model whose score is the array of its inputs, as the model was fed."""
    shape = (TensorProto.FLOAT, "N", 3)
    models.save([helper.make_node("Identity", ["x"], ["y"])], [models.tensor("x", *shape)], [models.tensor("y", *shape)], path)


def serve(rig: Rig) -> None:
    """Score events with random inputs by the identity, and write a label for each event but the last.

    A third of the events have no b, and a quarter of the keys no row. All rows are overwritten at the end.
    """
    rig.push(models.package(rig.folder / "1.0.0", identity, SIGNATURE), "1.0.0")
    rig.promote("1.0.0")
    rig.create(3)
    numbers = np.random.default_rng(3).normal(size=(COUNT, 2)) * 1e-3
    write_rows(rig, {f"k{number}": {"c": float(numbers[number, 0]) / 3} for number in range(15)})
    scorer = rig.start().ready()
    rig.emit(
        {"id": f"e{at}", "key": f"k{at % 20}", "a": a, **({"b": b} if at % 3 else {})} for at, (a, b) in enumerate(numbers)
    )
    until(lambda: rig.answered() == COUNT, "the scores")
    assert scorer.stop() == 0
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
    for at in range(COUNT - 1):
        producer.produce(f"{rig.name}.labels", json.dumps({"label": at % 2}).encode(), b"e%d" % at)
    assert producer.flush(30) == 0
    write_rows(rig, {f"k{number}": {"c": 7.0} for number in range(15)})


def write_rows(rig: Rig, rows: Mapping[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers, "partitioner": "murmur2_random"})
    for key, row in rows.items():
        producer.produce(f"{rig.name}.customers", json.dumps(row).encode(), key.encode())
    assert producer.flush(30) == 0


def snapshot(rig: Rig, **training: Any) -> tuple[Copied, Joined]:
    document = {"scorer": "scorer.yaml", "snapshot": {"from": "features"}, "labels": {"after": "0s"}, **training}
    (rig.folder / "training.yaml").write_text(yaml.safe_dump(document))
    configured, settings = load(rig.folder / "training.yaml")
    now_ms = max(record["scored_ms"] for record in rig.scores()) + 1_000
    frozen = freeze(settings, configured, now_ms)
    folder = rig.folder / "records"
    copied = copy(settings, frozen, folder)
    signature = parse_signature(json.dumps(SIGNATURE))
    decoder = FeatureLogDecoder(signature, create_reader(settings))
    return copied, join(folder, frozen, settings, configured, signature, decoder)


@pytest.mark.parametrize("format_", ["json", "avro"])
def test_rows_of_a_snapshot_equal_the_served_inputs_bit_for_bit(
    make_rig: MakeRig, schema_registry: SchemaRegistry, format_: str
) -> None:
    rig = make_rig(schema_registry={"url": schema_registry.url})
    rig.configure(tables={"customers": {"topic": f"{rig.name}.customers"}}, labels={"topic": f"{rig.name}.labels"})
    rig.configure(features={"topic": f"{rig.name}.features", "format": format_})
    serve(rig)
    rig.delete_records(rig.events_topic)
    copied, joined = snapshot(rig)
    assert (copied.records("events"), copied.records("labels")) == (COUNT, COUNT - 1)
    assert list(copied.frozen.events) == [f"{rig.name}.features"]
    scores = {record["id"]: record["score"] for record in rig.scores()}
    read = create_reader(load(rig.folder / "training.yaml")[1])
    ids = [read(value).id for value in joined.rows.values]
    assert sorted(ids) == sorted(f"e{at}" for at in range(COUNT - 1))
    served = np.array([scores[id_] for id_ in ids], np.float32)
    assert joined.rows.tensors["x"].tobytes() == served.tobytes()
    assert len(set(served[:, 2].tolist())) == 16
    assert joined.rows.outcomes.tolist() == [int(id_[1:]) % 2 for id_ in ids]
    assert (joined.mature, len(joined.rows)) == (COUNT, COUNT - 1)
