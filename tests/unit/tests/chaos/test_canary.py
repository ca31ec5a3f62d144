"""The canary campaign's plan, and its recount: each fault is reported, and no other."""

from typing import Any

import numpy as np
import pytest

from tests.chaos.canary.plan import KEYLESS, SHARES, SOON, key, plan
from tests.chaos.canary.recount import FAULTS, Recount, Revision
from tests.support.xxh64 import xxh64

OLD, NEW = "sha256:" + "1" * 64, "sha256:" + "00f1e2d3c4b5a697" + "2" * 48
SEED = 0x00F1E2D3C4B5A697
REVISIONS = {1: Revision(OLD), 2: Revision(OLD, 50), 3: Revision(NEW)}
FACTORS = {OLD: 2.0, NEW: 3.0}
KEYS = 200
NUMBERS = np.tile(np.append(np.arange(KEYS, dtype=np.int32), np.int32(-1)), len(REVISIONS))
PER_REVISION = KEYS + 1
Record = dict[str, Any]


def arm(at: int, offset: int) -> str:
    named = key(at) or b"events/0/%d" % offset
    return "canary" if xxh64(named, SEED) % 10_000 < 5_000 else "champion"


def score(event: int) -> tuple[Record, bytes | None]:
    """Return the right answer: in each revision, an event of each key and one without a key."""
    revision, at = event // PER_REVISION + 1, int(NUMBERS[event])
    arm_name = arm(at, event) if revision == 2 else "champion"
    digest = NEW if arm_name == "canary" else REVISIONS[revision].champion
    source = {"topic": "events", "partition": 0, "offset": event}
    record = {"id": f"e{event}", "score": FACTORS[digest] * event, "digest": digest, "revision": revision, "source": source}
    return {**record, "arm": arm_name, "role": arm_name}, key(at)


def swaps() -> list[Record]:
    rows = []
    for number, revision in REVISIONS.items():
        for role in ("champion", "canary") if revision.percent else ("champion",):
            shares = {"shares": {"champion": 100 - revision.percent, "canary": revision.percent}, "seed": f"{SEED:016x}"}
            place = {"topic": "events", "partition": 0, "cut_over_offset": (number - 1) * PER_REVISION}
            digest = revision.champion if role == "champion" else NEW
            rows.append({**place, "revision": number, "role": role, "digest": digest, **shares})
    return rows


def counted(scores: list[tuple[Record, bytes | None]], cut_overs: list[Record]) -> tuple[dict[str, int], dict[int, Any]]:
    recount = Recount(NUMBERS, REVISIONS, NEW, FACTORS)
    for record in cut_overs:
        recount.cut_over(record)
    for record, record_key in scores:
        recount.score(record, record_key)
    figures = recount.figures()
    return {name: count for name, count in figures["faults"].items() if count}, figures["revisions"]


def right() -> list[tuple[Record, bytes | None]]:
    return [score(event) for event in range(len(NUMBERS))]


def event_of(arm_name: str, revision: int = 2) -> int:
    """Return the first event of the revision whose key is in this arm in the canary's revision."""
    start = (revision - 1) * PER_REVISION
    return next(event for event in range(start, start + KEYS) if arm(int(NUMBERS[event]), event) == arm_name)


def test_right_answers_have_no_faults() -> None:
    faults, revisions = counted(right(), swaps())
    assert faults == {}
    assert [revisions[number]["keys"] for number in REVISIONS] == [KEYS] * 3
    assert revisions[2]["keys_of_canary"] == sum(arm(at, 0) == "canary" for at in range(KEYS))
    assert [revisions[number]["events_of_candidate"] for number in (1, 3)] == [0, PER_REVISION]


@pytest.mark.parametrize(
    ("event", "changed", "faults"),
    [
        (event_of("champion"), {"arm": "canary", "role": "canary", "digest": NEW}, {"misassigned", "wrong_score"}),
        (event_of("canary"), {"arm": "champion", "role": "champion", "digest": OLD}, {"misassigned", "wrong_score"}),
        (KEYS + PER_REVISION, {"id": f"e{event_of('canary')}"}, {"wrong_key", "wrong_score"}),
        (event_of("canary"), {"digest": OLD, "role": "champion"}, {"wrong_version", "wrong_score"}),
        (event_of("champion"), {"revision": 1}, {"wrong_revision"}),
        (event_of("champion"), {"revision": 9}, {"wrong_revision"}),
        (event_of("champion"), {"score": 1.5}, {"wrong_score"}),
        (event_of("champion"), {"fallback": "crash"}, {"wrong_fallback"}),
    ],
)
def test_a_fault_of_one_answer_is_reported(event: int, changed: Record, faults: set[str]) -> None:
    scores = right()
    scores[event] = {**scores[event][0], **changed}, scores[event][1]
    reported, _ = counted(scores, swaps())
    assert reported == dict.fromkeys(faults, 1)


def test_a_key_that_moves_back_is_reported_unless_the_candidate_failed() -> None:
    for fallback, moved_back in (("", 1), ("crash", 0)):
        scores = right()
        event = event_of("canary", 3)
        changed = {"digest": OLD, "score": 2.0 * event, **({"fallback": fallback} if fallback else {})}
        scores[event] = {**scores[event][0], **changed}, scores[event][1]
        reported, _ = counted(scores, swaps())
        assert reported.get("moved_back", 0) == moved_back
    assert "moved_back" in FAULTS


def test_a_fallback_is_counted_and_no_fault() -> None:
    scores, event = right(), event_of("canary")
    changed = {"digest": OLD, "role": "champion", "score": 2.0 * event, "fallback": "crash"}
    scores[event] = {**scores[event][0], **changed}, scores[event][1]
    faults, revisions = counted(scores, swaps())
    assert (faults, revisions[2]["fallbacks"]) == ({}, {"crash": 1})


@pytest.mark.parametrize(
    "changed", [{"seed": "5"}, {"shares": {"champion": 75, "canary": 25}}, {"digest": OLD}, {"revision": 7}]
)
def test_a_contradicting_swap_record_is_reported(changed: Record) -> None:
    cut_overs = swaps()
    cut_overs[2] = cut_overs[2] | changed
    assert cut_overs[2]["role"] == "canary"
    reported, _ = counted(right(), cut_overs)
    assert reported == {"wrong_cut_over": 1}


def test_a_share_far_from_the_plan_is_reported() -> None:
    scores = [answer for answer in right() if answer[0]["revision"] != 2 or answer[0]["arm"] == "champion"]
    assert counted(scores, swaps())[0] == {"wrong_share": 1}
    assert counted([answer for answer in right() if answer[0]["revision"] != 1], swaps())[0] == {"wrong_share": 1}


def test_a_plan_has_every_key_and_its_kills() -> None:
    planned = plan(keys=4_000, kills=20, seed=3)
    assert (planned.keys == plan(4_000, 20, 3).keys).all()
    distinct_keys, times = np.unique(planned.keys[planned.keys >= 0], return_counts=True)
    assert distinct_keys.tolist() == list(range(4_000))
    assert np.unique(times, return_counts=True)[1].tolist() == [3_600, 400]
    assert (planned.keys < 0).sum() == pytest.approx(len(planned.keys) / KEYLESS, rel=0.05)
    assert [move.percent for move in planned.moves] == list(SHARES[1:])
    assert len(planned.kills) == 20
    assert planned.kills == tuple(sorted(planned.kills))
    assert max(planned.kills) < len(planned.keys)
    for move in planned.moves:
        assert any(0 <= kill - move.at <= SOON * len(planned.keys) for kill in planned.kills)
    assert plan(1_000, 0, 1).kills == ()
