"""Answers of the wrong arm are determined from keys, cut-overs and shares alone."""

from publisher.audit.canary_assignment import Answered, Assignment, Shares
from tests.support.xxh64 import xxh64

SEED, SOURCE = 0x00F1E2D3C4B5A697, ("flights", 3)
SHARES = [(0, 1, 0), (100, 2, 5), (200, 3, 50), (300, 4, 0)]  # offset, revision, percent


def arm(offset: int, key: bytes | None) -> str:
    percent = [share for at, _, share in SHARES if at <= offset][-1]
    named = b"flights/3/%d" % offset if key is None else key
    return "canary" if xxh64(named, SEED) % 10_000 < 100 * percent else "champion"


def assignment() -> Assignment:
    assigned = Assignment(SOURCE)
    for offset, revision, percent in reversed(SHARES):
        for _ in range(2):  # a record a role
            assigned.add(Shares(offset, revision, percent, SEED))
    return assigned


def answers() -> list[Answered]:
    rows = [(offset, None if offset % 7 == 0 else b"k%d" % (offset % 40)) for offset in range(400)]
    return [Answered(offset, key, arm(offset, key), arm(offset, key)) for offset, key in rows]


def test_right_answers_are_no_fault_and_a_champion_may_answer_for_the_canary() -> None:
    records = answers()
    assert {answer.arm for answer in records[:100] + records[300:]} == {"champion"}
    assert {answer.arm for answer in records[200:300]} == {"champion", "canary"}
    assert assignment().misassigned(records) == []
    assert assignment().misassigned(answer._replace(role="champion") for answer in records) == []
    assert Assignment(SOURCE).misassigned(records[:100]) == []


def test_each_wrong_arm_and_each_wrong_role_is_reported() -> None:
    other_arm = {"champion": "canary", "canary": "champion"}
    records = answers()
    assert assignment().misassigned(answer._replace(arm=other_arm[answer.arm]) for answer in records) == list(range(400))
    assert assignment().misassigned(answer._replace(role="shadow") for answer in records) == list(range(400))
    offsets = [answer.offset for answer in records if answer.arm == "champion"]
    assert assignment().misassigned(answer._replace(role="canary") for answer in records) == offsets
