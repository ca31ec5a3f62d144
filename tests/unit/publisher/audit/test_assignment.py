"""Answers of the wrong arm are found from keys, cut-overs and shares alone."""

from publisher.audit.assignment import Answered, Assignment, Shares
from tests.support.xxh64 import xxh64

SEED, SOURCE = 0x00F1E2D3C4B5A697, ("flights", 3)
SHARES = [(0, 1, 0), (100, 2, 5), (200, 3, 50), (300, 4, 0)]  # offset, revision, percent


def arm(offset: int, key: bytes | None) -> str:
    percent = [share for at, _, share in SHARES if at <= offset][-1]
    named = b"flights/3/%d" % offset if key is None else key
    return "canary" if xxh64(named, SEED) % 10_000 < 100 * percent else "champion"


def assignment() -> Assignment:
    made = Assignment(SOURCE)
    for offset, revision, percent in reversed(SHARES):
        for _ in range(2):  # a record a role
            made.add(Shares(offset, revision, percent, SEED))
    return made


def answers() -> list[Answered]:
    rows = [(offset, None if offset % 7 == 0 else b"k%d" % (offset % 40)) for offset in range(400)]
    return [Answered(offset, key, arm(offset, key), arm(offset, key)) for offset, key in rows]


def test_right_answers_are_no_fault_and_a_champion_may_answer_for_the_canary() -> None:
    given = answers()
    assert {one.arm for one in given[:100] + given[300:]} == {"champion"}
    assert {one.arm for one in given[200:300]} == {"champion", "canary"}
    assert assignment().misassigned(given) == []
    assert assignment().misassigned(one._replace(role="champion") for one in given) == []
    assert Assignment(SOURCE).misassigned(given[:100]) == []


def test_each_wrong_arm_and_each_wrong_role_is_found() -> None:
    other = {"champion": "canary", "canary": "champion"}
    given = answers()
    assert assignment().misassigned(one._replace(arm=other[one.arm]) for one in given) == list(range(400))
    assert assignment().misassigned(one._replace(role="shadow") for one in given) == list(range(400))
    wrong = [one.offset for one in given if one.arm == "champion"]
    assert assignment().misassigned(one._replace(role="canary") for one in given) == wrong
