"""`scorer lineage` on a real broker: through a version change, past retention, and for answers that no scorer wrote."""

import json
from typing import Any

import yaml
from confluent_kafka import Producer

from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.support import models

REPO = "oci:./registry/model"
COUNT = 40  # events that each version scores


def test_lineage_is_complete_through_a_version_change_and_past_retention(make_rig: MakeRig) -> None:
    rig = scored(make_rig)
    check_scores_and_dead_letters(rig)
    check_unanswered_and_forged(rig)
    check_deleted_event(rig)


def scored(make_rig: MakeRig) -> Rig:
    """Events e0 to e39 scored by 1.0.0, e40 to e79 by 2.0.0, both signed; and one dead letter between them."""
    rig = make_rig(model={"policy": "./policy.yaml"})
    rig.run("model-registry", "keygen", "release")
    document = {"signatures": "required", "names": "required", "keys": [{"id": "release", "file": "release.pub"}]}
    (rig.folder / "policy.yaml").write_text(yaml.safe_dump(document))
    for version, factor in (("1.0.0", 2.0), ("2.0.0", 3.0)):
        rig.push(models.linear_package(rig.folder / version, factor), version)
        rig.run("model-registry", "sign", f"{REPO}:{version}", "--key", "release.key")
    rig.promote("1.0.0", "the first")
    rig.create(2)
    scorer = rig.start().ready()
    rig.emit(events(COUNT))
    rig.produce(b"{", key=b"k")
    until(lambda: rig.answered() == COUNT + 1, "answers of the first version")
    rig.promote("2.0.0", "better AUC")
    until(lambda: scorer.metric("scorer_model_revision") == 2, "the second version")
    rig.emit(events(COUNT, start=COUNT))
    until(lambda: rig.answered() == 2 * COUNT + 1, "answers of the second version")
    scorer.stop()
    return rig


def lineage(rig: Rig, *arguments: str, code: int = 0) -> Any:
    return json.loads(rig.run("scorer", "lineage", "scorer.yaml", *arguments, "--json", code=code).stdout)


def check_scores_and_dead_letters(rig: Rig) -> None:
    scores = {score["id"]: score for score in rig.scores()}

    document = lineage(rig, "e5", "--recompute")
    assert json.loads(document["event"]["value"])["id"] == "e5"
    assert {name: document["answer"][name] for name in scores["e5"]} == scores["e5"]
    assert document["model"] == {"version": "1.0.0", "digest": scores["e5"]["digest"], "signed_by": "release"}
    assert (document["cut_over"]["revision"], document["cut_over"]["from_version"], document["corrections"]) == (1, None, [])
    assert (document["move"]["reason"], document["move"]["to_version"]) == ("the first", "1.0.0")
    assert document["recomputed"] == {
        "same": True,
        "score": 10.0,
        "decision": "high",
        "rejected": None,
        "inputs": "event",
    }
    assert document["not_known"] == []

    source = scores["e77"]["source"]
    place = f"{source['topic']}/{source['partition']}/{source['offset']}"
    later = lineage(rig, place, "--recompute")
    assert later == lineage(rig, "e77", "--recompute")
    assert later["answer"]["score"] == later["recomputed"]["score"] == 231.0
    assert (later["move"]["revision"], later["move"]["reason"]) == (2, "better AUC")
    assert later["cut_over"]["from_version"] == "1.0.0"
    assert later["cut_over"]["cut_over_offset"] <= source["offset"]
    printed = rig.run("scorer", "lineage", "scorer.yaml", "e77").stdout
    assert all(part in printed for part in ("231.0", "2.0.0", "better AUC", "release", f"e{COUNT + 37}"))

    rig.run("scorer", "rescore", "scorer.yaml", "--digest", scores["e5"]["digest"])
    corrected = lineage(rig, "e5")
    assert corrected["answer"] == document["answer"]
    assert [(each["score"], each["version"], each["revision"]) for each in corrected["corrections"]] == [(15.0, "2.0.0", 2)]

    (dead,) = rig.dead()
    letter = lineage(rig, dead["source"], "--recompute")
    assert (letter["answer"]["kind"], letter["answer"]["reason"]) == ("dead letter", "malformed")
    assert letter["recomputed"]["same"]
    assert letter["recomputed"]["rejected"].startswith("malformed")


def check_deleted_event(rig: Rig) -> None:
    source = next(score["source"] for score in rig.scores() if score["id"] == "e77")
    place = f"{source['topic']}/{source['partition']}/{source['offset']}"
    rig.delete_records(rig.events_topic)
    deleted = lineage(rig, place)
    assert (deleted["event"], deleted["answer"]["score"], deleted["move"]["reason"]) == (None, 231.0, "better AUC")
    assert any(place.rpartition("/")[2] in line for line in deleted["not_known"])
    completed = rig.run("scorer", "lineage", "scorer.yaml", place, "--recompute", code=2)
    assert "the score cannot be recomputed" in completed.stderr


def check_unanswered_and_forged(rig: Rig) -> None:
    forged = next(score for score in rig.scores() if score["id"] == "e5")
    rig.emit([{"id": "later", "key": "k", "a": 1.0, "b": 0.0}])
    ends = rig.ends()
    last = next(n for n, end in ends.items() if end > 0 and not answered(rig, n, end - 1))
    place = f"{rig.events_topic}[{last}]@{ends[last] - 1}"
    waiting = lineage(rig, place, code=1)
    assert (json.loads(waiting["event"]["value"])["id"], waiting["answer"]) == ("later", None)
    forged |= {"id": "later", "score": 7.0, "source": {"topic": rig.events_topic, "partition": last, "offset": ends[last] - 1}}
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
    producer.produce(rig.scores_topic, json.dumps(forged).encode(), partition=last)
    assert producer.flush(10) == 0
    document = lineage(rig, place, "--recompute", code=1)
    assert (document["answer"]["score"], document["recomputed"]["score"], document["recomputed"]["same"]) == (7.0, 2.0, False)
    assert document["cut_over"] is None
    assert "served the partition then" in "".join(document["not_known"])
    for unknown in ("nobody", f"{rig.events_topic}/9/0", "other-topic/0/0"):
        assert unknown.split("/")[0] in rig.run("scorer", "lineage", "scorer.yaml", unknown, code=2).stderr


def answered(rig: Rig, partition: int, offset: int) -> bool:
    """Return True if a score or a dead letter names this input event as its source."""
    scored = [(score["source"]["partition"], score["source"]["offset"]) for score in rig.scores()]
    dead = [tuple(map(int, letter["source"].split("/")[2:])) for letter in rig.dead()]
    return (partition, offset) in {*scored, *dead}
