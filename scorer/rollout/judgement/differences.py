"""Pairs of answers as differences by rule: how much worse the candidate did than the champion. Pure."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from scorer.rollout.judgement.cells import Cells
from scorer.rollout.judgement.verdict import ERRORS, FLIPS

EXPIRED = "expired"


class Answer(NamedTuple):
    """What a version, by digest, made of an event of this time (Unix ms, 0: not known). `failed` is why it gave no score.
    `fallback`: it was asked because the other version had failed. `score` is NaN where it is no single number."""

    digest: str
    failed: str | None = None
    fallback: bool = False
    decision: str | None = None
    score: float = math.nan
    id: str = ""
    event_ms: int = 0


class Contest(NamedTuple):
    """The two versions that are judged, by digest."""

    champion: str
    candidate: str


class Difference(NamedTuple):
    """Of one pair. `flip` is None where one of both gave no decision; `scores` are the champion's and the candidate's."""

    error: int
    flip: int | None
    decisions: tuple[str | None, str | None]
    scores: tuple[float, float]
    undecided: bool = False


def difference(contest: Contest, answered: Answer, shadow: Answer) -> Difference | None:
    """What a pair says. None: it is not of these two versions, as around a cut-over, or one of both says that the event came
    too late to be scored. An event that one version was given because the other had failed is a failure of the other,
    whatever that one made of it as the shadow."""
    if EXPIRED in (answered.failed, shadow.failed):
        return None
    other = answered.fallback or shadow.failed is not None
    if (answered.digest, shadow.digest) == contest:
        champion, candidate, failures = answered, shadow, (answered.failed is not None, other)
    elif (shadow.digest, answered.digest) == contest:
        champion, candidate, failures = shadow, answered, (other, answered.failed is not None)
    else:
        return None
    errors = failures[1] - failures[0]
    decisions = champion.decision, candidate.decision
    if any(failures):
        return Difference(errors, None, decisions, (math.nan, math.nan))
    flip = None if decisions == (None, None) else int(decisions[0] != decisions[1])
    return Difference(errors, flip, decisions, (champion.score, candidate.score), flip is None)


class Tally:
    """Cells by rule, of pairs as they come. `foreign` are pairs of other versions, or of events that came too late; `undecided`
    those that both scored and neither decided."""

    def __init__(self) -> None:
        self.cells: Mapping[str, Cells] = {ERRORS: Cells(), FLIPS: Cells()}
        self.foreign = self.undecided = 0

    def add(self, places: list[int], found: list[Difference | None]) -> list[tuple[int, Difference]]:
        """Take in pairs by the cell of each; those that count."""
        kept = [(place, each) for place, each in zip(places, found, strict=True) if each is not None]
        self.foreign += len(found) - len(kept)
        self.undecided += sum(each.undecided for _, each in kept)
        decided = [(place, each.flip) for place, each in kept if each.flip is not None]
        self.cells = {
            ERRORS: self.cells[ERRORS].added([place for place, _ in kept], [each.error for _, each in kept]),
            FLIPS: self.cells[FLIPS].added([place for place, _ in decided], [flip for _, flip in decided]),
        }
        return kept

    @property
    def decided(self) -> bool:
        """Whether the versions decide, as far as is known: scores without decisions say that they do not."""
        return bool(self.cells[FLIPS].pairs) or not self.undecided
