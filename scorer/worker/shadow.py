"""Score a sample of a batch's events in a shadow process, each with the version that does not answer it in production.

If the shadow's version cannot score an event, the event gets a record with the reason. A shadow writes no dead letters, because
the scorer that answers the event writes them.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from model_registry.channels.roles import CANARY, CHAMPION
from publisher.errors import Retriable
from publisher.runtime.context import Context
from publisher.runtime.dependency_wait import DependencyUnavailable
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.batch import Batch
from scorer.decoding.types import Decoded
from scorer.models.servable import Servable
from scorer.worker.canary_routing import Arms
from scorer.worker.canary_scoring import score_with_candidate
from scorer.worker.pipeline import ReadBatch, ScoredRows, constant_answers, score_in_halves
from scorer.worker.score_batch import FOREVER, UNREAD, BatchScorer, ScoredBatch, merge

log = logging.getLogger(__name__)

FAILED = "dead_lettered"
"""The status of an event that the shadow's version could not score. The field `fallback` of the record has the reason."""

NOT_DECODED = Decoded([], [], {}, {})


class ShadowScorer(BatchScorer):
    """Turns a batch of events into the records of a shadow, one for each sampled event."""

    def score(
        self,
        batch: Batch,
        servable: Servable,
        context: Context = FOREVER,
        arms: Arms | None = None,
        *,
        deadlines: bool = False,
    ) -> ScoredBatch:
        """Return a record for every sampled event.

        The champion `servable` scores the canary's events, and the candidate scores the champion's events. By default no event
        expires, because no consumer waits for these records.
        """
        if arms is None or arms.sampled is None or batch.unreadable:
            return ScoredBatch([None] * len(batch))
        now_ms = context.clock.now_ms() if deadlines else 0
        read = self.read(batch, np.flatnonzero(arms.sampled).tolist(), now_ms)
        scored: list[ScoredRows] = []
        for version, arm, rows in _arm_rows(arms, servable):
            if version is not None:
                scored += self._score_arm(read, version.as_shadow(arm), arm, rows, context)
            else:
                absent = servable.named(*arms.absent).as_shadow(arm, arms.reason)
                scored.append(self._encode_failure(read, absent, rows, NOT_DECODED, context))
        return self._merge(batch, scored)

    def give_up(self, batch: Batch, servable: Servable, context: Context, death: str, arms: Arms | None = None) -> ScoredBatch:
        """Return a record with the reason CRASHES_SCORER for every sampled event, without decoding the events."""
        log.warning("the shadow does not score an event: a process %s twice while it scored only this event", death)
        if arms is None or arms.sampled is None:
            return ScoredBatch([None] * len(batch))
        read = self.read(batch, np.flatnonzero(arms.sampled).tolist(), 0)
        scored = [
            self._encode_failure(
                read,
                (version or servable.named(*arms.absent)).as_shadow(arm, str(Reason.CRASHES_SCORER)),
                rows,
                NOT_DECODED,
                context,
            )
            for version, arm, rows in _arm_rows(arms, servable)
        ]
        return self._merge(batch, scored)

    def dead_letter(self, *_: Any, **__: Any) -> None:
        """Return None, because a shadow writes no dead letters. A record that the broker rejects is therefore omitted."""

    def _score_arm(self, read: ReadBatch, servable: Servable, arm: str, rows: list[int], context: Context) -> list[ScoredRows]:
        """Score the rows that belong to `arm` (champion or canary) with `servable`. A failed row gets a record with the reason.

        Raises ModelBroken.
        """
        rejected = dict.fromkeys(read.batch.unread, UNREAD) | dict(read.headers.rejected)
        unread = {row: str(rejected[row].reason) for row in rows if row in rejected} if rejected else {}
        remaining = [row for row in rows if row not in unread]
        result = score_with_candidate(self.pipeline, read, remaining, servable, context, alone=True)
        scored = list(result.scored)
        for reason, failed_rows in _by_reason(unread).items():
            scored.append(self._encode_failure(read, servable.as_shadow(arm, reason), failed_rows, NOT_DECODED, context))
        for reason, failed_rows in _by_reason(result.failed).items():
            scored += self._record_failure(read, servable.as_shadow(arm, reason), failed_rows, context)
        return scored

    def _record_failure(self, read: ReadBatch, servable: Servable, rows: list[int], context: Context) -> tuple[ScoredRows, ...]:
        """Return a record without a score for each of these rows, because their scoring has failed.

        Each record contains the reason of the failure, which the caller has stored in `servable` (see `Servable.as_shadow`). If
        an event can be decoded, its record also contains the event's id.
        """

        def record(span: list[int]) -> ScoredRows:
            decoded = self.pipeline.decode(read.batch, span, servable.loaded.decoder, context)
            return self._encode_failure(read, servable, span, decoded, context)

        halved = score_in_halves(rows, record, lambda error: Poison(Reason.INTERNAL_ERROR, str(error)), context)
        if halved.interruption is not None and not isinstance(halved.interruption, DependencyUnavailable | Retriable):
            raise halved.interruption
        undecoded = sorted({*halved.rejected, *halved.unanswered})
        if not undecoded:
            return halved.scored
        return (*halved.scored, self._encode_failure(read, servable, undecoded, NOT_DECODED, context))

    def _encode_failure(
        self, read: ReadBatch, servable: Servable, rows: list[int], decoded: Decoded, context: Context
    ) -> ScoredRows:
        rows = [row for row in rows if row not in read.skipped]
        encoded = self.pipeline.encode(read, constant_answers(rows, FAILED, decoded), servable, context.clock.now_ms())
        return ScoredRows((encoded,), encoded.rejected)

    def _merge(self, batch: Batch, scored: list[ScoredRows]) -> ScoredBatch:
        result = merge(batch, scored)
        result.outcomes["too_large"] += sum(len(part.rejected) for part in scored)
        return result


def _arm_rows(arms: Arms, champion: Servable) -> Iterator[tuple[Servable | None, str, list[int]]]:
    """Yield (version, arm, rows) for the sampled events of each arm, champion and canary.

    The version scores the rows in the shadow: the candidate scores the champion's events, and the champion scores the canary's
    events. The version is None if the shadow could not load the candidate. An arm without sampled events is omitted.
    """
    assert arms.sampled is not None
    for version, arm, own_rows in ((arms.candidate, CHAMPION, ~arms.canary), (champion, CANARY, arms.canary)):
        if rows := np.flatnonzero(arms.sampled & own_rows).tolist():
            yield version, arm, rows


def _by_reason(failed: Mapping[int, str]) -> dict[str, list[int]]:
    """Group the failed rows by reason. The reasons are sorted, and so are the rows of each reason."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for row in sorted(failed):
        groups[failed[row]].append(row)
    return dict(sorted(groups.items()))
