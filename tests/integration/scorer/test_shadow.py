"""A shadow on the real broker: what it scores, by which version, what its death and its lag cost, and what the champion notices."""

import json
from collections import Counter
from hashlib import sha256
from typing import Any

from tests.integration.scorer.rig import MakeRig, Rig, ScorerProcess, events, until
from tests.integration.scorer.test_canary import digest_of, moved
from tests.support import auditor
from tests.support.xxh64 import xxh64

KEYS, PARTITIONS, SHARE = 400, 3, 40


def records(rig: Rig) -> list[dict[str, Any]]:
    """What the shadow has written, as readers of what is committed see it."""
    return [json.loads(m.value() or b"") for m in auditor.read(rig.bootstrap_servers, f"{rig.scores_topic}.shadow")]


def bucket(number: int, seed: int) -> int:
    return xxh64(f"k{number % KEYS}".encode(), seed) % 10_000


def sampled(numbers: range, digest: str, percent: int = SHARE) -> list[int]:
    """The events that a shadow of this candidate scores, recomputed without the product's code."""
    seed = int(sha256(f"shadow:{digest}".encode()).hexdigest()[:16], 16)
    return [number for number in numbers if bucket(number, seed) < 100 * percent]


def start(rig: Rig, replica: str = "s", *flags: str) -> ScorerProcess:
    """A shadow that has its partitions."""
    shadow = rig.start(replica, "--shadow", "--share", f"{SHARE}%", "--set", "shadow.listen=127.0.0.1:0", *flags).ready()
    until(
        lambda: sum(len(s["partitions"]) for s in rig.fleet() if s["shadow"] and s["state"] == "running") == PARTITIONS,
        "its partitions",
    )
    return shadow


def emit(rig: Rig, numbers: range, *, read: bool = True) -> None:
    """These events, until the champions have answered them, and the shadow has `read` them."""
    rig.emit(events(len(numbers), start=numbers.start, keys=KEYS))
    until(lambda: rig.answered() >= numbers.stop, "the scores")
    if read:
        until(lambda: reached(rig) == rig.ends(), "the shadow's offsets")


def reached(rig: Rig) -> dict[int, int]:
    marks = Rig.marks(Group(rig))  # type: ignore[arg-type]
    return {partition: mark["offset"] for partition, mark in marks.items()}


class Group:
    """The shadow's group, for `Rig.marks`."""

    def __init__(self, rig: Rig) -> None:
        self.name, self.admin = f"{rig.name}.shadow", rig.admin


def numbers_of(found: list[dict[str, Any]]) -> list[int]:
    return sorted(int(record["id"][1:]) for record in found)


def test_a_shadow_scores_its_share_once_by_the_version_that_does_not_answer(make_rig: MakeRig) -> None:
    """Before a candidate, beside one, during a canary and after a death; the champions' answers are what they would be."""
    rig = make_rig().stocked(PARTITIONS, versions=2)
    rig.configure(shadow={"max_lag_seconds": 600})
    champion = rig.start("a").ready()
    shadow = start(rig)
    emit(rig, range(KEYS))
    assert records(rig) == []
    assert "neither a canary nor a shadow: nothing is scored" in shadow.said

    move = moved(rig, "promote", "scorer.yaml", "--to", "1.0.0", "--shadow", "2.0.0")
    assert [(role["role"], role["version"]) for role in move["roles"]] == [("champion", "1.0.0"), ("shadow", "2.0.0")]
    assert [s["scorer"] for s in move["rollout"]["scorers"]] == [f"{rig.name}.a"]
    digest = digest_of(rig, "2.0.0")
    until(
        lambda: f"sampling {SHARE} % of the keys to compare {digest}" in shadow.said or not emit_more(rig, shadow),
        "the candidate",
    )
    before = numbers_of(rig.scores())
    first = range(len(before), len(before) + 2 * KEYS)
    seen = len(records(rig))
    emit(rig, first)
    found = [r for r in records(rig) if int(r["id"][1:]) in first]
    assert numbers_of(found) == sampled(first, digest)
    assert 0.3 < len(found) / len(first) < 0.5
    assert seen <= len(records(rig))
    for record in found:
        assert record["score"] == 3.0 * float(record["id"][1:])
        said = record["role"], record["arm"], record["version"], record["digest"], record["status"], record["revision"]
        assert said == ("shadow", "champion", "2.0.0", digest, "scored", 2)

    moved(rig, "promote", "scorer.yaml", "--to", "2.0.0", "--canary", "50%")
    until(lambda: any(s["shadow"] and "canary" in s["versions"] for s in rig.fleet()), "the canary in the shadow")
    second = range(first.stop, first.stop + 2 * KEYS)
    emit(rig, second)
    found = [r for r in records(rig) if int(r["id"][1:]) in second]
    assert numbers_of(found) == sampled(second, digest)
    answered = {r["source"]["partition"] * 10**9 + r["source"]["offset"]: r for r in rig.scores()}
    arms = Counter(record["arm"] for record in found)
    assert min(arms["champion"], arms["canary"]) > len(found) / 4
    for record in found:
        number = int(record["id"][1:])
        theirs = answered[record["source"]["partition"] * 10**9 + record["source"]["offset"]]
        assert record["arm"] == theirs["arm"] == ("canary" if bucket(number, int(digest[7:23], 16)) < 5_000 else "champion")
        assert {record["version"], theirs["version"]} == {"1.0.0", "2.0.0"}
        assert record["score"] == (2.0 if record["arm"] == "canary" else 3.0) * number

    third = range(second.stop, second.stop + 10 * KEYS)
    rig.emit(events(5 * KEYS, start=third.start, keys=KEYS))
    shadow.kill()
    rig.emit(events(5 * KEYS, start=third.start + 5 * KEYS, keys=KEYS))
    shadow = start(rig)
    until(lambda: rig.answered() >= third.stop and reached(rig) == rig.ends(), "all of it")
    assert numbers_of([r for r in records(rig) if int(r["id"][1:]) in third]) == sampled(third, digest)
    assert shadow.metric("scorer_shadow_skipped_events_total") == 0
    moved(rig, "rollback", "scorer.yaml")
    rig.assert_clean(events=third.stop, dead_lettered=0, misassigned=0, version_regressions=0)
    assert {s["scorer"] for s in rig.fleet()} == {f"{rig.name}.a", f"{rig.name}.shadow.s"}
    assert [process.stop() for process in (champion, shadow)] == [0, 0]


def emit_more(rig: Rig, shadow: ScorerProcess) -> bool:
    """A few events more, since a shadow says what it samples with the first batch."""
    count = rig.answered()
    emit(rig, range(count, count + 10))
    return "of the keys to compare" in shadow.said
