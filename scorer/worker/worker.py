"""The main loop of a scorer, run by the thread that owns its consumer: poll a batch, score it, publish it.

Invariants of the loop:
- The records of a batch, its version change records and its offsets are published together through the session.
- If scoring takes about as long as a commit, the next batch is scored during the commit of the last batch.
- The version changes only between two batches. A partition waits until this scorer serves the newest revision that has scored
  the partition.
- A partition is scored only if its tables are restored; see `table_gate.py`.
- After a failed publish the loop returns to the committed offsets before it scores the next batch.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from publisher.errors import Abandoned, Aborted, Evicted, Fenced, MemberLost, RecordRejected
from publisher.kafka.partitions import in_ranges
from publisher.runtime.context import Context
from publisher.runtime.dependency_wait import COMMITS, DependencyUnavailable
from publisher.transactions.session import RecordParts, Session
from scorer.backends.base import ModelBroken
from scorer.consumer.consumer import EventConsumer
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.consumer.partition_ownership import OwnershipMarker
from scorer.crash_isolation.quarantine import Quarantine
from scorer.crash_isolation.sandbox_process import SandboxProcessDied
from scorer.decoding.batch import Batch
from scorer.decoding.types import LookUpsPending
from scorer.models.servable import Servable
from scorer.models.version_manager import VersionManager
from scorer.observability.liveness import WorkerProgress
from scorer.observability.metrics import Metrics
from scorer.observability.traces import Traces
from scorer.settings import Settings
from scorer.tables.tables import Tables
from scorer.worker.batch_metrics import BatchMetrics, PendingBatch
from scorer.worker.batching import BatchCollector
from scorer.worker.broker_rejected_records import RejectedBatchPublisher
from scorer.worker.canary_routing import ArmAssigner, Arms
from scorer.worker.dependency_outage import BackendOutage
from scorer.worker.encode import TargetTopic
from scorer.worker.retry_backoff import RetryBackoff
from scorer.worker.score_batch import BatchScorer, ScoredBatch
from scorer.worker.shadow_sampling import skip_to_end
from scorer.worker.table_gate import TableGate
from scorer.worker.version_change_records import version_change_records
from scorer.worker.version_fence import VersionFence

log = logging.getLogger(__name__)

WAIT_SECONDS = 0.1  # longest wait for an event: how late a stop, a version change or a heartbeat can be
PASS_SECONDS = 2.0  # between commits of positions that no event advances: a transaction each, of all partitions
RECENT_SECONDS = 5.0  # the age of a recent poll of the channel; a waiting partition has the channel polled every 0.5 s
GROUP_POLL_SECONDS = 1.0  # how long an evicted member polls the group before it returns to the committed offsets


def unknown_targets() -> None:
    """Return None: the current output and dead-letter topics are unknown. This is the default of the argument `targets`."""


class Worker:
    """The main loop of a scorer: polls, scores and publishes batches, and recovers from failures.

    Args:
        settings: the settings of the scorer.
        intake: the consumer that fetches the events.
        session: the session that publishes records and offsets.
        versions: the versions that are served.
        scorer: the object that turns batches into records.
        quarantine: the object that isolates events that crash the process.
        metrics: the metrics of the scorer.
        progress: the progress of the loop, which other threads read.
        traces: the traces of batches.
        targets: a function that returns the current output and dead-letter topics, and the topic of the feature log if there is
            one; None if they cannot be described.
        assigner: the object that assigns the events of a batch to champion and canary.
        context: the context whose check is called between the parts of a batch. The default context only reports progress.
        tables: the tables of joined fields; None if no tables are configured.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        intake: EventConsumer,
        session: Session,
        versions: VersionManager,
        scorer: BatchScorer,
        quarantine: Quarantine,
        metrics: Metrics,
        progress: WorkerProgress,
        traces: Traces,
        targets: Callable[[], tuple[TargetTopic, ...] | None] = unknown_targets,
        assigner: ArmAssigner | None = None,
        context: Context | None = None,
        tables: Tables | None = None,
    ) -> None:
        self._settings = settings
        self._intake = intake
        self._session = session
        self._versions = versions
        self._scorer = scorer
        self._quarantine = quarantine
        self._metrics = metrics
        self._progress = progress
        self._traces = traces
        self._targets = targets
        self._assigner = assigner or ArmAssigner(quarantine)
        self._context = context or Context(beat=progress.alive)
        self._collector = BatchCollector(settings, intake, quarantine, scorer.largest_request)
        self._backoff = RetryBackoff(settings.replica, settings.name)
        self._claims = OwnershipMarker(settings.owner, intake, session)
        self._fence = VersionFence(intake, versions.poll_now, metrics.fence_timeouts, metrics.channel_younger, time.monotonic)
        self._gate = TableGate(intake, tables)
        fallback = settings.model.fallback
        fallback_seconds = None if fallback.score is None else fallback.after_ms / 1_000
        self._outage = BackendOutage(intake, metrics.outages, time.monotonic, fallback_seconds)
        self._rejected = RejectedBatchPublisher(intake, session, scorer, self._context)
        self._batch_metrics = BatchMetrics(intake, session.counters, metrics, progress, traces, lambda: self._gate.waiting)
        self._pending: PendingBatch | None = None
        self._version_changed = False
        self._commit_passed_at = 0.0

    def run(self, stopping: Callable[[], bool], each_second: Callable[[], None]) -> bool:
        """Score batches until `stopping()` returns True, then commit and release the partitions. Raises Fatal.

        Return whether every score is committed. Otherwise the next owner of the partitions resolves the last transaction.

        `context.check` may raise Abandoned to end the call in the middle of a batch.

        `each_second` is called between batches, about once a second and after each version change.
        """
        self._report_serving()
        next_second = 0.0
        self._progress.scoring = True
        while not stopping():
            self._progress.heartbeat = now = time.monotonic()
            try:
                self._step_or_recover(now)
            except Abandoned as error:
                return self._abandon(error)
            except Aborted as error:
                self._fail(error, now)
            if now >= next_second or self._version_changed:
                self._version_changed = False
                next_second = now + 1.0
                self._batch_metrics.observe_partitions()
                self._poll_quarantine()
                each_second()
        if self._backoff.pending is not None or not self._finish():
            return False
        self._claims.clear_owner()
        return True

    def _step_or_recover(self, now: float) -> None:
        """Run one step. After a failure, poll the group until the recovery is due, then recover. Raises Aborted."""
        pending = self._backoff.pending
        if pending is None:
            self._session.tick()
            self.step()
            self._intake.check_unreadable(now)
            if self._pending is None:
                self._metrics.outages.end(COMMITS)
        elif not self._backoff.due(now):
            self._intake.poll_group(WAIT_SECONDS)
        else:
            self._recover(pending)

    def step(self) -> None:
        """Score and publish at most one batch.

        Raises:
            Aborted: the loop must return to the committed offsets and repeat the batch.
            Fatal: the batch cannot be published.
        """
        self._change_version()
        servable = self._versions.champion
        if self._outage.blocks(WAIT_SECONDS):
            return
        self._admit_arrivals(servable)
        self._skip_late_partitions()
        if time.monotonic() >= self._commit_passed_at:
            self._commit_passed()
        batch = self._collector.take(servable, WAIT_SECONDS)
        if batch is None:
            self._await_publish()
            if not self._intake.partitions:
                self._outage.end()
            return
        self._traces.begin(batch, servable.encoder.provenance)
        self._gate.begin_batch(batch)
        pending = self._score(batch, servable)
        if pending is None:
            return
        must_repeat = self._gate.must_repeat_batch()  # before the wait for the outcome of the previous batch
        self._await_publish()
        if self._intake.is_stale(batch):
            self._traces.fail("the partitions of the batch were assigned again")
            self._intake.rewind(batch.epochs)
            return
        if must_repeat:
            log.warning("a batch is read again: the rows of its tables became too old while it was scored")
            self._traces.fail("the rows of the tables became too old")
            self._intake.rewind(batch.epochs)
            return
        self._publish(pending)

    def _change_version(self) -> None:
        """Serve the aspired versions (those that the channel names) from now on, if all of them are loaded or refused."""
        if self._versions.serve_aspired():
            self._metrics.swaps.inc()
            self._version_changed = True
            self._report_serving()

    def _admit_arrivals(self, servable: Servable) -> None:
        """Write this scorer's name to the committed offsets of new partitions before their events are fetched.

        Pause new partitions that a newer revision has scored, and new partitions whose tables are not restored. Raises Aborted.
        """
        trusted = self._versions.trusted_revision
        if arrivals := self._intake.partitions.arrivals():
            self._await_publish()
            self._claims.claim(arrivals)
            polled = self._versions.registry_revision(self._settings.model.poll_seconds + RECENT_SECONDS)
            self._fence.admit(servable.resolution, trusted, polled)
            self._gate.admit(arrivals)
            self._intake.resume(arrivals, "unclaimed")
        self._gate.check()
        self._fence.check(servable.resolution.revision, trusted, self._versions.registry_revision(RECENT_SECONDS))

    def _skip_late_partitions(self) -> None:
        """Skip the backlog of each partition whose lag exceeds the limit. Only a shadow has a limit.

        Raises:
            Aborted: A transaction failed.
        """
        if not (late := self._assigner.too_late(self._progress.lag_seconds)):
            return
        self._await_publish()
        self._progress.lag_seconds = {}  # until it is measured again
        if count := skip_to_end(late, self._intake, self._session, self._settings.owner):
            self._metrics.skipped.inc(count)
            log.warning("skipped %d events of partitions that lag too far behind: %s", count, in_ranges(late))

    def _commit_passed(self) -> None:
        """Commit past the transaction markers and aborted records at the end of partitions. Raises Aborted.

        No batch commits these offsets, because no event follows them. Without this commit, retention could delete a marker
        after the committed offset, and the partition would seem to have lost events. The commit writes nothing to a topic of
        events. Therefore scorers that read each other's output do not keep each other busy.
        """
        self._commit_passed_at = time.monotonic() + PASS_SECONDS
        self._await_publish()
        owner = self._settings.owner
        if positions := self._intake.positions_without_events(owner):
            self._session.publish([], positions, self._intake.group)
            self._intake.partitions.record_committed(positions, owner)

    def _poll_quarantine(self) -> None:
        if self._intake.joined:
            self._quarantine.poll(self._intake.partitions.committed(), self._intake.committed_offsets, self._versions)

    def _score(self, batch: Batch, servable: Servable) -> PendingBatch | None:
        """Return the batch with its records; None if the batch must be read again. Raises Aborted and ModelBroken."""
        began = time.monotonic()
        canary = self._versions.canary
        arms = self._assigner.arms(batch, canary)
        use_fallback = self._outage.fallback_active()
        candidate = arms.candidate if arms and not use_fallback else None
        model_works = True
        self._quarantine.begin_batch(batch, candidate.resolution.identity if candidate else "")
        try:
            answer = self._scorer.fall_back if use_fallback else self._scorer.score
            scored: ScoredBatch | None = answer(batch, servable, self._context, arms)
        except DependencyUnavailable as error:
            scored = self._score_degraded(error, batch, servable, arms)
        except ModelBroken:
            model_works = False
            raise
        finally:
            if model_works:
                self._quarantine.end_batch()
        if scored is None:
            return None
        self._quarantine.record_answer(batch)
        self._collector.look_ups.double()
        if candidate:
            self._assigner.observe(candidate.label, scored.requested, scored.failed)
        origin = servable.encoder.provenance
        return PendingBatch(
            batch,
            scored,
            servable,
            OffsetMetadata(
                self._settings.owner,
                servable.resolution.revision,
                origin["version"],
                origin["digest"],
                history=servable.resolution.history,
            ),
            limited=self._collector.limiter.limited_by(batch.end),
            began=began,
            scoring=time.monotonic() - began,
            canary=canary,
        )

    def _score_degraded(
        self, error: DependencyUnavailable, batch: Batch, servable: Servable, arms: Arms | None
    ) -> ScoredBatch | None:
        """Handle a dependency that is unavailable while a batch is scored.

        If the fallback is due, it answers the batch. If two sandbox processes died while they scored a single event, the event
        is dead-lettered. Otherwise None is returned, and the batch is read again. Raises Aborted.
        """
        self._await_publish()
        if isinstance(error, LookUpsPending):
            self._retry_in_parts(batch, error)
            return None
        if self._outage.use_fallback(error):
            return self._scorer.fall_back(batch, servable, self._context, arms)
        self._session.checkpoint()
        sandbox_died = isinstance(error, SandboxProcessDied)
        if sandbox_died and self._quarantine.record_death(batch, error):
            return self._scorer.give_up(batch, servable, self._context, str(error), arms)
        self._traces.fail(error)
        if sandbox_died:
            self._intake.rewind(batch.epochs)
        else:
            self._outage.begin(error)
        return None

    def _retry_in_parts(self, batch: Batch, error: LookUpsPending) -> None:
        """Return to the start of the batch, and set the limit of the next batch to half of this batch. Raises Aborted.

        The look-ups of schemas were too slow for this batch. In a smaller batch, fewer events with a known schema wait for the
        schemas of other events.
        """
        self._session.checkpoint()
        self._collector.look_ups.halve(len(batch))
        self._traces.fail(error)
        self._intake.rewind(batch.epochs)

    def _publish(self, scored: PendingBatch) -> None:
        """Publish the batch. Raises Aborted.

        If the commit overlaps the scoring of the next batch, the call returns before the outcome is known. The next call of
        `_await_publish` waits for the outcome.
        """
        partitions = self._intake.partitions
        at_ms = self._context.clock.now_ms()
        changes = version_change_records(scored, partitions, self._settings, at_ms)
        pending = replace(scored, version_changes=changes)
        offsets = partitions.offsets(pending.batch, pending.metadata)
        overlap = not changes and self._collector.pacing.overlap(pending.scoring)
        began = time.monotonic()
        commit_seconds = self._session.counters.commit_seconds
        records = pending.scored.records
        features = [part.records for part in pending.scored.features]
        self._collector.limiter.observe(records, pending.batch.end, features)
        self._pending = pending
        try:
            to_publish = RecordParts([records, *features, changes]) if changes or features else records
            self._session.publish(to_publish, offsets, self._intake.group, overlap=overlap)
        except RecordRejected as error:
            self._dead_letter_rejected(error)
        producing = time.monotonic() - began - (self._session.counters.commit_seconds - commit_seconds)
        self._pending = replace(self._pending, producing=producing)
        if changes:  # other processes read the version of a partition from them if this process dies: do not delay them
            self._session.checkpoint()
        if not overlap:
            self._await_publish()

    def _await_publish(self) -> None:
        """Wait for the outcome of the last publish, and record its success in positions, pacing and metrics. Raises Aborted."""
        try:
            self._session.wait_for_publish()
        except RecordRejected as error:
            self._dead_letter_rejected(error)
        pending = self._pending
        self._pending = None
        if pending is not None:
            self._metrics.outages.end(COMMITS)
            self._intake.partitions.commit(pending.batch, pending.metadata)
            seconds = time.monotonic() - pending.began
            self._collector.pacing.committed(self._session.counters.last_commit_seconds, seconds)
            if pending.is_scored_by_model:
                self._outage.end()
            self._batch_metrics.observe(pending)

    def _dead_letter_rejected(self, error: RecordRejected) -> None:
        """Publish the last batch again with dead letters for the records that the broker rejects. Raises Aborted."""
        pending = self._pending
        if pending is None or self._intake.is_stale(pending.batch):
            raise error
        self._pending = replace(pending, scored=self._rejected.publish(pending, error))

    def _fail(self, error: Aborted, now: float) -> None:
        """Record a failure, so that the loop recovers after a delay. Raises Fatal if a recovery is not possible."""
        pending = self._backoff.failed(error, now, self._session.counters.commits)
        if not isinstance(pending, Evicted):
            self._metrics.outages.begin(COMMITS, pending)

    def _recover(self, error: Aborted) -> None:
        """Return to the committed offsets. Replace a client that is no longer in the group. Wait while no broker is available.

        Raises:
            Aborted: the group rejects this member, or a stop was requested during the wait. After a stop, the next owner of the
                partitions resolves the open transaction.
        """
        log.warning("recovering: %s", error)
        self._traces.fail(error)
        self._progress.recoveries += 1
        self._pending = None
        self._session.recover()
        if isinstance(error, MemberLost):
            self._intake.rejoin()
        else:
            if isinstance(error, Evicted):
                self._intake.poll_group(GROUP_POLL_SECONDS)
            self._intake.rewind()
        if not isinstance(error, Evicted | Fenced | MemberLost):
            self._narrow_targets()
        self._backoff.clear_pending()

    def _abandon(self, error: Abandoned) -> bool:
        """Commit the batches that were published before the abandoned batch. Return whether this succeeded.

        The next owner of the partitions scores the abandoned batch.
        """
        log.warning("%s", error)
        self._traces.fail(error)
        return self._finish(commit_passed=False)

    def _narrow_targets(self) -> None:
        """Use at most as many partitions of the output and dead-letter topics as these topics have now.

        Otherwise every batch would fail after a topic was recreated with fewer partitions.
        """
        targets = self._targets()
        if targets is not None and self._scorer.reduce_partitions(*targets):
            counts = ", ".join(f"{target.topic} {target.partitions}" for target in targets)
            log.warning("the output topics have fewer partitions now; the number of partitions in use is: %s", counts)

    def _finish(self, *, commit_passed: bool = True) -> bool:
        """Wait for the outcome of the last publish, and commit all positions. Return whether both succeeded.

        If `commit_passed` is False, positions after transaction markers at the end of partitions are not committed.
        """
        try:
            if commit_passed:
                self._commit_passed()
            self._session.checkpoint()
        except Aborted as error:
            log.warning(
                "the outcome of the last transaction is unknown; the next owner of the partitions resolves it: %s", error
            )
            return False
        return True

    def _report_serving(self) -> None:
        serving = self._versions.serving
        champion = self._versions.champion
        revision = champion.resolution.revision
        devices = {servable.loaded.model.device for servable in serving.values()}
        self._metrics.serving([servable.encoder.provenance for servable in serving.values()], revision, devices)
        canary = self._versions.canary
        beside = "" if canary is None or not canary.percent else f", and {canary.digest} to {canary.percent} % of the keys"
        log.info("serving %s (revision %d)%s", champion.label, revision, beside)
