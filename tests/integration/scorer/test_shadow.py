"""A shadow on the real broker: what it scores, by which version, and what its death and its lag cost."""

import json
import os
import signal
import time
from collections import Counter
from hashlib import sha256
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from tests.integration.scorer.lethal import BREAKS_CANDIDATE, KILLS_CANDIDATE
from tests.integration.scorer.rig import MakeRig, Rig, ScorerProcess, events, until
from tests.integration.scorer.test_canary import digest_of, moved
from tests.integration.scorer.test_lethal_events import LOADING, lethal
from tests.support import auditor, models
from tests.support.xxh64 import xxh64

KEYS, PARTITIONS, SHARE = 400, 3, 40
SHADOWED = ("promote", "scorer.yaml", "--to", "1.0.0", "--shadow", "2.0.0")


def start(rig: Rig, *flags: str) -> ScorerProcess:
    """A shadow that has its partitions."""
    shadow = rig.start("s", "--shadow", "--set", "shadow.listen=127.0.0.1:0", *flags).ready()
    partitions = len(rig.ends())
    until(lambda: any(s["shadow"] and len(s["partitions"]) == partitions for s in rig.fleet()), "its partitions")
    return shadow


def serves(rig: Rig, role: str) -> bool:
    """Whether the shadow has a version in this role, and told so."""
    return any(scorer["shadow"] and role in scorer["versions"] for scorer in rig.fleet())


def reached(rig: Rig) -> dict[int, int]:
    """The shadow's committed offsets."""
    group = f"{rig.name}.shadow"
    offsets = rig.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    return {at.partition: at.offset for at in offsets.topic_partitions or []}


def emit(rig: Rig, numbers: range, **fields: Any) -> None:
    """These events, until the champions have answered them and the shadow has read them."""
    rig.emit({**event, **fields} for event in events(len(numbers), start=numbers.start, keys=KEYS))
    until(lambda: rig.answered() >= numbers.stop and reached(rig) == rig.ends(), "the scores, and the shadow's offsets")


def records(rig: Rig) -> list[dict[str, Any]]:
    """What the shadow has written, as readers of what is committed see it."""
    return [json.loads(m.value() or b"") for m in auditor.read(rig.bootstrap_servers, f"{rig.scores_topic}.shadow")]


def of(rig: Rig, numbers: range) -> list[dict[str, Any]]:
    """The shadow's records of these events."""
    return [r for r in records(rig) if r["id"].startswith("e") and int(r["id"][1:]) in numbers]


def numbers_of(records: list[dict[str, Any]]) -> list[int]:
    return sorted(int(record["id"][1:]) for record in records)


def bucket(number: int, seed: int) -> int:
    return xxh64(f"k{number % KEYS}".encode(), seed) % 10_000


def sampled(numbers: range, digest: str, percent: int = SHARE) -> list[int]:
    """The events that a shadow of this candidate scores, recomputed without the product's code."""
    seed = int(sha256(f"shadow:{digest}".encode()).hexdigest()[:16], 16)
    return [number for number in numbers if bucket(number, seed) < 100 * percent]


def place(record: dict[str, Any]) -> tuple[int, int]:
    return record["source"]["partition"], record["source"]["offset"]


def shadowed(rig: Rig, numbers: range, digest: str) -> list[dict[str, Any]]:
    """What a shadow makes of these events, which are written now: its share of them, each once."""
    emit(rig, numbers)
    records = of(rig, numbers)
    assert numbers_of(records) == sampled(numbers, digest)
    return records


def assert_beside_the_champion(records: list[dict[str, Any]], digest: str) -> None:
    """The candidate's scores of these events, which the champion answers."""
    for record in records:
        assert record["score"] == 3.0 * float(record["id"][1:])
        fields = record["role"], record["arm"], record["version"], record["digest"], record["status"], record["revision"]
        assert fields == ("shadow", "champion", "2.0.0", digest, "scored", 2)


def assert_by_the_other_version(records: list[dict[str, Any]], digest: str, scores: list[dict[str, Any]]) -> None:
    """During a canary of half of the keys: of each event the score of the version that does not answer it."""
    answers = {place(record): record for record in scores}
    arms = Counter(record["arm"] for record in records)
    assert min(arms["champion"], arms["canary"]) > len(records) / 4
    for record in records:
        number, answer = int(record["id"][1:]), answers[place(record)]
        arm = "canary" if bucket(number, int(digest[7:23], 16)) < 5_000 else "champion"
        assert (record["arm"], record["role"], answer["arm"], answer["role"]) == (arm, "shadow", arm, arm)
        assert {record["version"], answer["version"]} == {"1.0.0", "2.0.0"}
        assert record["score"] == (2.0 if arm == "canary" else 3.0) * number


def test_a_shadow_scores_its_share_once_by_the_version_that_does_not_answer(make_rig: MakeRig) -> None:
    """Before a candidate, beside one, during a canary and after a death; the champion's answers are what they would be."""
    rig = make_rig(shadow={"max_lag_seconds": 600}).stocked(PARTITIONS, versions=2)
    champion = rig.start("a").ready()
    shadow = start(rig, "--share", f"{SHARE}%")
    emit(rig, range(KEYS))
    assert records(rig) == []
    assert "neither a canary nor a shadow: nothing is scored" in shadow.said

    move = moved(rig, *SHADOWED)
    assert [(role["role"], role["version"]) for role in move["roles"]] == [("champion", "1.0.0"), ("shadow", "2.0.0")]
    assert [scorer["scorer"] for scorer in move["rollout"]["scorers"]] == [f"{rig.name}.a"]
    digest = digest_of(rig, "2.0.0")
    until(lambda: serves(rig, "shadow"), "the candidate in the shadow")
    first = range(KEYS, 3 * KEYS)
    shadow_records = shadowed(rig, first, digest)
    assert 0.3 < len(shadow_records) / len(first) < 0.5
    assert_beside_the_champion(shadow_records, digest)

    moved(rig, "promote", "scorer.yaml", "--to", "2.0.0", "--canary", "50%")
    until(lambda: serves(rig, "canary"), "the canary in the shadow")
    second = range(first.stop, first.stop + 2 * KEYS)
    assert_by_the_other_version(shadowed(rig, second, digest), digest, rig.scores())

    third = range(second.stop, second.stop + 10 * KEYS)
    rig.emit(events(5 * KEYS, start=third.start, keys=KEYS))
    shadow.kill()
    rig.emit(events(5 * KEYS, start=third.start + 5 * KEYS, keys=KEYS))
    shadow = start(rig, "--share", f"{SHARE}%")
    until(lambda: rig.answered() >= third.stop and reached(rig) == rig.ends(), "all of it")
    # The committed offsets of a transaction may become visible before its records: each partition has a marker of its own.
    until(lambda: len(of(rig, third)) >= len(sampled(third, digest)), "the last transaction's records")
    assert numbers_of(of(rig, third)) == sampled(third, digest)
    assert {record["status"] for record in of(rig, third)} == {"scored"}, "a kill from outside is no candidate's fault"
    assert shadow.metric("scorer_shadow_skipped_events_total") == 0
    moved(rig, "rollback", "scorer.yaml")
    rig.assert_clean(events=third.stop, dead_lettered=0, misassigned=0, version_regressions=0)
    assert [swap["role"] for swap in rig.swaps()].count("shadow") == 0
    assert {scorer["scorer"] for scorer in rig.fleet()} == {f"{rig.name}.a", f"{rig.name}.shadow.s"}
    assert [process.stop() for process in (champion, shadow)] == [0, 0]


@pytest.mark.parametrize("fault", [KILLS_CANDIDATE, BREAKS_CANDIDATE])
def test_failures_of_a_shadow_are_recorded_and_harm_no_answer(make_rig: MakeRig, fault: float) -> None:
    """Unreadable events, and a candidate that kills the process or breaks its device: the champion neither dies nor
    examines anything."""
    rig = lethal(make_rig, partitions=1)
    rig.push(models.linear_package(rig.folder / "2.0.0", 3.0), "2.0.0")
    moved_alone = rig.run("model-registry", "promote", "oci:./registry/model", "--to", "1.0.0", "--shadow", "2.0.0", "--json")
    assert json.loads(moved_alone.stdout)["roles"][1]["weight"] == 0
    champion, shadow = rig.start("a").ready(), start(rig, "--share", "100%")
    rig.produce(b"not json", key=b"k0")
    until(lambda: len(records(rig)) == 1, "the shadow's word on it")
    (unread,) = records(rig)
    assert (unread["status"], unread["score"], unread["fallback"]) == ("dead_lettered", None, "malformed")
    assert (unread["role"], unread["arm"], unread["version"], place(unread)) == ("shadow", "champion", "2.0.0", (0, 0))
    emit(rig, range(1, 101), a=fault)
    until(lambda: LOADING in shadow.said, "the end of the examination")
    emit(rig, range(101, 201))
    count, outcomes = 201, [(record["status"], record["score"], record["fallback"]) for record in records(rig)[1:]]
    assert set(outcomes) == {("dead_lettered", None, "refused")}, (
        "the process, then its sandbox, died with the candidate in flight"
    )
    assert shadow.deaths == 1
    assert {record["version"] for record in records(rig)} == {"2.0.0"}
    assert sorted(map(place, records(rig))) == [(0, offset) for offset in range(count)]
    assert champion.deaths == 0
    assert "a sandbox process scores these events" not in champion.said
    assert [letter["reason"] for letter in rig.dead()] == ["malformed"]
    rig.assert_clean(events=count, dead_lettered=1)
    assert [process.stop() for process in (champion, shadow)] == [0, 0]


def test_a_shadow_that_is_too_far_behind_skips_to_the_end_and_counts(make_rig: MakeRig) -> None:
    rig = make_rig(shadow={"max_lag_seconds": 6, "share": 100}).stocked(1, versions=2)
    champion, shadow = rig.start("a").ready(), start(rig, "--set", "batching.max_events=5")  # seconds of work
    moved(rig, *SHADOWED)
    until(lambda: serves(rig, "shadow"), "the candidate in the shadow")
    emit(rig, range(100))
    os.kill(shadow.worker, signal.SIGSTOP)
    rig.emit(events(5_000, start=100, keys=KEYS))
    time.sleep(8)
    os.kill(shadow.worker, signal.SIGCONT)
    until(lambda: reached(rig) == rig.ends() and rig.answered() == 5_100, "the end")
    until(lambda: "too far behind" in shadow.said, "its word on that")
    emit(rig, range(5_100, 5_200))
    scored, skipped = numbers_of(of(rig, range(5_200))), shadow.metric("scorer_shadow_skipped_events_total")
    assert skipped > 1_000
    assert len(scored) == len(set(scored)) == 5_200 - skipped
    assert {*range(100), *range(5_100, 5_200)} <= set(scored)
    assert f"skipped {skipped:g} events of partitions that lag too far behind" in shadow.said
    rig.assert_clean(events=5_200, dead_lettered=0)

    assert shadow.stop() == 0
    rig.emit(events(100, start=5_200, keys=KEYS))
    until(lambda: rig.answered() == 5_300, "the champion's answers")
    rig.delete_records(rig.events_topic)  # before the shadow has read them
    shadow = start(rig)
    until(lambda: shadow.metric("scorer_shadow_skipped_events_total") == 100, "the end of what is gone")
    assert f"scorer offsets CONFIG --shadow --topic {rig.events_topic}" in shadow.said
    emit(rig, range(5_300, 5_400))
    assert numbers_of(of(rig, range(5_200, 5_400))) == list(range(5_300, 5_400))
    assert [process.stop() for process in (champion, shadow)] == [0, 0]


def test_its_group_is_moved_on_purpose(make_rig: MakeRig) -> None:
    """While scorers run, whose group stays where it is; what it has scored it scores again."""
    rig = make_rig(shadow={"max_lag_seconds": 600, "share": 100}).stocked(2, versions=2)
    champion, shadow = rig.start("a").ready(), start(rig)
    moved(rig, *SHADOWED)
    until(lambda: serves(rig, "shadow"), "the candidate in the shadow")
    emit(rig, range(100))
    move = ("scorer", "offsets", "scorer.yaml", "--shadow", "--to", "earliest", "--json")
    assert "stop scorer run --shadow first" in rig.run(*move, code=3).stderr
    assert shadow.stop() == 0
    rows = json.loads(rig.run(*move).stdout)["offsets"]
    assert [(row["partition"], row["committed"]) for row in rows] == [(0, 0), (1, 0)]
    assert {row["partition"]: row["high"] for row in rows} == rig.ends()
    theirs = json.loads(rig.run("scorer", "offsets", "scorer.yaml", "--json").stdout)["offsets"]
    assert all(row["committed"] == row["high"] for row in theirs)
    shadow = start(rig)
    until(lambda: reached(rig) == rig.ends(), "the shadow's offsets")
    assert sorted(numbers_of(records(rig))) == sorted([*range(100)] * 2)
    assert [process.stop() for process in (champion, shadow)] == [0, 0]


def judged(rig: Rig, role: str, candidate: str, code: int) -> tuple[str, float]:
    """The verdict over 4,000 events whose scores go from 0 to 1, and the share of decisions that flip."""
    shadow = start(rig, "--share", "100")
    until(lambda: serves(rig, role), "the candidate in the shadow")
    begin = time.time_ns() // 1_000_000
    rig.emit({**event, "a": event["a"] / 4_000} for event in events(4_000, keys=2_000))
    until(lambda: reached(rig) == rig.ends(), "the shadow's offsets")
    assert shadow.stop() == 0
    flags = ("--candidate", candidate, "--from", str(begin), "--json")
    verdict = json.loads(rig.run("scorer", "judge", "scorer.yaml", *flags, code=code).stdout)
    return verdict["verdict"], next(rule["estimate"] for rule in verdict["rules"] if rule["rule"] == "flips")


def test_records_of_a_shadow_are_judged(make_rig: MakeRig) -> None:
    """Another binary of the same model passes; one that halves all scores does not, half of whose keys it answers."""
    rig = make_rig()
    for version, factor in (("1.0.0", 1.0), ("2.0.0", 1.0), ("3.0.0", 0.5)):
        rig.push(models.linear_package(rig.folder / version, factor), version)
    rig.promote("1.0.0")
    rig.create(PARTITIONS)
    rig.start().ready()
    moved(rig, "promote", "scorer.yaml", "--to", "1.0.0", "--shadow", "2.0.0")
    assert judged(rig, "shadow", "2.0.0", 0) == ("promote", 0.0)
    moved(rig, "promote", "scorer.yaml", "--to", "3.0.0", "--canary", "50%")
    verdict, flips = judged(rig, "canary", "3.0.0", 1)
    assert verdict == "roll back"
    assert flips == pytest.approx(0.5, abs=0.05)
    until(lambda: rig.answered() == 8_000, "the scores")
    rig.assert_clean(events=8_000, scored=8_000)
