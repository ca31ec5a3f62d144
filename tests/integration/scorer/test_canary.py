"""A canary on the real broker: its share of the keys, its failures, and its end."""

import itertools
import json
from typing import Any

from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.support import auditor, models
from tests.support.xxh64 import xxh64

KEYS, PARTITIONS = 400, 3
WIDER = {
    "inputs": [
        {"tensor": "x", "dtype": "float32", "fields": ["b", "a", {"name": "c", "required": False, "default": 0.0}]},
    ],
    "output": {"tensor": "y"},
}


def moved(rig: Rig, *arguments: str, code: int = 0) -> Any:
    return json.loads(rig.run("scorer", *arguments, "--wait", "--json", code=code).stdout)


def digest_of(rig: Rig, version: str) -> str:
    digest: str = json.loads(rig.run("model-registry", "inspect", f"oci:./registry/model:{version}", "--json").stdout)["digest"]
    return digest


def arm(record: Any, digest: str, percent: int) -> str:
    key = f"k{int(record['id'][1:]) % KEYS}".encode()
    return "canary" if xxh64(key, int(digest[7:23], 16)) % 10_000 < 100 * percent else "champion"


def emit(rig: Rig, start: int, count: int = KEYS) -> list[dict[str, Any]]:
    """Events from this number on, and their scores, by number."""
    rig.emit(events(count, start=start, keys=KEYS))
    until(lambda: rig.answered() >= start + count, "the scores")
    records = sorted(rig.scores(), key=lambda record: int(record["id"][1:]))[start:]
    assert [int(record["id"][1:]) for record in records] == list(range(start, start + count))
    return records


def mixed_transactions(rig: Rig) -> int:
    """How often scores of two arms stand side by side with no end of a transaction, which takes an offset, between them."""
    last: dict[int, tuple[int, str]] = {}
    count = 0
    for message in auditor.read(rig.bootstrap_servers, rig.scores_topic):
        partition, offset, named = message.partition() or 0, message.offset() or 0, json.loads(message.value() or b"")["arm"]
        before = last.get(partition, (-2, named))
        count += before[0] == offset - 1 and before[1] != named
        last[partition] = offset, named
    return count


def answer_by_shares(rig: Rig, digest: str, percent: int, revision: int, start: int) -> list[dict[str, Any]]:
    """Scores of each key by the version whose arm it is in."""
    records = emit(rig, start)
    for record in records:
        role = arm(record, digest, percent)
        assert (record["arm"], record["role"], record["revision"]) == (role, role, revision)
        factor = 3.0 if role == "canary" else 2.0
        assert record["score"] == factor * float(record["id"][1:])
        assert (record["version"], "fallback" in record) == ("2.0.0" if role == "canary" else "1.0.0", False)
    return records


def check_lineage_of_canary_score(rig: Rig, record: dict[str, Any], digest: str) -> None:
    """Of a record that was scored while each arm had half of the keys."""
    last = json.loads(rig.run("scorer", "lineage", "scorer.yaml", record["id"], "--recompute", "--json").stdout)
    bucket = xxh64(f"k{int(record['id'][1:]) % KEYS}".encode(), int(digest[7:23], 16)) % 10_000
    assert (last["cut_over"]["bucket"], last["cut_over"]["shares"]) == (bucket, {"champion": 50, "canary": 50})
    assert (last["model"]["digest"], last["recomputed"]["same"]) == (record["digest"], True)


def fail_harmlessly(rig: Rig, start: int) -> None:
    """A canary that answers NaN: the champion answers for it, of all keys."""
    rig.push_unchecked(models.package(rig.folder / "nan", lambda path: models.linear(path, float("nan"))), "3.0.0")
    moved(rig, "promote", "scorer.yaml", "--to", "3.0.0", "--canary", "50%")
    records, digest = emit(rig, start), digest_of(rig, "3.0.0")
    assert {(r["arm"], r["role"], r["version"]) for r in records} == {
        ("champion", "champion", "1.0.0"),
        ("canary", "champion", "1.0.0"),
    }
    assert [r["arm"] for r in records] == [arm(r, digest, 50) for r in records]
    assert {r.get("fallback") for r in records if r["arm"] == "canary"} <= {"score-not-finite", "breaker"}
    assert all(record["score"] == 2.0 * float(record["id"][1:]) for record in records)
    failed = next(record["id"] for record in records if record["arm"] == "canary")
    lineage = json.loads(rig.run("scorer", "lineage", "scorer.yaml", failed, "--json").stdout)
    assert (lineage["model"]["version"], lineage["instead_of"]) == ("1.0.0", {"version": "3.0.0", "digest": digest})


def test_a_canary_answers_its_keys_beside_the_champion_fails_harmlessly_and_ends(make_rig: MakeRig) -> None:
    """Versions with other signatures and other scores, in two scorers."""
    rig = make_rig().stocked(PARTITIONS)
    rig.push(models.package(rig.folder / "2.0.0", lambda path: models.linear(path, 3.0, width=3), WIDER), "2.0.0")
    scorers = [rig.start(replica).ready() for replica in ("a", "b")]
    until(lambda: sum(len(s["partitions"]) for s in rig.fleet()) == PARTITIONS, "the partitions")
    starts = itertools.count(0, KEYS)
    assert {(r["arm"], r["role"], r["revision"]) for r in emit(rig, next(starts))} == {("champion", "champion", 1)}
    canaries: list[set[int]] = []
    for revision, percent in ((2, 20), (3, 50)):
        move = moved(rig, "promote", "scorer.yaml", "--to", "2.0.0", "--canary", f"{percent}%")
        assert (move["to_version"], move["rollout"]["outcome"]) == ("1.0.0", "flipped")
        digest = digest_of(rig, "2.0.0")
        for _ in range(2):
            records = answer_by_shares(rig, digest, percent, revision, next(starts))
            canaries.append({int(record["id"][1:]) % KEYS for record in records if record["arm"] == "canary"})
    assert canaries[0] == canaries[1] < canaries[2] == canaries[3]
    assert mixed_transactions(rig) > 0
    swaps = [swap for swap in rig.swaps() if swap["revision"] == 3]
    assert {(swap["role"], swap["version"]) for swap in swaps} == {("champion", "1.0.0"), ("canary", "2.0.0")}
    assert {json.dumps(swap["shares"]) for swap in swaps} == {'{"champion": 50, "canary": 50}'}
    check_lineage_of_canary_score(rig, records[-1], digest)

    golden = [{"event": {"a": 1, "b": 2}, "score": 9.0, "tolerance": 1e-3}]
    rig.push_unchecked(models.package(rig.folder / "bad", lambda path: models.linear(path, 1.0), golden=golden), "9.0.0")
    rollout = moved(rig, "promote", "scorer.yaml", "--to", "9.0.0", "--canary", "5%", code=3)["rollout"]
    assert {s["outcome"] for s in rollout["scorers"]} == {"refused"}
    fail_harmlessly(rig, next(starts))
    assert "breaker" in {r.get("fallback") for r in emit(rig, next(starts))}
    assert sum(scorer.metric('scorer_canary_events_total{fallback="breaker"}') for scorer in scorers) > 0

    back = moved(rig, "rollback", "scorer.yaml")
    assert (back["to_version"], back["roles"], back["rollout"]["outcome"]) == ("1.0.0", [], "flipped")
    last = next(starts)
    assert {(r["arm"], r["role"], r["version"]) for r in emit(rig, last)} == {("champion", "champion", "1.0.0")}
    rig.assert_clean(events=last + KEYS, dead_lettered=0, misassigned=0, version_regressions=0)
    assert [scorer.stop() for scorer in scorers] == [0, 0]
