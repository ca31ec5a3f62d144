"""Versions with joined fields on the real broker: the commands, a version without its table, and the sandbox."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.integration.scorer.lethal import SEGFAULT
from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.support import models

EVENTS = 200
KEYS = 20


def joined(rig: Rig, rows: Mapping[str, Any], **table: Any) -> Rig:
    """Version 1.0.0, score = 2 * (a + b), in production, all topics, and the rows of b."""
    topic = f"{rig.name}.customers"
    rig.configure(tables={"customers": {"topic": topic, **table}})
    rig.push(models.joined_package(rig.folder / "joined", 2.0), "1.0.0")
    rig.promote("1.0.0")
    rig.create()
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers, "partitioner": "murmur2_random"})
    for key, row in rows.items():
        producer.produce(topic, json.dumps(row).encode(), key.encode())
    assert producer.flush(30) == 0
    return rig


@pytest.mark.parametrize(
    ("table", "key"), [({}, "key"), ({"scope": "all", "key": "customer.id"}, "customer")], ids=["record", "path"]
)
def test_events_are_joined_by_their_key(make_rig: MakeRig, table: dict[str, Any], key: str) -> None:
    rig = joined(make_rig(), {f"c{number}": {"b": number} for number in range(KEYS)}, **table)
    lines = [{"id": f"e{n}", "a": n, "key": f"c{n % KEYS}", "customer": {"id": f"c{n % (KEYS - 1)}"}} for n in range(EVENTS)]
    rig.emit([*lines, {"id": "none", "a": 1, "key": "x", "customer": {"id": 1.5}}])
    scorer = rig.start().ready()
    until(lambda: rig.answered() == EVENTS + 1, "all answers")
    modulus = KEYS if key == "key" else KEYS - 1
    assert {record["id"]: record["score"] for record in rig.scores()} == {
        f"e{n}": 2.0 * (n + n % modulus) for n in range(EVENTS)
    }
    (letter,) = rig.dead()
    no_row = "table customers has no row with the key 'x', or the row cannot be decoded"
    fault = no_row if key == "key" else "event has no key for the table customers"
    assert (letter["reason"], letter["error"]) == (
        "missing-field",
        f"required field 'customers.b' (table:customers): the {fault}",
    )
    assert scorer.stop() == 0
    rig.assert_audited(events=EVENTS + 1)


def test_events_that_are_scored_in_the_sandbox_are_joined_with_the_same_rows(make_rig: MakeRig) -> None:
    kafka = {"session_timeout_ms": 1_500, "transaction_timeout_ms": 3_000}
    rig = joined(make_rig(kafka=kafka), {f"c{number}": {"b": number} for number in range(KEYS)})
    rig.program = [sys.executable, str(Path(__file__).with_name("lethal.py"))]
    lines = [{"id": f"e{n}", "a": SEGFAULT if n == 77 else n, "key": f"c{n % KEYS}"} for n in range(EVENTS)]
    rig.emit(lines)
    scorer = rig.start()
    until(lambda: rig.answered() == EVENTS, "all answers")
    assert scorer.deaths >= 1
    assert {record["id"]: record["score"] for record in rig.scores()} == {
        f"e{n}": 2.0 * (n + n % KEYS) for n in range(EVENTS) if n != 77
    }
    assert [letter["reason"] for letter in rig.dead()] == ["crashes-scorer"]
    rig.assert_clean(events=EVENTS)


def test_the_commands_know_joined_fields(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.configure(tables={"customers": {"topic": f"{rig.name}.customers", "key": "customer"}})
    rig.push(models.joined_package(rig.folder / "joined", 2.0), "1.0.0")
    rig.promote("1.0.0")
    rig.create()
    (joined,) = [
        line
        for line in rig.run("model-registry", "inspect", "oci:./registry/model:1.0.0").stdout.splitlines()
        if "customers.b" in line
    ]
    assert joined.split()[:3] == ["customers.b", "float32", "table:customers"]
    schema = json.loads(rig.run("scorer", "schema", "./joined").stdout)
    assert schema["properties"].keys() == {"a"}
    assert "description" not in schema
    assert "One process scores" in rig.run("scorer", "bench", "./joined", "--set", "batching.max_events=8").stdout
    assert rig.emit([{"id": "e", "a": 1, "customer": "c"}], key="k") == 1
    assert "the newest 1 events" in rig.run("scorer", "check", "scorer.yaml").stderr


def test_a_version_whose_table_is_not_configured_is_refused_and_the_running_version_continues(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    rig.push(models.joined_package(rig.folder / "joined", 5.0), "2.0.0")
    scorer = rig.start().ready()
    rig.promote("2.0.0")
    reason = "joined from the table customers, which the configuration lacks; add tables.customers"
    until(lambda: reason in scorer.said, "the refusal")
    rig.emit(events(10))
    until(lambda: rig.answered() == 10, "all answers")
    assert {record["version"] for record in rig.scores()} == {"1.0.0"}
    assert scorer.stop() == 0
