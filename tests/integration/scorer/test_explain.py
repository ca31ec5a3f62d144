"""`scorer explain`: why events have their answers, on a real broker, through a swap and past retention."""

import json
from typing import Any

import yaml
from confluent_kafka import Producer

from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.support import models

REPO = "oci:./registry/model"
COUNT = 40  # events that each version scores


def test_every_answer_is_explained_through_a_swap_and_past_retention(make_rig: MakeRig) -> None:
    rig = scored(make_rig)
    of_scores_and_letters(rig)
    of_what_no_scorer_said(rig)
    of_what_is_kept_no_longer(rig)


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


def explained(rig: Rig, *arguments: str, code: int = 0) -> Any:
    return json.loads(rig.run("scorer", "explain", "scorer.yaml", *arguments, "--json", code=code).stdout)


def of_scores_and_letters(rig: Rig) -> None:
    scores = {score["id"]: score for score in rig.scores()}

    found = explained(rig, "e5", "--recompute")
    assert json.loads(found["event"]["value"])["id"] == "e5"
    assert {name: found["answer"][name] for name in scores["e5"]} == scores["e5"]
    assert found["model"] == {"version": "1.0.0", "digest": scores["e5"]["digest"], "signed_by": "release"}
    assert (found["cut_over"]["revision"], found["cut_over"]["from_version"], found["corrections"]) == (1, None, [])
    assert (found["move"]["reason"], found["move"]["to_version"]) == ("the first", "1.0.0")
    assert found["recomputed"] == {"same": True, "score": 10.0, "decision": "high", "rejected": None}
    assert found["not_known"] == []

    source = scores["e77"]["source"]
    place = f"{source['topic']}/{source['partition']}/{source['offset']}"
    later = explained(rig, place, "--recompute")
    assert later == explained(rig, "e77", "--recompute")
    assert later["answer"]["score"] == later["recomputed"]["score"] == 231.0
    assert (later["move"]["revision"], later["move"]["reason"]) == (2, "better AUC")
    assert later["cut_over"]["from_version"] == "1.0.0"
    assert later["cut_over"]["cut_over_offset"] <= source["offset"]
    told = rig.run("scorer", "explain", "scorer.yaml", "e77").stdout
    assert all(part in told for part in ("231.0", "2.0.0", "better AUC", "release", f"e{COUNT + 37}"))

    rig.run("scorer", "rescore", "scorer.yaml", "--digest", scores["e5"]["digest"])
    corrected = explained(rig, "e5")
    assert corrected["answer"] == found["answer"]
    assert [(each["score"], each["version"], each["revision"]) for each in corrected["corrections"]] == [(15.0, "2.0.0", 2)]

    (dead,) = rig.dead()
    letter = explained(rig, dead["source"], "--recompute")
    assert (letter["answer"]["kind"], letter["answer"]["reason"]) == ("dead letter", "malformed")
    assert letter["recomputed"]["same"]
    assert letter["recomputed"]["rejected"].startswith("malformed")


def of_what_is_kept_no_longer(rig: Rig) -> None:
    source = next(score["source"] for score in rig.scores() if score["id"] == "e77")
    place = f"{source['topic']}/{source['partition']}/{source['offset']}"
    rig.delete_records(rig.events_topic)
    gone = explained(rig, place)
    assert (gone["event"], gone["answer"]["score"], gone["move"]["reason"]) == (None, 231.0, "better AUC")
    assert any(place.rpartition("/")[2] in line for line in gone["not_known"])
    refused = rig.run("scorer", "explain", "scorer.yaml", place, "--recompute", code=2)
    assert "nothing can be computed again" in refused.stderr


def of_what_no_scorer_said(rig: Rig) -> None:
    forged = next(score for score in rig.scores() if score["id"] == "e5")
    rig.emit([{"id": "later", "key": "k", "a": 1.0, "b": 0.0}])
    ends = rig.ends()
    last = next(n for n, end in ends.items() if end > 0 and not answered(rig, n, end - 1))
    place = f"{rig.events_topic}[{last}]@{ends[last] - 1}"
    waiting = explained(rig, place, code=1)
    assert (json.loads(waiting["event"]["value"])["id"], waiting["answer"]) == ("later", None)
    forged |= {"id": "later", "score": 7.0, "source": {"topic": rig.events_topic, "partition": last, "offset": ends[last] - 1}}
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
    producer.produce(rig.scores_topic, json.dumps(forged).encode(), partition=last)
    assert producer.flush(10) == 0
    found = explained(rig, place, "--recompute", code=1)
    assert (found["answer"]["score"], found["recomputed"]["score"], found["recomputed"]["same"]) == (7.0, 2.0, False)
    assert found["cut_over"] is None
    assert "served the partition then" in "".join(found["not_known"])
    for unknown in ("nobody", f"{rig.events_topic}/9/0", "other-topic/0/0"):
        assert unknown.split("/")[0] in rig.run("scorer", "explain", "scorer.yaml", unknown, code=2).stderr


def answered(rig: Rig, partition: int, offset: int) -> bool:
    """Whether a score or a dead letter stands for this input event."""
    scored = [(score["source"]["partition"], score["source"]["offset"]) for score in rig.scores()]
    dead = [tuple(map(int, letter["source"].split("/")[2:])) for letter in rig.dead()]
    return (partition, offset) in {*scored, *dead}
