"""Pairs of answers as differences by rule: how much worse the candidate did than the champion. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from scorer.rollout.judgement.cells import Cells
from scorer.rollout.judgement.verdict import ERRORS, FLIPS

SCORED, FAILED = "scored", "dead_lettered"
"""The statuses of an event that a version has scored, and of one that it cannot. Any other is no answer of a version."""
CRASH = "crash"
"""A process died, and whose fault that is shows later: a version that is in hand at two deaths is `refused`."""
UNASKED = (CRASH, "refused", "away")
"""Why a shadow has not asked its version. But for a death that speaks against a candidate, and says nothing of a champion."""
NO_SCORES = (math.nan, math.nan)
NUMBERS = (float, int)


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What a version, by digest, made of an event: the fields of a score record that are compared. `fallback` is why the other
    version, which should have answered, did not; of a shadow's answer why it has no score."""

    digest: str
    status: str
    event_ms: int = 0
    id: str = ""
    score: Any = None
    decision: str | None = None
    fallback: str | None = None


class Contest(NamedTuple):
    """The two versions that are judged, by digest."""

    champion: str
    candidate: str


class Difference(NamedTuple):
    """Of one pair. `flip` is None where one of both failed, or neither decides (`undecided`); `scores` are the champion's and
    the candidate's, NaN where one of both is no single number."""

    error: int
    flip: int | None
    decisions: tuple[str | None, str | None]
    scores: tuple[float, float] = NO_SCORES
    undecided: bool = False

    @property
    def scored(self) -> bool:
        """Whether both versions scored the event."""
        return self.flip is not None or self.undecided


def difference(contest: Contest, answered: Answer, shadow: Answer) -> Difference | None:
    """What a pair says. None: it is not of these two versions, as around a cut-over, or one of both is no answer, or was not
    asked because a process died. An event that one version was given because the other had failed is a failure of the other,
    whatever that one made of it as the shadow."""
    if answered.fallback == CRASH or shadow.fallback == CRASH:
        return None
    if answered.digest == contest.champion and shadow.digest == contest.candidate:
        champion, candidate = answered, shadow
    elif shadow.digest == contest.champion and answered.digest == contest.candidate:
        champion, candidate = shadow, answered
    else:
        return None
    decisions = champion.decision, candidate.decision
    if answered.status == SCORED == shadow.status and answered.fallback is None:
        if decisions == (None, None):
            return Difference(0, None, decisions, _numbers(champion.score, candidate.score), True)
        return Difference(0, int(decisions[0] != decisions[1]), decisions, _numbers(champion.score, candidate.score))
    unasked = champion is shadow and shadow.fallback in UNASKED
    if unasked or any(each.status not in (SCORED, FAILED) for each in (answered, shadow)):
        return None
    given_up = shadow.status == FAILED or answered.fallback is not None
    candidate_fails, champion_fails = (given_up, answered.status == FAILED)[:: 1 if candidate is shadow else -1]
    return Difference(int(candidate_fails) - int(champion_fails), None, decisions)


def _numbers(champion: Any, candidate: Any) -> tuple[float, float]:
    single = isinstance(champion, NUMBERS) and isinstance(candidate, NUMBERS)
    return (float(champion), float(candidate)) if single else NO_SCORES


class Tally:
    """Cells by rule, of pairs as they come. `foreign` are pairs of other versions, or of no answer; `undecided` those that both
    scored and neither decided."""

    def __init__(self) -> None:
        self.cells: Mapping[str, Cells] = {ERRORS: Cells(), FLIPS: Cells()}
        self.foreign = self.undecided = 0

    def add(self, places: Sequence[int], found: Sequence[Difference | None]) -> None:
        """Take in pairs by the cell of each."""
        kept = [(place, each) for place, each in zip(places, found, strict=True) if each is not None]
        self.foreign += len(found) - len(kept)
        self.undecided += sum(each.undecided for _, each in kept)
        decided = [(place, each.flip) for place, each in kept if each.flip is not None]
        self.cells = {
            ERRORS: self.cells[ERRORS].added([place for place, _ in kept], [each.error for _, each in kept]),
            FLIPS: self.cells[FLIPS].added([place for place, _ in decided], [flip for _, flip in decided]),
        }

    @property
    def decided(self) -> bool:
        """Whether the versions decide, as far as is known: scores without decisions say that they do not."""
        return bool(self.cells[FLIPS].pairs) or not self.undecided
