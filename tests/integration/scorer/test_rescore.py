"""`scorer rescore` on a real broker: every wrong score gets one correction, whatever happens in between."""

import json
from collections import Counter
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from scorer.scores import formats
from scorer.settings import load
from tests.integration.scorer.rig import MakeRig, Rig, command, events, until
from tests.support import auditor, models
from tests.support.processes import Program

COUNT = 600


def scored(make_rig: MakeRig, count: int, **settings: Any) -> tuple[Rig, str]:
    """Events n scored 2 n by 1.0.0, which has been replaced by 2.0.0 (3 n) and is gone; and the digest of 1.0.0."""
    rig = make_rig(**settings).stocked(3, versions=2)
    scorer = rig.start().ready()
    rig.emit(events(count))
    until(lambda: rig.answered() == count, "the scores")
    assert scorer.stop() == 0
    rig.promote("2.0.0")
    read = formats.as_json(load(rig.path, []).settings)
    first = next(iter(auditor.read(rig.bootstrap_servers, rig.scores_topic)))
    return rig, json.loads(read(first.value() or b""))["digest"]


def rescored(rig: Rig, *flags: str, code: int = 0) -> Any:
    return json.loads(rig.run("scorer", "rescore", "scorer.yaml", "--json", *flags, code=code).stdout)


def corrections(rig: Rig) -> list[Message]:
    return list(auditor.read(rig.bootstrap_servers, f"{rig.scores_topic}.corrections"))


def assert_each_once(rig: Rig, digest: str, count: int) -> None:
    """Counted by a plain client: each score of that digest has one correction, of the same key, time and partition."""
    wrong = {
        f"local/{rig.scores_topic}/{m.partition()}/{m.offset()}": (m, record)
        for m in auditor.read(rig.bootstrap_servers, rig.scores_topic)
        if (record := json.loads(m.value() or b""))["digest"] == digest
    }
    assert len(wrong) == count
    messages = corrections(rig)
    named = [dict(m.headers() or ())["corrects"].decode() for m in messages]  # type: ignore[union-attr]
    assert Counter(named) == Counter(wrong.keys())
    for name, message in zip(named, messages, strict=True):
        (first, before), after = wrong[name], json.loads(message.value() or b"")
        assert (message.key(), message.timestamp(), message.partition()) == (first.key(), first.timestamp(), first.partition())
        assert {n: after[n] for n in ("id", "source", "event_ms")} == {n: before[n] for n in ("id", "source", "event_ms")}
        assert (after["version"], after["score"], after["status"]) == ("2.0.0", 3.0 * int(before["id"][1:]), "scored")
        assert after["scored_ms"] > before["scored_ms"]
    for number in range(3):
        offsets = [int(name.rpartition("/")[2]) for name in named if name.split("/")[2] == str(number)]
        assert offsets == sorted(offsets)


def noted(rig: Rig) -> int:
    """The end of the topic that says how far the job is; it grows while it is asked."""
    consumer = Consumer({"bootstrap.servers": rig.bootstrap_servers, "group.id": "look"})
    try:
        high: int = consumer.get_watermark_offsets(TopicPartition(f"{rig.name}.rollouts", 0), timeout=10)[1]
    finally:
        consumer.close()
    return high


def test_each_wrong_score_is_corrected_once_through_a_kill_and_a_second_process(make_rig: MakeRig) -> None:
    rig, digest = scored(make_rig, COUNT)
    arguments = ("rescore", str(rig.path), "--digest", digest, "--rate", "100")
    first = Program([command("scorer"), *arguments], rig.folder / "first")
    until(lambda: noted(rig) >= 6, "a part")
    first.kill()
    second = Program([command("scorer"), *arguments], rig.folder / "second")
    before = noted(rig)
    until(lambda: noted(rig) >= before + 6, "another part")
    report = rescored(rig, "--digest", digest)
    assert second.wait() == 3
    assert "another process has taken over this job" in second.said
    assert "scores were corrected" in second.said
    assert "run it again: the job continues at its position" in second.said
    assert 0 < report["run"]["corrected"] < COUNT
    assert report["total"]["corrected"] == COUNT
    assert_each_once(rig, digest, COUNT)
    assert rescored(rig, "--digest", digest)["run"]["selected"] == 0
    assert_each_once(rig, digest, COUNT)
    rig.assert_clean(events=COUNT, scored=COUNT)


def test_an_event_that_the_version_refuses_and_another_at_its_place_keep_their_scores(make_rig: MakeRig) -> None:
    rig, digest = scored(make_rig, 20)
    picky = models.package(rig.folder / "picky", models.moody)
    rig.push(picky, "3.0.0")
    report = rescored(rig, "--digest", digest, "--with", "3.0.0", "--job", "picky", code=1)
    assert report["total"]["refused"] == {"score-not-finite": 1}  # the logarithm of 0
    assert report["total"]["corrected"] == len(corrections(rig)) == 19
    assert any("the version dead-letters its event: score-not-finite" in line for line in report["not_corrected"])
    rig.make_again(rig.events_topic, 3)
    rig.emit({**event, "id": f"other{number}"} for number, event in enumerate(events(20)))
    other = rescored(rig, "--digest", digest, code=1)
    assert (other["total"]["corrected"], other["total"]["unfit"]) == (0, 20)
    assert any("was the topic recreated?" in line for line in other["not_corrected"])
    assert len(corrections(rig)) == 19
    assert rig.dead() == []


def test_scores_in_protobuf_are_corrected_in_protobuf(make_rig: MakeRig) -> None:
    rig, digest = scored(make_rig, 40, output={"format": "protobuf"})
    assert rescored(rig, "--digest", digest)["total"]["corrected"] == 40
    read = formats.as_json(load(rig.path, []).settings)
    records = [json.loads(read(message.value() or b"")) for message in corrections(rig)]
    assert {record["id"]: (record["score"], record["version"]) for record in records} == {
        f"e{n}": (3.0 * n, "2.0.0") for n in range(40)
    }


def test_impossible_corrections_are_reported_and_invalid_ones_are_refused(make_rig: MakeRig) -> None:
    rig, digest = scored(make_rig, 30)
    assert rescored(rig, "--digest", digest, "--dry-run")["run"]["corrected"] == 30
    assert rescored(rig, "--digest", digest, "--to", "2020-01-01")["run"]["others"] == 30
    assert rescored(rig, "--status", "expired")["run"]["others"] == 30
    run = ("scorer", "rescore", "scorer.yaml", "--digest", digest)
    assert "computed the scores that are to be corrected" in rig.run(*run, "--with", "1.0.0", code=3).stderr
    assert "is not a digest" in rig.run("scorer", "rescore", "scorer.yaml", "--digest", "1.0.0", code=2).stderr
    assert "--status" in rig.run("scorer", "rescore", "scorer.yaml", code=2).stderr
    elsewhere = ("--set", f"name={rig.name}-other")
    assert "check CONFIG --create" in rig.run(*run, *elsewhere, code=2).stderr
    rescored(rig, "--status", "expired", "--job", "named")
    assert "statuses ['expired']" in rig.run(*run, "--job", "named", code=3).stderr
    rig.delete_records(rig.events_topic)
    assert rescored(rig, "--digest", digest, "--dry-run")["run"]["not_retained"] == 30
    report = rescored(rig, "--digest", digest, code=1)
    assert (report["total"]["corrected"], report["total"]["not_retained"]) == (0, 30)
    assert any("no longer retained" in line for line in report["not_corrected"])
    assert corrections(rig) == []
