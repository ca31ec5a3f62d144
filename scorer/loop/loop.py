"""The owner thread: take a batch, score it, publish it. No I/O details in here.

A batch is published through a session (exactly once: its records, the swap records it causes and its offsets become visible
together, or not at all; at least once: the offsets follow within a second).
Where scoring takes about as long as a commit, the next batch is scored while the last one commits.
Between two batches the version may flip, and partitions whose revision is ahead of ours wait until we have it.
"""

import logging
import time
from collections.abc import Callable

from publisher.errors import Aborted, Evicted, MemberLost, RecordRefused
from publisher.kafka.clients import LARGEST_BATCH
from publisher.session.protocol import Record, Session
from scorer.crashes.aftermath import Aftermath
from scorer.crashes.examiner import ExaminerDied
from scorer.events.batch import Batch
from scorer.intake.claims import Claims
from scorer.intake.consumer import Intake, Partition
from scorer.intake.marks import Mark
from scorer.loop.absence import Absence
from scorer.loop.batching import RecordSize, full, take_limit, within
from scorer.loop.metering import Accounts, Published
from scorer.loop.pacing import Pacing
from scorer.loop.recovery import RecoveryLimits
from scorer.loop.refusals import Refusals
from scorer.loop.scoring import Scored, Scoring
from scorer.loop.swaps import Swap
from scorer.observe.metrics import Metrics
from scorer.observe.progress import Progress
from scorer.observe.traces import Traces
from scorer.outages import COMMITS, Away
from scorer.servables.manager import VersionManager
from scorer.servables.servable import Servable
from scorer.settings import Settings

log = logging.getLogger(__name__)

WAIT_SECONDS = 0.1  # longest wait for an event: how late a stop, a flip or a heartbeat can be
REVISION_WAIT_SECONDS = 30.0  # a partition waits so long for the revision that scored it last, then goes on with an alarm
HEAR_SECONDS = 1.0  # how long the group may take to tell it; a heartbeat
HURRY_SECONDS = 0.5  # between looks at the registry while partitions wait
REVISION = "revision"  # why they do


class Loop:
    """Runs until `stopping()`; see the module. `now_ms` is the wall clock, `clock` monotonic seconds."""

    def __init__(
        self,
        settings: Settings,
        intake: Intake,
        session: Session,
        versions: VersionManager,
        scoring: Scoring,
        metrics: Metrics,
        progress: Progress,
        traces: Traces,
        aftermath: Aftermath,
        *,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.progress = progress
        self._settings = settings
        self._intake = intake
        self._session = session
        self._versions = versions
        self._scoring = scoring
        self._metrics = metrics
        self._clock = clock
        self._now_ms = now_ms
        self._pacing = Pacing()
        self._sizes = RecordSize()
        self._request_bytes = min(LARGEST_BATCH, scoring.output.max_bytes, scoring.dead.max_bytes)
        self._limits = RecoveryLimits(settings.replica, settings.name)
        self._aftermath = aftermath
        self._claims = Claims(settings.owner, intake, session)
        self._accounts = Accounts(settings, session, metrics, progress, traces, clock=clock, now_ms=now_ms)
        self._refusals = Refusals(scoring, session, intake.offsets, now_ms, self._alive)
        self._traces = traces
        self._asked = self._largest = 0
        self._published: Published | None = None
        self._waiting: dict[Partition, float] = {}
        self._hurry_at = 0.0
        self._flipped = False
        self._absence = Absence(intake, metrics.outages, clock)
        self._recover_at = 0.0

    def run(self, stopping: Callable[[], bool], each_second: Callable[[], None]) -> None:
        """Score until `stopping()`. Raises Fatal. `each_second` is called between batches, and after a flip."""
        self._show(self._versions.serving)
        next_second = 0.0
        aborted: Aborted | None = None
        self.progress.scoring = True
        while not stopping():
            self.progress.heartbeat = now = self._clock()
            try:
                if aborted is None:
                    self._session.tick()
                    self.step()
                    self._intake.look_again(now)
                    if self._published is None:
                        self._metrics.outages.end(COMMITS)
                elif now < self._recover_at:
                    self._intake.hear(WAIT_SECONDS)
                else:
                    self._recover(aborted)
                    aborted = None
            except Aborted as error:
                aborted = self._failed(error, now)
            if now >= next_second or self._flipped:
                self._flipped = False
                next_second = now + 1.0
                self._accounts.second(self._intake)
                self._aftermath.look(self._intake, self._versions)
                each_second()
        if aborted is None and self._finish():
            self._claims.leave()

    def step(self) -> None:
        """At most one batch. Raises Aborted where it has to be done again, Fatal where nobody can."""
        if self._versions.flip() is not None:
            self._metrics.swaps.inc()
            self._flipped = True
            self._show(self._versions.serving)
        servable = self._versions.serving
        if self._absence.lasts(WAIT_SECONDS):
            return
        if self._intake.arrived:
            self._settle()
            self._claims.claim(self._intake.arrived)
        self._mind_revisions(servable)
        if (pause := self._pacing.wait(self._clock())) > 0:
            time.sleep(pause)
        batch = self._intake.take(WAIT_SECONDS, lambda timestamp: self._limit(servable, timestamp))
        if batch is None:
            self._settle()
            if not self._intake.epochs:
                self._absence.end()
            return
        began = self._clock()
        self._pacing.begin(began, full=full(batch.end, len(batch)))
        self._traces.begin(batch, servable.encoder.provenance)
        scored = self._score(batch, servable)
        if scored is None:
            return
        scoring = self._clock() - began
        self._settle()
        if self._intake.stale(batch):
            self._traces.fail("its partitions were assigned anew")
            self._intake.rewind(batch.epochs)
            return
        self._publish(batch, scored, servable, began, scoring)

    def _score(self, batch: Batch, servable: Servable) -> Scored | None:
        """The records of a batch; None where it has to be taken again. Raises Aborted."""
        self._aftermath.take_up(batch)
        try:
            scored = self._scoring.score(batch, servable, self._now_ms, self._alive)
        except Away as error:
            self._settle()
            self._session.checkpoint()
            if isinstance(error, ExaminerDied) and self._aftermath.died(batch, error):
                scored = self._scoring.give_up(batch, servable, self._now_ms, str(error))
            else:
                self._traces.fail(error)
                if isinstance(error, ExaminerDied):
                    self._intake.rewind(batch.epochs)
                else:
                    self._absence.begin(error)
                return None
        finally:
            self._aftermath.put_down()
        self._aftermath.answered(batch)
        return scored

    def _limit(self, servable: Servable, timestamp_ms: int) -> int:
        age = max(0.0, (self._now_ms() - timestamp_ms) / 1_000) if timestamp_ms > 0 else 0.0
        batching, deadline = self._settings.batching, self._settings.model.deadline_ms / 1_000
        self._largest = self._aftermath.most(self._sizes.most(self._request_bytes, batching.max_events))
        most = within(servable.inference, deadline, self._largest)
        self._asked = take_limit(servable.cost, target=batching.latency_target_ms / 1_000, oldest_age=age, max_events=most)
        return self._asked

    def _alive(self) -> None:
        self.progress.heartbeat = self._clock()

    def _publish(self, batch: Batch, scored: Scored, servable: Servable, taken: float, scoring: float) -> None:
        """Publish the batch; `_settle` sees it through, now or when the next one is scored. Raises Aborted."""
        origin, revision = servable.encoder.provenance, servable.resolution.revision
        mark = Mark(self._settings.owner, revision, origin["version"], origin["digest"])
        offsets = self._intake.offsets(batch, mark)
        swaps: list[Record] = [
            (self._settings.swaps_topic, swap.encode(), swap.key, -1, swap.at_ms, None)
            for swap in self._swaps(batch, servable, mark)
        ]
        overlap = not swaps and self._pacing.overlap(scoring)
        began, waited, records = self._clock(), self._session.counters.commit_seconds, scored.records
        self._sizes.observe(records)
        done = Published(batch, scored, servable, mark, self._asked, self._largest, taken, scoring, swaps)
        self._published = done
        try:
            self._session.publish([*records, *swaps], offsets, self._intake.group, overlap=overlap)
        except RecordRefused as error:
            self._bury(error)
        done.producing = self._clock() - began - (self._session.counters.commit_seconds - waited)
        if swaps:  # marks that others go by, should this process die, do not wait
            self._session.checkpoint()
        if not overlap:
            self._settle()

    def _settle(self) -> None:
        """Return when the outcome of the last publish is known, and tell of it. Raises Aborted where it failed."""
        try:
            self._session.settle()
        except RecordRefused as error:
            self._bury(error)
        published, self._published = self._published, None
        if published is not None:
            self._metrics.outages.end(COMMITS)
            self._intake.commit(published.batch, published.mark)
            self._pacing.committed(self._session.counters.last_commit_seconds)
            self._absence.end()
            self._accounts.batch(published)

    def _bury(self, error: RecordRefused) -> None:
        """The broker refuses records of the batch published last: see `Refusals`. Raises Aborted where it is ours no more."""
        done = self._published
        if done is None or self._intake.stale(done.batch):
            raise error
        self._refusals.publish(done, self._intake.group, error)

    def _swaps(self, batch: Batch, servable: Servable, mark: Mark) -> list[Swap]:
        """Swap records for the partitions of this batch that another version, or another revision, scored last."""
        marks = {partition: self._intake.marks.get(partition, Mark()) for partition in batch.epochs}
        changed = {p: m for p, m in marks.items() if (m.revision, m.digest) != (mark.revision, mark.digest)}
        if not changed:
            return []
        firsts, now = batch.first_offsets(), self._now_ms()
        made, anew = self._settings.owner, self._intake.anew
        return [Swap(made, *p, firsts[p], before, servable, now, anew.get(p)) for p, before in changed.items()]

    def _failed(self, error: Aborted, now: float) -> Aborted:
        """What to recover from after this error, and when; raises Fatal where there is no going on."""
        error, pause = self._limits.judge(error, now, self._session.counters.commits)
        self._recover_at = now + pause
        if not isinstance(error, Evicted):
            self._metrics.outages.begin(COMMITS, error)
        return error

    def _recover(self, error: Aborted) -> None:
        """Back to the committed offsets, with a successor for the producer whose records are in doubt.

        Waits while brokers are away. Raises Aborted where a stop is asked for meanwhile (then the next owner decides what is in
        doubt), or where the group refuses this member. A member that is lost joins anew.
        """
        log.warning("recovering: %s", error)
        self._traces.fail(error)
        self.progress.recoveries += 1
        self._published = None
        self._session.recover()
        if isinstance(error, MemberLost):
            self._intake.rejoin()
            return
        if isinstance(error, Evicted):
            self._intake.hear(HEAR_SECONDS)
        self._intake.rewind()

    def _finish(self) -> bool:
        """At the end, in good order: nothing that was published is left for others to score again. Whether that is so."""
        try:
            self._settle()
            self._session.checkpoint()
        except Aborted as error:
            log.warning("what was scored last is decided by the next owner: %s", error)
            return False
        return True

    def _mind_revisions(self, servable: Servable) -> None:
        """Hold partitions that a newer revision has scored already, until it is served here or the wait is over."""
        revision, now = servable.resolution.revision, self._clock()
        arrived, self._intake.arrived = self._intake.arrived, set()
        ahead = {p for p in arrived if self._intake.marks[p].revision > revision}
        if ahead:
            log.warning("waiting for a newer revision than %d, which has scored %s", revision, sorted(ahead))
            self._intake.hold(ahead, REVISION)
            self._waiting |= dict.fromkeys(ahead, now + REVISION_WAIT_SECONDS)
        if not self._waiting:
            return
        self._waiting = {p: until for p, until in self._waiting.items() if p in self._intake.epochs}
        reached = {p for p in self._waiting if self._intake.marks[p].revision <= revision}
        late = {p for p, until in self._waiting.items() if now >= until} - reached
        if late:
            log.error("revision not reached in %d s, going on with %d: %s", REVISION_WAIT_SECONDS, revision, sorted(late))
            self._metrics.fence_timeouts.inc(len(late))
        self._intake.release(reached | late, REVISION)
        for partition in reached | late:
            del self._waiting[partition]
        if self._waiting and now >= self._hurry_at:
            self._hurry_at = now + HURRY_SECONDS
            self._versions.hurry()

    def _show(self, servable: Servable) -> None:
        self._metrics.serving(servable.encoder.provenance, servable.resolution.revision)
        log.info("serving %s (revision %d)", servable.label, servable.resolution.revision)
