"""The owner thread: take a batch, score it, publish it. No I/O details in here.

A batch is published through a session: its records, the swap records it causes, and its offsets.
Where scoring takes about as long as a commit, the next batch is scored while the last one commits.
Between two batches the version may flip, and partitions whose revision is ahead of ours wait until we have it.
A shadow goes round in the same loop: it looks at a sample, and leaves out what it is too late for.
"""

import logging
import time
from collections.abc import Callable

from publisher.errors import Aborted, Evicted, Fenced, MemberLost, RecordRejected
from publisher.runtime.context import Context
from publisher.runtime.dependencies import COMMITS, DependencyUnavailable
from scorer.backends.base import ModelBroken
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.consumer.partition_ownership import OwnershipMarker
from scorer.crash_isolation.sandbox_process import SandboxProcessDied
from scorer.decoding.batch import Batch
from scorer.decoding.types import LookUpsPending
from scorer.models.servable import Servable
from scorer.worker.batch_metrics import Metering, Published
from scorer.worker.broker_rejected_records import Refusals
from scorer.worker.canary_routing import Arms, Assigning
from scorer.worker.context import Collaborators
from scorer.worker.dependency_outage import Absence
from scorer.worker.retry_backoff import Recoveries
from scorer.worker.score_batch import ScoredBatch
from scorer.worker.skipping import skip
from scorer.worker.taking import Taking
from scorer.worker.version_change_records import swap_records
from scorer.worker.version_fence import RevisionFence

log = logging.getLogger(__name__)

WAIT_SECONDS = 0.1  # longest wait for an event: how late a stop, a flip or a heartbeat can be
PASS_SECONDS = 2.0  # between commits of positions that no event advances: a transaction each, of all partitions
HEAR_SECONDS = 1.0  # how long the group may take to tell it; a heartbeat


class Loop:
    """Runs until `stopping()`; see the module."""

    def __init__(self, collaborators: Collaborators, assigning: Assigning | None = None) -> None:
        settings, intake = collaborators.settings, collaborators.intake
        metrics = collaborators.metrics
        self._with = collaborators
        self._settings = settings
        self._context = Context(beat=collaborators.progress.alive)
        self._intake = intake
        self._session = collaborators.session
        self._versions = collaborators.versions
        self._taking = Taking(collaborators)
        self._recoveries = Recoveries(settings.replica, settings.name)
        self._claims = OwnershipMarker(settings.owner, intake, collaborators.session)
        self._fence = RevisionFence(intake, collaborators.versions.hurry, metrics.fence_timeouts, time.monotonic)
        self._assigning = assigning or Assigning(collaborators.quarantine)
        fallback = settings.model.fallback
        fallback_seconds = None if fallback.score is None else fallback.after_ms / 1_000
        self._absence = Absence(intake, metrics.outages, time.monotonic, fallback_seconds)
        self._refusals = Refusals(collaborators)
        self._metering = Metering(collaborators)
        self._published: Published | None = None
        self._flipped = False
        self._pass_at = 0.0

    def run(self, stopping: Callable[[], bool], each_second: Callable[[], None]) -> None:
        """Score until `stopping()`. Raises Fatal. `each_second` is called between batches, and after a flip."""
        self._show()
        next_second = 0.0
        self._with.progress.scoring = True
        while not stopping():
            self._with.progress.heartbeat = now = time.monotonic()
            try:
                self._once(now)
            except Aborted as error:
                self._failed(error, now)
            if now >= next_second or self._flipped:
                self._flipped = False
                next_second = now + 1.0
                self._metering.second()
                self._look_at_suspects()
                each_second()
        if self._recoveries.pending is None and self._finish():
            self._claims.leave()

    def _once(self, now: float) -> None:
        """A step, or what leads back to one. Raises Aborted."""
        pending = self._recoveries.pending
        if pending is None:
            self._session.tick()
            self.step()
            self._intake.look_again(now)
            if self._published is None:
                self._with.metrics.outages.end(COMMITS)
        elif not self._recoveries.due(now):
            self._intake.hear(WAIT_SECONDS)
        else:
            self._recover(pending)

    def step(self) -> None:
        """At most one batch. Raises Aborted where it has to be done again, Fatal where nobody can."""
        self._flip()
        servable = self._versions.champion
        if self._absence.lasts(WAIT_SECONDS):
            return
        self._admit_arrivals(servable)
        self._leave_out()
        if time.monotonic() >= self._pass_at:
            self._commit_passed()
        batch = self._taking.take(servable, WAIT_SECONDS)
        if batch is None:
            self._idle()
            return
        self._with.traces.begin(batch, servable.encoder.provenance)
        work = self._score(batch, servable)
        if work is None:
            return
        self._settle()
        if self._intake.stale(batch):
            self._with.traces.fail("its partitions were assigned anew")
            self._intake.rewind(batch.epochs)
            return
        self._publish(work)

    def _flip(self) -> None:
        """Serve the aspired version from now on, if it is ready."""
        if self._versions.flip():
            self._with.metrics.swaps.inc()
            self._flipped = True
            self._show()

    def _admit_arrivals(self, servable: Servable) -> None:
        """Put our name on what was assigned, before anything of it is scored; what is ahead of us waits. Raises Aborted."""
        revision = servable.resolution.revision
        if arrivals := self._intake.partitions.arrivals():
            self._settle()
            self._claims.claim(arrivals)
            self._fence.admit(revision)
        self._fence.look(revision, self._versions.trusted_revision)

    def _leave_out(self) -> None:
        """Go on at the end of partitions in which it is too late for what waits. Raises Aborted."""
        progress = self._with.progress
        if not (late := self._assigning.too_late(progress.lag_seconds)):
            return
        self._settle()
        progress.lag_seconds = {}  # until it is looked at again
        if count := skip(late, self._intake, self._session, self._settings.owner):
            self._with.metrics.skipped.inc(count)
            log.warning("too far behind: %d events are left out, in %s", count, sorted(late))

    def _commit_passed(self) -> None:
        """Commit positions past transaction markers and aborted records, which no event would ever advance. Raises Aborted.

        Without it retention could delete the marker behind the committed offset, and the partition would seem to have lost
        events. The commit writes nothing to a topic of events, so scorers that read each other's output come to rest.
        """
        self._pass_at = time.monotonic() + PASS_SECONDS
        self._settle()
        owner = self._settings.owner
        if positions := self._intake.passed(owner):
            self._session.publish([], positions, self._intake.group)
            self._intake.partitions.pass_by(positions, owner)

    def _idle(self) -> None:
        """Nothing came."""
        self._settle()
        if not self._intake.partitions:
            self._absence.end()

    def _look_at_suspects(self) -> None:
        if self._intake.joined:
            self._with.quarantine.look(self._intake.partitions.committed(), self._intake.elsewhere, self._versions)

    def _score(self, batch: Batch, servable: Servable) -> Published | None:
        """The batch with its records; None where it has to be taken again. Raises Aborted."""
        began, quarantine, canary = time.monotonic(), self._with.quarantine, self._versions.canary
        arms = self._assigning.arms(batch, canary)
        covered = self._absence.covered()
        candidate, lives = arms.candidate if arms and not covered else None, True
        quarantine.take_up(batch, candidate.resolution.identity if candidate else "")
        try:
            answer = self._with.scoring.fall_back if covered else self._with.scoring.score
            scored = answer(batch, servable, self._context, arms)
        except DependencyUnavailable as error:
            without = self._without(error, batch, servable, arms)
            if without is None:
                return None
            scored = without
        except ModelBroken:
            lives = False
            raise
        finally:
            if lives:
                quarantine.put_down()
        quarantine.answered(batch)
        self._taking.look_ups.answered()
        if candidate:
            self._assigning.observe(candidate.label, scored.asked, scored.failed)
        origin = servable.encoder.provenance
        mark = OffsetMetadata(self._settings.owner, servable.resolution.revision, origin["version"], origin["digest"])
        limited = self._taking.limiter.limited_by(batch.end)
        return Published(batch, scored, servable, mark, limited, began, time.monotonic() - began, canary=canary)

    def _without(self, error: DependencyUnavailable, batch: Batch, servable: Servable, arms: Arms | None) -> ScoredBatch | None:
        """The batch without who is away: dead letters for one event that killed two examiners, or the fallback's answers; None
        where the batch has to be taken again. Raises Aborted."""
        self._settle()
        if isinstance(error, LookUpsPending):
            self._cut(batch, error)
            return None
        if self._absence.cover(error):
            return self._with.scoring.fall_back(batch, servable, self._context, arms)
        self._session.checkpoint()
        died = isinstance(error, SandboxProcessDied)
        if died and self._with.quarantine.died(batch, error):
            return self._with.scoring.give_up(batch, servable, self._context, str(error), arms)
        self._with.traces.fail(error)
        if died:
            self._intake.rewind(batch.epochs)
        else:
            self._absence.begin(error)
        return None

    def _cut(self, batch: Batch, error: LookUpsPending) -> None:
        """Take the batch again, in smaller parts: events with known schemas do not wait for the others. Raises Aborted."""
        self._session.checkpoint()
        self._taking.look_ups.exceeded(len(batch))
        self._with.traces.fail(error)
        self._intake.rewind(batch.epochs)

    def _publish(self, work: Published) -> None:
        """Publish the batch; `_settle` sees it through, now or when the next one is scored. Raises Aborted."""
        partitions = self._intake.partitions
        work.swaps = swap_records(work, partitions, self._settings, self._context.clock.now_ms())
        offsets = partitions.offsets(work.batch, work.mark)
        overlap = not work.swaps and self._taking.pacing.overlap(work.scoring)
        began, waited, records = time.monotonic(), self._session.counters.commit_seconds, work.scored.records
        self._taking.limiter.observe(records, work.batch.end)
        self._published = work
        try:
            self._session.publish(
                [*records, *work.swaps] if work.swaps else records, offsets, self._intake.group, overlap=overlap
            )
        except RecordRejected as error:
            self._bury(error)
        work.producing = time.monotonic() - began - (self._session.counters.commit_seconds - waited)
        if work.swaps:  # marks that others go by, should this process die, do not wait
            self._session.checkpoint()
        if not overlap:
            self._settle()

    def _settle(self) -> None:
        """Return when the outcome of the last publish is known, and tell of it. Raises Aborted where it failed."""
        try:
            self._session.wait_for_publish()
        except RecordRejected as error:
            self._bury(error)
        published, self._published = self._published, None
        if published is not None:
            self._with.metrics.outages.end(COMMITS)
            self._intake.partitions.commit(published.batch, published.mark)
            took = time.monotonic() - published.began
            self._taking.pacing.committed(self._session.counters.last_commit_seconds, took)
            if published.by_a_model:
                self._absence.end()
            self._metering.batch(published)

    def _bury(self, error: RecordRejected) -> None:
        """The broker refuses records of the batch published last: see `Refusals`. Raises Aborted where it is ours no more."""
        done = self._published
        if done is None or self._intake.stale(done.batch):
            raise error
        self._refusals.publish(done, error)

    def _failed(self, error: Aborted, now: float) -> None:
        """Something has to be recovered from. Raises Fatal where there is no going on."""
        pending = self._recoveries.failed(error, now, self._session.counters.commits)
        if not isinstance(pending, Evicted):
            self._with.metrics.outages.begin(COMMITS, pending)

    def _recover(self, error: Aborted) -> None:
        """Back to the committed offsets; a member that is lost joins anew. Waits while brokers are away. Raises Aborted where a
        stop is asked for meanwhile (then the next owner decides what is in doubt), or where the group refuses this member."""
        log.warning("recovering: %s", error)
        self._with.traces.fail(error)
        self._with.progress.recoveries += 1
        self._published = None
        self._session.recover()
        if isinstance(error, MemberLost):
            self._intake.rejoin()
        else:
            if isinstance(error, Evicted):
                self._intake.hear(HEAR_SECONDS)
            self._intake.rewind()
        if not isinstance(error, Evicted | Fenced | MemberLost):
            self._narrow()
        self._recoveries.recovered()

    def _narrow(self) -> None:
        """Write to the partitions that the topics of answers have: one that was recreated with fewer fails every batch."""
        targets = self._with.targets()
        if targets is not None and self._with.scoring.narrow(*targets):
            log.warning(
                "topics of answers have fewer partitions now: %s", ", ".join(f"{t.topic} {t.partitions}" for t in targets)
            )

    def _finish(self) -> bool:
        """At the end, in good order: nothing that was published is left for others to score again. Whether that is so."""
        try:
            self._commit_passed()
            self._session.checkpoint()
        except Aborted as error:
            log.warning("what was scored last is decided by the next owner: %s", error)
            return False
        return True

    def _show(self) -> None:
        serving, champion = self._versions.serving, self._versions.champion
        revision = champion.resolution.revision
        self._with.metrics.serving([servable.encoder.provenance for servable in serving.values()], revision)
        canary = self._versions.canary
        beside = "" if canary is None or not canary.percent else f", and {canary.digest} to {canary.percent} % of the keys"
        log.info("serving %s (revision %d)%s", champion.label, revision, beside)
