"""Compare both versions' answers to one event: how much worse the candidate did than the champion, by rule. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from model_registry.untrusted_input.json_documents import Int64
from scorer.rollout.canary_analysis.key_strata import Cells
from scorer.rollout.canary_analysis.rules import ERRORS, FLIPS

SCORED = "scored"
FAILED = "dead_lettered"
"""FAILED is the status of an event that a version failed to score. Only SCORED and FAILED records are compared."""
CRASH = "crash"
"""The field `fallback` of an answer to an event that was in flight when a process died.

After one crash, it is unknown whether the version was the cause. After two crashes, the field is `refused`.
"""
UNASKED = (CRASH, "refused", "away")
"""The reasons why a shadow did not run its version for an event.

If the version is the candidate, `refused` and `away` count as failures. If it is the champion, no reason counts as a failure.
"""
TRAITS = attrgetter("digest", "status", "fallback", "decision")
"""Reads the fields of an answer, apart from its score, that determine a PairDifference."""
MAX_KINDS = 100_000


class VersionAnswer(msgspec.Struct, frozen=True, gc=False):
    """The answer of a version to an event: the fields of a score record that are compared.

    Attributes:
        digest: The digest of the version.
        status: SCORED, FAILED or another status of a score record.
        event_ms: The time of the event in Unix milliseconds.
        id: The id of the event.
        score: The score; None if there is none.
        decision: The decision; None if there is none.
        fallback: The reason why this version answered in place of another version, or why a shadow answer has no score; None if
            neither is the case.
    """

    digest: str
    status: str
    event_ms: Int64 = 0
    id: str = ""
    score: Any = None
    decision: str | None = None
    fallback: str | None = None


class Contest(NamedTuple):
    """The digests of the champion and the candidate, whose answers are compared."""

    champion: str
    candidate: str


class PairDifference(NamedTuple):
    """The difference between both versions' answers to one event, apart from their scores.

    Attributes:
        error: 1 if only the candidate failed, -1 if only the champion failed, else 0.
        flip: Whether the decisions differ, as 0 or 1; None if a version failed or neither version decides.
        decisions: The decisions of the champion and of the candidate.
        undecided: Whether both versions scored the event, but neither made a decision.
        swapped: Whether the shadow ran the champion, and a scorer ran the candidate.
    """

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
    """Return the difference of a pair of answers, or None if the pair is excluded from the comparison.

    A pair is compared only if its answers are from champion and candidate, each with the status SCORED or FAILED.
    """
    # The answers are from other versions around a version change. A pair does not count either if a process died (CRASH), or if
    # the shadow did not run the champion. If one version answered because the other failed (`answered.fallback`), that other
    # version counts as failed, even if it answered the same event in the shadow.
    if answered.fallback == CRASH or shadow.fallback == CRASH:
        return None
    if answered.digest == contest.champion and shadow.digest == contest.candidate:
        champion = answered
        candidate = shadow
    elif shadow.digest == contest.champion and answered.digest == contest.candidate:
        champion = shadow
        candidate = answered
    else:
        return None
    decisions = (champion.decision, candidate.decision)
    swapped = champion is shadow
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
    """The differences of n pairs. A pair is the answers of both versions to one event.

    Attributes:
        kinds: The distinct differences. The entry None stands for pairs that are excluded from the comparison.
        which: For each pair the index of its difference in `kinds`, (n,).
        scores: The scores of the champion and of the candidate, (2, n); NaN in both rows if a score is not a single number or a
            version did not score the event.
    """

    kinds: Sequence[PairDifference | None]
    which: NDArray[np.intp]
    scores: NDArray[np.float64]

    def values_of(self, value: Callable[[PairDifference], int]) -> NDArray[np.float64]:
        """Call `value` with the difference of each pair, and return the results, (n,); 0 for an excluded pair."""
        return np.array([0 if kind is None else value(kind) for kind in self.kinds], np.float64)[self.which]

    def where(self, predicate: Callable[[PairDifference], bool]) -> NDArray[np.bool_]:
        """Return for each pair whether it is compared and its difference satisfies `predicate`, (n,)."""
        return self.values_of(predicate).astype(np.bool_)

    def part(self, rows: NDArray[np.intp]) -> "PairDifferences":
        """Return the differences of the m pairs at the indices `rows`, (m,)."""
        return PairDifferences(self.kinds, self.which[rows], self.scores[:, rows])

    def ordered(
        self, rows: Sequence[int], answered: Sequence[VersionAnswer], shadow: Sequence[VersionAnswer]
    ) -> list[tuple[VersionAnswer, VersionAnswer]]:
        """Return the champion's answer and the candidate's answer of each pair at the indices `rows`."""
        swapped = self.where(lambda kind: kind.swapped)
        return [(shadow[row], answered[row]) if swapped[row] else (answered[row], shadow[row]) for row in rows]

    def counts(self) -> list[tuple[PairDifference | None, int]]:
        """Return each distinct difference with the number of pairs that have it."""
        return list(zip(self.kinds, np.bincount(self.which, minlength=len(self.kinds)).tolist(), strict=True))


class PairComparer:
    """Compares the two versions' answers to the same events, for many events in one call."""

    # A PairDifference depends only on four fields of each answer (TRAITS). It is computed once for each combination of their
    # values.

    def __init__(self, contest: Contest) -> None:
        self._contest = contest
        self._kind_of: dict[object, int] = {}
        self._kinds: list[PairDifference | None] = []

    def differences(self, answered: Sequence[VersionAnswer], shadow: Sequence[VersionAnswer]) -> PairDifferences:
        """Return the differences of n pairs. Pair i consists of the answers `answered[i]` and `shadow[i]`."""
        traits = list(zip(map(TRAITS, answered), map(TRAITS, shadow), strict=True))
        if len(self._kind_of) > MAX_KINDS:
            self._kind_of = {}
            self._kinds = []
        for row in [row for row, each in enumerate(traits) if each not in self._kind_of]:
            if traits[row] not in self._kind_of:
                self._kind_of[traits[row]] = len(self._kinds)
                self._kinds.append(compare_answers(self._contest, answered[row], shadow[row]))
        present, which = np.unique(np.array([*map(self._kind_of.__getitem__, traits)], np.intp), return_inverse=True)
        differences = PairDifferences(
            [self._kinds[kind] for kind in present.tolist()], which, np.stack([*map(_numbers, (answered, shadow))])
        )
        swapped = differences.where(lambda kind: kind.swapped)
        scored = differences.where(lambda kind: kind.scored)
        scores = differences.scores
        scores[:, swapped] = scores[::-1, swapped]
        scores[:, ~scored | np.isnan(scores).any(axis=0)] = np.nan
        return differences


def _numbers(answers: Sequence[VersionAnswer]) -> NDArray[np.float64]:
    """Return the score of each answer, (n,); NaN for a score that is not a single number."""
    scores = [answer.score for answer in answers]
    if set(map(type, scores)) <= {float, int}:
        return np.array(scores, np.float64)
    return np.array([float(score) if isinstance(score, float | int) else math.nan for score in scores], np.float64)


class PairedSums:
    """The sums of the differences of all pairs so far, by rule and group of keys.

    A pair is the answers of both versions to one event.

    Attributes:
        cells: For each rule, by name, the sums by group of keys (cell).
        foreign: The number of pairs that are excluded from the comparison.
        undecided: The number of pairs in which both versions scored the event, but neither made a decision.
    """

    def __init__(self) -> None:
        self.cells: Mapping[str, Cells] = {ERRORS: Cells(), FLIPS: Cells()}
        self.foreign = 0
        self.undecided = 0

    def add(self, places: NDArray[np.intp], differences: PairDifferences) -> None:
        """Add the differences of n pairs to the sums.

        Args:
            places: The index of the cell (group of keys) that each pair belongs to, (n,).
            differences: The differences of the n pairs.
        """
        for kind, count in differences.counts():
            self.foreign += count * (kind is None)
            self.undecided += count * (kind is not None and kind.undecided)
        counted = differences.where(lambda _: True)
        decided = differences.where(lambda kind: kind.flip is not None)
        errors = differences.values_of(lambda kind: kind.error)
        flips = differences.values_of(lambda kind: kind.flip or 0)
        self.cells = {
            ERRORS: self.cells[ERRORS].added(places[counted], errors[counted]),
            FLIPS: self.cells[FLIPS].added(places[decided], flips[decided]),
        }

    @property
    def decided(self) -> bool:
        """Whether the versions make decisions: False if pairs were scored and none of them has a decision."""
        return bool(self.cells[FLIPS].pairs) or not self.undecided
