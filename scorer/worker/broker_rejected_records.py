"""A batch with records that the broker takes in no case: it is published in parts, and the guilty events are dead-lettered.

Each part is a step of its own, with its offsets, in the order of the events. What is told of the refused records narrows the
search; where nothing is told, parts are halved until the guilty record stands alone.
"""

import logging
from collections.abc import Sequence

from publisher.errors import Fatal, RecordRejected
from publisher.runtime.context import now_ms
from publisher.transactions.protocol import Record
from scorer.dead_letters.headers import dead_letter_facts, own_headers
from scorer.dead_letters.reasons import Poison, Reason
from scorer.worker.batch_metrics import Published
from scorer.worker.context import Collaborators

log = logging.getLogger(__name__)

LONGEST_KEY = 1_024  # bytes of a key that is kept where little is


class _Search:
    """Finds the guilty among the records in `slots`, from one refusal to the next."""

    def __init__(self, slots: Sequence[Record | None]) -> None:
        self._slots = slots
        self._named = False
        self._groups: list[set[int]] = []  # of each, one is guilty or all are
        self._guilty: set[int] = set()

    def look(self, rows: list[int], error: RecordRejected) -> tuple[list[int], int]:
        """Those of the refused rows that are guilty, and how many to publish before the others. Raises the error where it is
        about none of these rows.
        """
        if not error.records and not self._named:  # the same once more: the session asks for reports from now on
            self._named = True
            return [], len(rows)
        slots = self._slots
        named = set(map(id, error.records))
        suspects = [row for row in rows if slots[row] and (not named or id(slots[row]) in named)]
        if not suspects:
            raise error
        lanes: dict[tuple[str, int], list[int]] = {}
        for row in suspects:
            record = slots[row]
            assert record is not None
            lanes.setdefault((record[0], record[3]) if error.records else ("", 0), []).append(row)
        guilty = [row for lane in lanes.values() if error.certain or self._all_guilty(lane, error) for row in lane]
        if guilty:
            self._guilty |= set(guilty)
            return guilty, len(rows)
        first = next(iter(lanes.values()))
        new = error.one_or_all and not any(group.issuperset(first) for group in self._groups)
        self._groups += [set(lane) for lane in lanes.values() if error.one_or_all]
        return [], rows.index(first[1 if new else len(first) // 2])

    def _all_guilty(self, lane: list[int], error: RecordRejected) -> bool:
        """One alone is; and all are where another of their group has been found guilty."""
        if len(lane) == 1 or not error.one_or_all:
            return len(lane) == 1
        return any(group.issuperset(lane) and group & self._guilty for group in self._groups)


class Refusals:
    """For one scorer."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._with = collaborators

    def publish(self, done: Published, error: RecordRejected) -> None:
        """Publish a batch of which records were refused with `error`. Raises Aborted where that fails for another reason, Fatal
        where the broker refuses even the smallest dead letter.
        """
        done.scored.unpack()
        search = _Search(done.scored.slots)
        spans = [list(range(len(done.batch)))]
        while True:
            self._with.session.recover()
            rows = spans.pop()
            guilty, cut = search.look(rows, error)
            for row in guilty:
                self._bury(done, row, str(error))
            if guilty:
                log.warning("the broker refuses %d records, which have no place in their topics: %s", len(guilty), error)
            spans += [part for part in (rows[cut:], rows[:cut]) if part]
            refused = self._publish_all(done, spans)
            if refused is None:
                return
            error = refused

    def _publish_all(self, done: Published, spans: list[list[int]]) -> RecordRejected | None:
        """Publish these parts, the last one first, until one is refused, which stays the last."""
        while spans:
            self._with.progress.alive()
            try:
                self._publish(done, spans[-1])
            except RecordRejected as error:
                return error
            spans.pop()
            done.swaps = []
        return None

    def _publish(self, done: Published, rows: list[int]) -> None:
        batch, intake = done.batch, self._with.intake
        reached = {batch.places[row]: batch.offsets[row] + 1 for row in rows}
        records = [record for row in rows if (record := done.scored.slots[row])]
        offsets = intake.partitions.offsets(batch, done.mark, reached)
        self._with.session.publish([*records, *done.swaps], offsets, intake.group)

    def _bury(self, done: Published, row: int, why: str) -> None:
        """Put another record in the place of a refused one: a dead letter for a score; the same dead letter with the
        time of now instead of the event's; at last one that has neither value nor headers of the event, but says where it is.
        """
        scored, slots = done.scored, done.scored.slots
        if (record := slots[row] or self._letter(done, row, why)) is None:
            return
        topic, value, key, partition, stamp, headers = record
        if topic != self._with.scoring.dead.topic:
            slots[row] = letter = self._letter(done, row, f"no score can be written: {why}")
            if letter is None:
                return
            scored.outcomes["expired" if row in scored.expired else scored.status] -= 1
            scored.outcomes["dead"] += 1
            scored.reasons[Reason.RECORD_REFUSED] += 1
        elif stamp:
            slots[row] = (topic, value, key, partition, 0, headers)
        elif value is not None or len(headers or ()) > len(own_headers(headers or ())):
            said = dead_letter_facts(headers or ())
            letter = self._letter(done, row, f"no whole dead letter can be written: {why}; {said['reason']}: {said['error']}")
            husk = own_headers(letter[-1] or ()) if letter else []
            kept = key if key and len(key) <= LONGEST_KEY else said["source"].encode()
            slots[row] = (topic, None, kept, partition, 0, husk)
            scored.reasons.update({said["reason"]: -1, Reason.RECORD_REFUSED: 1})
        else:
            hint = f"see the configuration of {topic}: max.message.bytes, cleanup.policy"
            raise Fatal(f"{topic} refuses even the smallest dead letter: {why}", hint, 3)

    def _letter(self, done: Published, row: int, why: str) -> Record | None:
        poison, arm = Poison(Reason.RECORD_REFUSED, why), done.scored.arm(row)
        letter = self._with.scoring.dead_letter(done.batch, row, poison, done.servable, now_ms(), arm)
        if letter is None:
            return None
        topic, value, key, partition, _, headers = letter
        return topic, value, key, partition, 0, headers
