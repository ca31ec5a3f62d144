"""One batch of a shadow: what is sampled of it, scored by the version that does not answer it.

An event that this version cannot score becomes a record that says why. It is no dead letter: those are the champion's.
"""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from model_registry.channels.roles import CANARY, CHAMPION
from scorer.dead_letters.reasons import Reason
from scorer.decoding.batch import Batch
from scorer.models.servable import Servable
from scorer.scores.answer import BatchAnswers
from scorer.worker.canary_routing import Arms
from scorer.worker.canary_scoring import tried
from scorer.worker.score_batch import UNREAD, Scored, Scoring, Work

log = logging.getLogger(__name__)

FAILED = "dead_lettered"
"""The status of an event that the version could not score; `fallback` has the reason."""


class ShadowScoring(Scoring):
    """Scores batches for one configuration."""

    def score(
        self,
        batch: Batch,
        servable: Servable,
        now_ms: Callable[[], int],
        alive: Callable[[], None] = lambda: None,
        arms: Arms | None = None,
        *,
        deadlines: bool = False,
    ) -> Scored:
        """A record for every event that is sampled. `servable` is the champion, which is asked for the canary's events; the
        candidate is asked for the others. Nobody waits for these: without `deadlines` no event comes too late."""
        work = Work(self, batch, servable, now_ms)
        work.deadlines = deadlines
        if arms is None or arms.sampled is None or batch.unreadable:
            return work.scored
        for asked, arm, mine in ((arms.candidate, CHAMPION, ~arms.canary), (servable, CANARY, arms.canary)):
            rows = np.flatnonzero(arms.sampled & mine).tolist()
            if rows and asked is not None:
                _score(work, asked.as_shadow(arm), arm, rows, alive)
            elif rows:
                _tell(work, servable.named(*arms.absent).as_shadow(arm, arms.why), rows)
        work.scored.outcomes["too_large"] += len(work.rejected)
        return work.scored

    def give_up(
        self, batch: Batch, servable: Servable, now_ms: Callable[[], int], how: str, arms: Arms | None = None
    ) -> Scored:
        work = Work(self, batch, servable, now_ms)
        log.warning("an event is not scored: a process that had it alone in hand %s, twice", how)
        if arms is not None and arms.sampled is not None:
            for asked, arm, mine in ((arms.candidate, CHAMPION, ~arms.canary), (servable, CANARY, arms.canary)):
                version = asked or servable.named(*arms.absent)
                rows = np.flatnonzero(arms.sampled & mine).tolist()
                _tell(work, version.as_shadow(arm, str(Reason.CRASHES_SCORER)), rows)
        return work.scored

    def letter(self, *_: Any, **__: Any) -> None:
        """None: a record that the broker refuses is left out."""


def _score(work: Work, servable: Servable, arm: str, rows: list[int], alive: Callable[[], None]) -> None:
    """Records of these rows, all in this arm, by this version. Raises ModelBroken."""
    work.servable = servable
    unread = set(work.batch.unread)
    failed = dict.fromkeys(unread & set(rows), str(UNREAD.reason)) if unread else {}
    failed |= tried(work, [row for row in rows if row not in failed], alive, alone=True)
    for why in sorted(set(failed.values())):
        _tell(work, servable.as_shadow(arm, why), [row for row in rows if failed.get(row) == why])


def _tell(work: Work, servable: Servable, rows: list[int]) -> None:
    """Records of these rows that say why there is no score."""
    work.servable = servable
    missing = work.skipped()
    rows = [row for row in rows if row not in missing]
    work.facts.by_deadline(rows, 0)  # for the ids alone
    work.tell(rows, BatchAnswers(FAILED, [b"null"] * len(rows), [None] * len(rows)))
