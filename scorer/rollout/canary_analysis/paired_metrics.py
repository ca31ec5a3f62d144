"""Pairs of answers as differences by rule: how much worse the candidate did than the champion. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from model_registry.untrusted_input.documents import Int64
from scorer.rollout.canary_analysis.key_strata import Cells
from scorer.rollout.canary_analysis.verdict import ERRORS, FLIPS

SCORED, FAILED = "scored", "dead_lettered"
"""The statuses of an event that a version has scored, and of one that it cannot. Any other is no answer of a version."""
CRASH = "crash"
"""A process died, and whose fault that is shows later: a version that is in hand at two deaths is `refused`."""
UNASKED = (CRASH, "refused", "away")
"""Why a shadow has not asked its version. But for a death that speaks against a candidate, and says nothing of a champion."""
TRAITS = attrgetter("digest", "status", "fallback", "decision")
"""What of an answer a difference depends on, but for its score."""
MOST_KNOWN = 100_000


class VersionAnswer(msgspec.Struct, frozen=True, gc=False):
    """What a version, by digest, made of an event: the fields of a score record that are compared. `fallback` is why the other
    version, which should have answered, did not; of a shadow's answer why it has no score."""

    digest: str
    status: str
    event_ms: Int64 = 0
    id: str = ""
    score: Any = None
    decision: str | None = None
    fallback: str | None = None


class Contest(NamedTuple):
    """The two versions that are judged, by digest."""

    champion: str
    candidate: str


class PairDifference(NamedTuple):
    """What a pair says but for its scores. `flip` is None where one of both failed, or neither decides (`undecided`);
    `decisions` are the champion's and the candidate's; `swapped`: the champion's answer is the shadow's."""

    error: int
    flip: int | None
    decisions: tuple[str | None, str | None]
    undecided: bool = False
    swapped: bool = False

    @property
    def scored(self) -> bool:
        """Whether both versions scored the event."""
        return self.flip is not None or self.undecided


def compare_answers(contest: Contest, answered: VersionAnswer, shadow: VersionAnswer) -> PairDifference | None:
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
    decisions, swapped = (champion.decision, candidate.decision), champion is shadow
    if answered.status == SCORED == shadow.status and answered.fallback is None:
        undecided = decisions == (None, None)
        return PairDifference(0, None if undecided else int(decisions[0] != decisions[1]), decisions, undecided, swapped)
    unasked = swapped and shadow.fallback in UNASKED
    if unasked or any(each.status not in (SCORED, FAILED) for each in (answered, shadow)):
        return None
    given_up = shadow.status == FAILED or answered.fallback is not None
    candidate_fails, champion_fails = (given_up, answered.status == FAILED)[:: -1 if swapped else 1]
    return PairDifference(int(candidate_fails) - int(champion_fails), None, decisions, swapped=swapped)


@dataclass(frozen=True, eq=False, slots=True)
class PairDifferences:
    """Of n pairs: `kinds` are the differences that there are, and `which` says which each pair has, (n,); `scores` are the
    champion's and the candidate's, (2, n), NaN where one is no single number or one of both has not scored."""

    kinds: Sequence[PairDifference | None]
    which: NDArray[np.intp]
    scores: NDArray[np.float64]

    def of_each(self, ask: Callable[[PairDifference], int]) -> NDArray[np.float64]:
        """A number for each pair, (n,); 0 for one without a difference."""
        return np.array([0 if kind is None else ask(kind) for kind in self.kinds], np.float64)[self.which]

    def where(self, ask: Callable[[PairDifference], bool]) -> NDArray[np.bool_]:
        """The pairs of which something is so, (n,)."""
        return self.of_each(ask).astype(np.bool_)

    def part(self, rows: NDArray[np.intp]) -> "PairDifferences":
        """Those of some pairs, (m,)."""
        return PairDifferences(self.kinds, self.which[rows], self.scores[:, rows])

    def ordered(
        self, rows: Sequence[int], answered: Sequence[VersionAnswer], shadow: Sequence[VersionAnswer]
    ) -> list[tuple[VersionAnswer, VersionAnswer]]:
        """Of some pairs the champion's answer and the candidate's."""
        swapped = self.where(lambda kind: kind.swapped)
        return [(shadow[row], answered[row]) if swapped[row] else (answered[row], shadow[row]) for row in rows]

    def counts(self) -> list[tuple[PairDifference | None, int]]:
        """How many pairs have each difference."""
        return list(zip(self.kinds, np.bincount(self.which, minlength=len(self.kinds)).tolist(), strict=True))


class PairComparer:
    """Finds the differences of many pairs. What a pair says but for its scores depends on its TRAITS, and is found once."""

    def __init__(self, contest: Contest) -> None:
        self._contest = contest
        self._known: dict[object, int] = {}
        self._kinds: list[PairDifference | None] = []

    def differences(self, answered: Sequence[VersionAnswer], shadow: Sequence[VersionAnswer]) -> PairDifferences:
        """Of each pair, (n,)."""
        traits = list(zip(map(TRAITS, answered), map(TRAITS, shadow), strict=True))
        if len(self._known) > MOST_KNOWN:
            self._known, self._kinds = {}, []
        for row in [row for row, each in enumerate(traits) if each not in self._known]:
            if traits[row] not in self._known:
                self._known[traits[row]] = len(self._kinds)
                self._kinds.append(compare_answers(self._contest, answered[row], shadow[row]))
        present, which = np.unique(np.array([*map(self._known.__getitem__, traits)], np.intp), return_inverse=True)
        found = PairDifferences(
            [self._kinds[kind] for kind in present.tolist()], which, np.stack([*map(_numbers, (answered, shadow))])
        )
        swapped, scored = found.where(lambda kind: kind.swapped), found.where(lambda kind: kind.scored)
        found.scores[:, swapped] = found.scores[::-1, swapped]
        found.scores[:, ~scored | np.isnan(found.scores).any(axis=0)] = np.nan
        return found


def _numbers(answers: Sequence[VersionAnswer]) -> NDArray[np.float64]:
    """Scores that are one number each; NaN for others."""
    scores = [answer.score for answer in answers]
    if set(map(type, scores)) <= {float, int}:
        return np.array(scores, np.float64)
    return np.array([float(score) if isinstance(score, float | int) else math.nan for score in scores], np.float64)


class PairedSums:
    """Cells by rule, of pairs as they come. `foreign` are pairs of other versions, or of no answer; `undecided` those that both
    scored and neither decided."""

    def __init__(self) -> None:
        self.cells: Mapping[str, Cells] = {ERRORS: Cells(), FLIPS: Cells()}
        self.foreign = self.undecided = 0

    def add(self, places: NDArray[np.intp], found: PairDifferences) -> None:
        """Take in pairs by the cell of each, (n,)."""
        for kind, count in found.counts():
            self.foreign += count * (kind is None)
            self.undecided += count * (kind is not None and kind.undecided)
        kept, decided = found.where(lambda _: True), found.where(lambda kind: kind.flip is not None)
        errors, flips = found.of_each(lambda kind: kind.error), found.of_each(lambda kind: kind.flip or 0)
        self.cells = {
            ERRORS: self.cells[ERRORS].added(places[kept], errors[kept]),
            FLIPS: self.cells[FLIPS].added(places[decided], flips[decided]),
        }

    @property
    def decided(self) -> bool:
        """Whether the versions decide, as far as is known: scores without decisions say that they do not."""
        return bool(self.cells[FLIPS].pairs) or not self.undecided
