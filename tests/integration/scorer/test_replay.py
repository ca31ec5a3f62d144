"""Dead letters that are put back: each once, whatever happens in between, and scored with the id they had."""

import json
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.integration.scorer.rig import MakeRig, Rig, command, events, until
from tests.support import auditor, models
from tests.support.processes import Program

LENIENT = {
    "inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a", {"name": "b", "required": False, "default": 0.0}]}],
    "output": {"tensor": "y"},
}


def broken(make_rig: MakeRig, incomplete: int, **overrides: object) -> Rig:
    """A running scorer whose version needs field b, and `incomplete` events without it that are dead letters now."""
    rig = make_rig(**overrides)
    rig.push(models.linear_package(rig.folder / "strict", 2.0), "1.0.0")
    rig.push(models.package(rig.folder / "lenient", lambda path: models.linear(path, 2.0), LENIENT), "2.0.0")
    rig.promote("1.0.0")
    rig.create(3)
    rig.start("replay").ready()
    rig.emit([{"id": f"e{n}", "key": f"k{n % 20}", "a": n} for n in range(incomplete)])
    until(lambda: rig.answered() == incomplete, "the dead letters")
    return rig


def replay(rig: Rig, *flags: str, code: int = 0) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(rig.run("scorer", "replay", "scorer.yaml", "--json", *flags, code=code).stdout)
    return report


def mended(rig: Rig) -> None:
    rig.promote("2.0.0")
    until(lambda: rig.fleet()[0]["versions"]["champion"]["version"] == "2.0.0", "2.0.0")


def inputs(rig: Rig) -> int:
    return sum(1 for _ in auditor.read(rig.bootstrap_servers, rig.events_topic))


def test_dead_letters_are_replayed_once_and_scored_with_the_id_they_had(make_rig: MakeRig) -> None:
    rig = broken(make_rig, 40)
    rig.produce(b'{"a": 1}', key=b"k1", headers=[("ce_id", b"named"), ("trace", b"t-1")])
    rig.produce(b'{"a": 1}', key=b"k1")
    rig.produce(b'{"id": "text", "a": "1"}', key=b"k1")
    rig.produce(None, key=b"k1")
    until(lambda: rig.answered() == 44, "all dead letters")
    twins = [letter["source"] for letter in rig.dead() if letter["value"] == '{"a": 1}']
    unnamed = max(twins, key=lambda source: int(source.rpartition("/")[2]))
    mended(rig)
    assert replay(rig, "--dry-run")["by_reason"] == {"missing-field": 42, "tombstone": 1, "wrong-type": 1}
    assert replay(rig, "--reason", "oversize")["not_selected"] == 44
    assert replay(rig, "--to", "2020-01-01")["not_selected"] == 44
    assert inputs(rig) == 44
    report = replay(rig, "--reason", "missing-field", "--from", "2020-01-01", "--rate", "1000")
    assert (report["replayed"], report["not_selected"], report["unfit"]) == (42, 2, 0)
    until(lambda: len(rig.scores()) == 42, "the scores")
    assert {record["id"] for record in rig.scores()} == {f"e{n}" for n in range(40)} | {"named", unnamed}
    again = replay(rig, "--reason", "missing-field")
    assert (again["replayed"], again["replayed_before"]) == (0, 42)
    replayed = [m for m in auditor.read(rig.bootstrap_servers, rig.events_topic) if ("ce_id", b"named") in (m.headers() or [])]
    assert [(m.key(), m.value(), m.headers()) for m in replayed] == [
        (b"k1", b'{"a": 1}', [("ce_id", b"named"), ("trace", b"t-1")])
    ] * 2
    assert len({m.partition() for m in replayed}) == 1
    rig.assert_clean()
    assert replay(rig)["replayed"] == 2
    until(lambda: len(rig.dead()) == 46, "what is still wrong, dead again")
    assert replay(rig, "--dry-run")["replayed"] == 2
    rig.assert_clean()
    assert rig.scorers[0].metric("scorer_fenced_total") == 0  # the replica `replay` and the command have ids of their own


def noted(rig: Rig) -> int:
    """The end of the topic that says what was replayed; it grows while it is asked, so no reader would come to its end."""
    consumer = Consumer({"bootstrap.servers": rig.bootstrap_servers, "group.id": "look"})
    try:
        high: int = consumer.get_watermark_offsets(TopicPartition(f"{rig.dead_topic}.replayed", 0), timeout=10)[1]
    finally:
        consumer.close()
    return high


def assert_each_once(rig: Rig, count: int) -> None:
    """Every letter went back once, and each input is answered once."""

    def replayed() -> list[str]:
        return [json.loads(m.value() or b"")["id"] for m in auditor.read(rig.bootstrap_servers, rig.events_topic)]

    until(lambda: len(replayed()) >= 2 * count, "the end of the last transaction in every partition")
    ids = replayed()
    assert sorted(ids) == sorted([f"e{n}" for n in range(count)] * 2)
    until(lambda: len(rig.scores()) == count, "the scores")
    rig.assert_clean()


@pytest.mark.parametrize("end", ["killed", "overtaken", "stopped"])
def test_a_replay_continues_an_ended_or_running_replay(make_rig: MakeRig, end: str) -> None:
    rig = broken(make_rig, 300)
    mended(rig)
    first = Program([command("scorer"), "replay", str(rig.path), "--rate", "20"], rig.folder / "said")
    until(lambda: noted(rig) >= 10, "a part")
    if end == "killed":
        first.kill()
    if end == "stopped":
        assert first.stop() == 143
    second = replay(rig)
    if end == "stopped":
        assert f"interrupted: {second['replayed_before']} dead letters were replayed" in first.said
    if end == "overtaken":
        assert first.wait() == 3
        assert "another replay" in first.said
        assert "dead letters were replayed" in first.said
    assert second["replayed"] + second["replayed_before"] == 300
    assert 0 < second["replayed_before"] < 300
    assert_each_once(rig, 300)


def test_impossible_replays_are_reported_and_the_audit_counts_the_configured_topics(make_rig: MakeRig) -> None:
    rig = broken(make_rig, 1)
    message = rig.run("scorer", "replay", "scorer.yaml", "--reason", "oversized", code=2).stderr
    assert "oversize" in message
    assert "is not a valid time" in rig.run("scorer", "replay", "scorer.yaml", "--from", "soon", code=2).stderr
    elsewhere = ("--set", f"dead_letter.topic={rig.name}.nowhere")
    assert "check CONFIG --create" in rig.run("scorer", "replay", "scorer.yaml", *elsewhere, code=2).stderr
    others = f"{rig.name}.others"
    rig.make_topic(others, 1)
    foreign = ("--set", f"input.topics=[{others}]")
    report = replay(rig, *foreign)
    assert (report["replayed"], report["unfit"]) == (0, 1)
    assert "not an input topic" in report["unfit_examples"][0]
    assert "missing-field" in rig.run("scorer", "replay", "scorer.yaml", "--dry-run").stdout

    rig.emit(events(30, start=100))
    until(lambda: rig.answered() == 31, "all answers")
    rig.assert_audited(events=31, scored=30, dead_lettered=1)
    assert json.loads(rig.run("scorer", "audit", "scorer.yaml", "--to", "2020-01-01", "--json").stdout)["events"] == 0
    assert "is not before" in rig.run("scorer", "audit", "scorer.yaml", "--from", "2", "--to", "1", code=2).stderr
    rig.run("scorer", "emit", "scorer.yaml", "--topic", rig.scores_topic, stdin=json.dumps(rig.scores()[0]).encode())
    audit = rig.run("scorer", "audit", "scorer.yaml", code=1)
    assert "not clean: duplicates 1" in audit.stderr
    assert "duplicates" in audit.stdout
