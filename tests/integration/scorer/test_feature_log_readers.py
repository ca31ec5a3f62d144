"""Commands that score events again read the feature log of a real scorer: lineage, rescore and compare."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.integration.scorer.schema_registry import SchemaRegistry
from tests.support import auditor, models

COUNT = 60
JOINED = {
    **models.LINEAR,
    "inputs": [
        {
            "tensor": "x",
            "dtype": "float32",
            "fields": ["a", {"name": "customers.age", "required": False, "default": 0, "from": "table:customers"}],
        }
    ],
}


def served(rig: Rig, count: int = COUNT, **features: Any) -> str:
    """Score events by 1.0.0 (2 n) with a feature log, promote 2.0.0 (3 n), and return the digest of 1.0.0."""
    rig.configure(features={"topic": f"{rig.name}.features", **features})
    rig.stocked(3, versions=2)
    scorer = rig.start().ready()
    rig.emit(events(count))
    until(lambda: rig.answered() == count, "the scores")
    assert scorer.stop() == 0
    rig.promote("2.0.0")
    return str(rig.scores()[0]["digest"])


def printed(rig: Rig, verb: str, *arguments: str, code: int = 0) -> Any:
    completed = rig.run("scorer", verb, "scorer.yaml", *arguments, "--json", code=code)
    assert completed.stdout, completed.stderr
    return json.loads(completed.stdout)


def corrections(rig: Rig) -> dict[str, Any]:
    messages = auditor.read(rig.bootstrap_servers, f"{rig.scores_topic}.corrections")
    records = [json.loads(message.value() or b"") for message in messages]
    assert len({record["id"] for record in records}) == len(records)
    return {record["id"]: record for record in records}


def test_deleted_events_are_recomputed_and_rescored_from_the_feature_log(make_rig: MakeRig) -> None:
    rig = make_rig(output={"carry": ["key"]})
    digest = served(rig)
    assert printed(rig, "lineage", "e5", "--recompute")["recomputed"] == {
        "same": True,
        "score": 10.0,
        "decision": "high",
        "rejected": None,
        "inputs": "feature log",
    }
    rig.delete_records(rig.events_topic)
    document = printed(rig, "lineage", "e7", "--recompute")
    assert document["event"] is None
    assert (document["recomputed"]["score"], document["recomputed"]["same"]) == (14.0, True)
    assert printed(rig, "rescore", "--digest", digest, "--dry-run")["run"]["corrected"] == COUNT
    total = printed(rig, "rescore", "--digest", digest)["total"]
    assert (total["corrected"], total["not_retained"], total["not_logged"]) == (COUNT, 0, 0)
    assert {id_: (record["score"], record["carried"]) for id_, record in corrections(rig).items()} == {
        f"e{n}": (3.0 * n, {"key": f"k{n % 20}"}) for n in range(COUNT)
    }
    rig.delete_records(f"{rig.name}.features")
    failed = rig.run("scorer", "lineage", "scorer.yaml", "e9", "--recompute", code=2).stderr
    assert f"the logged inputs: {rig.name}.features has no record of this score" in failed
    totals = printed(rig, "rescore", "--digest", digest, "--job", "again", code=1)["total"]
    assert (totals["corrected"], totals["not_retained"]) == (0, COUNT)


def test_a_feature_log_in_avro_is_read_with_its_registered_schema(make_rig: MakeRig, schema_registry: SchemaRegistry) -> None:
    rig = make_rig(schema_registry={"url": schema_registry.url})
    digest = served(rig, format="avro")
    rig.delete_records(rig.events_topic)
    assert printed(rig, "lineage", "e5", "--recompute")["recomputed"]["same"]
    assert printed(rig, "rescore", "--digest", digest)["total"]["corrected"] == COUNT
    assert {id_: record["score"] for id_, record in corrections(rig).items()} == {f"e{n}": 3.0 * n for n in range(COUNT)}


def write_rows(rig: Rig, rows: Mapping[str, Any]) -> None:
    """Write rows of the table customers; None deletes a row."""
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers, "partitioner": "murmur2_random"})
    for key, row in rows.items():
        value = None if row is None else json.dumps(row).encode()
        producer.produce(f"{rig.name}.customers", value, key.encode())
    assert producer.flush(30) == 0


def test_the_joined_values_of_the_past_are_scored_again_after_their_rows_have_changed(make_rig: MakeRig) -> None:
    rig = make_rig()
    features = {"topic": f"{rig.name}.features"}
    rig.configure(tables={"customers": {"topic": f"{rig.name}.customers"}}, features=features)
    for version, factor in (("1.0.0", 2.0), ("2.0.0", 3.0)):
        rig.push(models.joined_package(rig.folder / version, factor), version)
    rig.promote("1.0.0")
    rig.create(3)
    write_rows(rig, {f"k{number}": {"b": float(number)} for number in range(20)})
    scorer = rig.start().ready()
    rig.emit(events(COUNT))
    until(lambda: rig.answered() == COUNT, "the scores")
    assert scorer.stop() == 0
    write_rows(rig, {f"k{number}": None if number % 2 else {"b": 1_000.0} for number in range(20)})
    sums = {f"e{n}": n + n % 20 for n in range(COUNT)}
    scores = {record["id"]: record for record in rig.scores()}
    assert {id_: record["score"] for id_, record in scores.items()} == {id_: 2.0 * total for id_, total in sums.items()}

    for id_ in ("e4", "e25"):
        recomputed = printed(rig, "lineage", id_, "--recompute")["recomputed"]
        assert (recomputed["same"], recomputed["score"]) == (True, 2.0 * sums[id_])
        assert recomputed["inputs"] == "feature log"
    compared = printed(rig, "compare", "2.0.0", "--max-psi", "20", code=0)
    assert (compared["events"], compared["scored_by_both"]) == (COUNT, COUNT)
    assert compared["largest_differences"][0]["difference"] == max(sums.values())
    rig.promote("2.0.0")
    total = printed(rig, "rescore", "--digest", scores["e0"]["digest"])["total"]
    assert (total["corrected"], total["not_logged"]) == (COUNT, 0)
    assert {id_: record["score"] for id_, record in corrections(rig).items()} == {
        id_: 3.0 * total for id_, total in sums.items()
    }

    del rig.configuration["features"]
    rig.configure()
    failed = rig.run("scorer", "lineage", "scorer.yaml", "e4", "--recompute", code=2).stderr
    assert "the values of the joined fields 'customers.b' at the time of a score are not recoverable" in failed


def joined_package(folder: Path) -> Path:
    return models.package(folder, lambda path: models.linear(path, 4.0), JOINED)


def test_without_a_feature_log_each_command_names_the_joined_fields_and_the_remedy(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.configure(tables={"customers": {"topic": f"{rig.name}.customers"}})
    rig.stocked(3)
    rig.push(joined_package(rig.folder / "joined"), "3.0.0")
    for arguments in (
        ("compare", "scorer.yaml", "3.0.0"),
        ("rescore", "scorer.yaml", "--status", "scored", "--with", "3.0.0"),
        ("rescore", "scorer.yaml", "--status", "scored", "--with", "3.0.0", "--dry-run"),
    ):
        failed = rig.run("scorer", *arguments, code=2).stderr
        assert "the values of the joined fields 'customers.age' at the time of a score are not recoverable" in failed
        assert "set features.topic" in failed
    rig.configure(features={"topic": f"{rig.name}.features", "fields": ["a"]})
    failed = rig.run("scorer", "compare", "scorer.yaml", "3.0.0", code=2).stderr
    assert "features.fields does not hold 'customers.age'" in failed


def test_scores_outside_the_log_are_counted_for_a_version_with_joined_fields(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.configure(tables={"customers": {"topic": f"{rig.name}.customers"}})
    digest = served(rig, sample=0.5)
    logged = len(list(auditor.read(rig.bootstrap_servers, f"{rig.name}.features")))
    assert 0 < logged < COUNT
    rig.push(joined_package(rig.folder / "joined"), "3.0.0")
    previewed = printed(rig, "rescore", "--digest", digest, "--with", "3.0.0", "--dry-run")["run"]
    assert (previewed["corrected"], previewed["not_logged"]) == (logged, COUNT - logged)
    document = printed(rig, "rescore", "--digest", digest, "--with", "3.0.0", code=1)
    total = document["total"]
    assert (total["corrected"], total["not_logged"], total["refused"]) == (0, COUNT - logged, {"missing-field": logged})
    assert any("the feature log has no record of" in line for line in document["not_corrected"])
    assert any("has no input 'customers.age'" in line for line in document["not_corrected"])
    compared = printed(rig, "compare", "3.0.0", code=1)
    assert compared["feature_log"]["topic"] == f"{rig.name}.features"
    assert compared["feature_log"]["records"] == compared["events"] == logged
    assert logged < compared["feature_log"]["input_offsets"]
    assert compared["dead_only_by_candidate"] == {"missing-field": logged}
