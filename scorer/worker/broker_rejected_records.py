"""Publish a batch that contains records which the broker always rejects, with dead letters in place of these records.

A rejected feature record is left out, and its event keeps its score. An event with a dead letter has no feature record.

The batch is published in parts, in the order of the events. Each part is a separate transaction with its own offsets. The
delivery reports of the broker narrow the search for the rejected records. Without a delivery report, parts are halved until a
rejected record is alone in its part.
"""

import logging
from collections.abc import Mapping, Sequence

from publisher.errors import Fatal, RecordRejected
from publisher.runtime.context import Context
from publisher.transactions.session import Record, Session
from scorer.consumer.consumer import EventConsumer
from scorer.dead_letters.headers import dead_letter_facts, own_headers
from scorer.dead_letters.reasons import Poison, Reason
from scorer.features.record_builder import REJECTED
from scorer.worker.batch_metrics import PendingBatch
from scorer.worker.score_batch import BatchScorer, ScoredBatch

log = logging.getLogger(__name__)

LONGEST_KEY = 1_024  # bytes of a key that is kept in the smallest dead letter


_RowRecord = tuple[int, Record]
"""The row of an event, and one record of this event: the score, the dead letter or the feature record."""

_RowOfTopic = tuple[str, int]
"""The topic of a record and the row of its event, which together identify the record."""


class _RejectedRecordSearch:
    """Finds the records of a batch that the broker rejects.

    Parts of the batch are published one after another, and each rejection of a part narrows the search. A row is rejected
    because of its record or because of its feature record.

    Args:
        slots: the score or dead letter of each row (event) of the batch; None for a row without either.
        features: the feature records by row.
    """

    def __init__(self, slots: Sequence[Record | None], features: Mapping[int, Record]) -> None:
        self._slots = slots
        self._features = features
        self._reports_enabled = False
        self._groups: list[set[_RowOfTopic]] = []  # the broker rejects one record of each group, or all of them
        self._rejected: set[_RowOfTopic] = set()

    def narrow(self, rows: list[int], error: RecordRejected) -> tuple[list[_RowRecord], int]:
        """Evaluate the rejection of a part, and return the rejected records and the size of the next part to publish.

        Args:
            rows: the rows of the part that the broker has rejected.
            error: the rejection of the part. `narrow` raises it if none of these rows can be the cause.

        Returns:
            The records that the broker certainly rejects (possibly none), and the number of rows in the next part. The next
            part begins with the first of `rows`. The caller publishes the remaining rows in a later part.
        """
        if not error.records and not self._reports_enabled:  # repeat once: the session asks for delivery reports from now on
            self._reports_enabled = True
            return [], len(rows)
        named = set(map(id, error.records))
        suspects = [(row, record) for row in rows for record in self._suspects(row, named)]
        if not suspects:
            raise error
        by_partition: dict[tuple[str, int], list[_RowRecord]] = {}
        for row, record in suspects:
            by_partition.setdefault((record[0], record[3]) if error.records else ("", 0), []).append((row, record))
        groups = [(group, {(record[0], row) for row, record in group}) for group in by_partition.values()]
        certain = [(group, keys) for group, keys in groups if error.certain or self._all_rejected(keys, error)]
        if certain:
            self._rejected.update(*(keys for _, keys in certain))
            return [each for group, _ in certain for each in group], len(rows)
        first, first_keys = groups[0]
        new = error.one_or_all and not any(group.issuperset(first_keys) for group in self._groups)
        self._groups += [keys for _, keys in groups if error.one_or_all]
        return [], rows.index(first[1 if new else len(first) // 2][0])

    def _suspects(self, row: int, named: set[int]) -> list[Record]:
        """Return the records of a row that the broker may have rejected.

        `named` has the identities (`id`) of the records that the error names. If the error names no record, only one record of
        the row is returned: the feature record if there is one, because the event can be published without it.
        """
        records = [record for record in (self._features.get(row), self._slots[row]) if record is not None]
        return [record for record in records if id(record) in named] if named else records[:1]

    def _all_rejected(self, group: set[_RowOfTopic], error: RecordRejected) -> bool:
        """Return whether the broker certainly rejects all records of `group`, the possible causes of `error`.

        This is certain for a group of one record. For a larger group, it is certain if the group of an earlier error contains
        all of its records, and another record that is known to be rejected. Of the earlier group, the broker rejects either
        exactly one record or all records. The new error shows that it rejects more than one.
        """
        if len(group) == 1 or not error.one_or_all:
            return len(group) == 1
        return any(earlier.issuperset(group) and earlier & self._rejected for earlier in self._groups)


class RejectedBatchPublisher:
    """Publishes batches of one scorer after the broker has rejected a record in them."""

    def __init__(self, intake: EventConsumer, session: Session, scorer: BatchScorer, context: Context) -> None:
        self._intake = intake
        self._session = session
        self._scorer = scorer
        self._context = context

    def publish(self, pending: PendingBatch, error: RecordRejected) -> ScoredBatch:
        """Publish a batch that the broker has rejected with `error`. Return the records that were finally published.

        Raises:
            Aborted: publishing failed for another reason, or `context.check` raised this error.
            Fatal: the broker rejects even a dead letter without the value and the headers of its event.
        """
        scored = pending.scored.editable()
        features = {
            row: record for part in scored.features for row, record in zip(part.rows.tolist(), part.records, strict=True)
        }
        search = _RejectedRecordSearch(scored.slots, features)
        spans = [list(range(len(pending.batch)))]
        changes = pending.version_changes
        while True:
            self._session.recover()
            rows = spans.pop()
            rejected, first_part = search.narrow(rows, error)
            for row, record in rejected:
                if scored.slots[row] is record:
                    self._replace(pending, scored, row, str(error))
                else:
                    scored.dropped_features[REJECTED] += 1
                features.pop(row, None)
            if rejected:
                log.warning("the broker rejects %d records: %s", len(rejected), error)
            spans += [part for part in (rows[first_part:], rows[:first_part]) if part]
            while spans:
                self._context.check()
                try:
                    self._publish_part(pending, scored, features, spans[-1], changes)
                except RecordRejected as rejection:
                    error = rejection
                    break
                spans.pop()
                changes = ()
            if not spans:
                return scored

    def _publish_part(
        self,
        pending: PendingBatch,
        scored: ScoredBatch,
        features: Mapping[int, Record],
        rows: list[int],
        changes: Sequence[Record],
    ) -> None:
        batch = pending.batch
        reached = {batch.places[row]: batch.offsets[row] + 1 for row in rows}
        records = [record for row in rows if (record := scored.slots[row])]
        records += [features[row] for row in rows if row in features]
        offsets = self._intake.partitions.offsets(batch, pending.metadata, reached)
        self._session.publish([*records, *changes], offsets, self._intake.group)

    def _replace(self, pending: PendingBatch, scored: ScoredBatch, row: int, reason: str) -> None:
        """Replace a rejected record in `scored`.

        - A score is replaced by a dead letter without a timestamp, so that the client sets the current time.
        - A dead letter with the timestamp of the event is replaced by the same dead letter without the timestamp.
        - A dead letter without a timestamp is replaced by the smallest dead letter, without the value and the headers of the
          event. The position of the event and the reason remain.

        Raises:
            Fatal: the rejected record is the smallest dead letter.
        """
        slots = scored.slots
        if (record := slots[row] or self._dead_letter(pending, row, reason)) is None:
            return
        topic, value, key, partition, timestamp, headers = record
        if topic != self._scorer.dead.topic:
            slots[row] = dead_letter = self._dead_letter(pending, row, f"the score record cannot be written: {reason}")
            if dead_letter is None:
                return
            scored.outcomes["expired" if row in scored.expired else scored.status] -= 1
            scored.outcomes["dead"] += 1
            scored.reasons[Reason.RECORD_REFUSED] += 1
        elif timestamp:
            slots[row] = (topic, value, key, partition, 0, headers)
        elif value is not None or len(headers or ()) > len(own_headers(headers or ())):
            facts = dead_letter_facts(headers or ())
            error = f"the complete dead letter cannot be written: {reason}; {facts['reason']}: {facts['error']}"
            dead_letter = self._dead_letter(pending, row, error)
            smallest = own_headers(dead_letter[-1] or ()) if dead_letter else []
            short_key = key if key and len(key) <= LONGEST_KEY else facts["source"].encode()
            slots[row] = (topic, None, short_key, partition, 0, smallest)
            scored.reasons.update({facts["reason"]: -1, Reason.RECORD_REFUSED: 1})
        else:
            hint = f"see the configuration of {topic}: max.message.bytes, cleanup.policy"
            raise Fatal(f"topic {topic} rejects even a dead letter without the event: {reason}", hint, 3)

    def _dead_letter(self, pending: PendingBatch, row: int, error: str) -> Record | None:
        poison = Poison(Reason.RECORD_REFUSED, error)
        at_ms = self._context.clock.now_ms()
        arm = pending.scored.arm(row)
        dead_letter = self._scorer.dead_letter(pending.batch, row, poison, pending.servable, at_ms, arm)
        if dead_letter is None:
            return None
        topic, value, key, partition, _, headers = dead_letter
        return topic, value, key, partition, 0, headers
