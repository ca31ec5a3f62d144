"""One worker of `scorer run`: start-up, main loop and shutdown.

No event is consumed before a version of the model is ready. The start-up waits while a dependency is unavailable. Each step of
the start-up registers the function that reverts the step. The shutdown calls these functions in reverse order. A crash at any
time loses no event.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import inf

from publisher.errors import Abandoned, Aborted, Fatal
from publisher.kafka.certificate_expiry import CertificateExpiry
from publisher.kafka.connection import connect
from publisher.kafka.skipped_records import SkippedRecords
from publisher.runtime import watchdog
from publisher.runtime.abandonable_call import call_in_thread
from publisher.runtime.context import Context
from publisher.runtime.dependency_wait import BROKERS, DependencyWaiter
from publisher.runtime.health import HealthServer
from publisher.runtime.malloc_tuning import limit_malloc_arenas, start_gc_thread
from publisher.runtime.stop_signals import stop_on_signals
from publisher.transactions.counters import Counters
from publisher.transactions.offset_commits import GroupCommits
from scorer.crash_isolation.in_flight_journal import InFlightJournal
from scorer.crash_isolation.quarantine import Quarantine
from scorer.crash_isolation.trial_load import TrialLoads
from scorer.models.loaded_model import loader, prepare_tables
from scorer.models.version_manager import VersionManager
from scorer.observability.foreign_members import ForeignMembers
from scorer.observability.liveness import WorkerProgress, not_live, not_ready
from scorer.observability.metrics import Metrics
from scorer.observability.traces import traces as configured_traces
from scorer.service import preflight, worker_variants
from scorer.service.broker_connections import BrokerConnections
from scorer.service.replica_claim import ReplicaGuard
from scorer.service.report_status import StartUpReporter, StatusReporter, status_reporter
from scorer.settings import Settings
from scorer.worker.retry_backoff import replica_conflict
from scorer.worker.worker import Worker

log = logging.getLogger(__name__)

DRAIN_SECONDS = 3.0
"""The time limit for scoring a batch after a stop is requested. Repeated runs of a failing model could otherwise take hours."""
LONG_START_SECONDS = 15.0  # after this time since the check of the brokers, status records report what the start-up does
NOT_IN_GROUP = "not yet in the consumer group"
ConnectBrokers = Callable[[Settings, DependencyWaiter, SkippedRecords], BrokerConnections]

SWITCH_SECONDS = 5e-5  # while another thread loads a model, the scoring thread must not wait the default 5 ms for the GIL


def run(
    settings: Settings,
    on_serving: Callable[[str], None] = lambda _: None,
    journal: InFlightJournal | None = None,
    workers: int = 1,
    connect_brokers: ConnectBrokers = BrokerConnections,
) -> None:
    """Score events until SIGTERM or SIGINT. Call this function in the main thread of a separate process.

    Args:
        settings: the settings of this worker. With ShadowWorkerSettings, the process is a worker of a shadow.
        on_serving: called when the start-up is complete, with the address of the HTTP server for health and metrics.
        journal: the in-flight journal: the events that this process is scoring. The journal outlives the process.
        workers: the number of processes that share the memory limit of this process, including this one.
        connect_brokers: creates the connections to the Kafka cluster.

    Raises:
        Fatal: The worker cannot start or cannot continue.
    """
    os.nice(worker_variants.niceness(settings))
    limit_malloc_arenas()
    sys.setswitchinterval(SWITCH_SECONDS)
    service = Service(settings, journal or InFlightJournal(), workers, connect_brokers)
    stop_on_signals(service.stop)

    def start_watching(address: str) -> None:
        watchdog.watch(service.hangs)
        start_gc_thread()
        on_serving(address)

    service.run(start_watching)


@dataclass(frozen=True)
class _RunningWorker:
    """A worker after its start-up: the scoring loop, the commits, the writer of status records and the replica guard."""

    worker: Worker
    commits: GroupCommits
    reporter: StatusReporter
    guard: ReplicaGuard

    def tick(self) -> None:
        """Pass the current member id to the replica guard, and write a status record if one is due.

        Only the scoring thread may call this method.
        """
        # That thread may replace the consumer at any time.
        self.guard.member = self.commits.consumer.memberid() or ""
        self.reporter.tick(time.monotonic())


class Service:
    """The lifecycle of one worker: start-up, scoring until `stop`, shutdown.

    Args:
        settings: the settings of the worker.
        journal: the in-flight journal.
        workers: the number of processes that share the memory limit, including this one.
        connect_brokers: a function that creates the connections to the Kafka cluster.
    """

    def __init__(
        self,
        settings: Settings,
        journal: InFlightJournal,
        workers: int = 1,
        connect_brokers: ConnectBrokers = BrokerConnections,
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._workers = workers
        self._stopping = threading.Event()
        self._stopped_at = inf  # monotonic seconds
        self._progress = WorkerProgress(time.monotonic())
        skipped = SkippedRecords(log)
        self._metrics = Metrics(Counters(), settings.model, skipped)
        self._metrics.registry.register(CertificateExpiry("scorer", settings.certificate_files))
        self._waiter = DependencyWaiter(
            partial(connect, settings.kafka, settings.owner, preflight.ANSWER_SECONDS),
            self._report_alive,
            self._metrics.outages,
            self._stopping,
        )
        self._drain_context = Context(beat=self._report_alive, raise_if_cancelled=self._raise_if_overdue)
        self._brokers = connect_brokers(settings, self._waiter, skipped)
        self._hang_seconds = settings.kafka.transaction_timeout_ms / 1_000

    def stop(self) -> None:
        """Request the shutdown. Any thread may call this method, but no signal handler may; see `stop_signals.py`."""
        if not self._stopping.is_set():
            self._stopped_at = time.monotonic()
        self._stopping.set()

    def hangs(self) -> str | None:
        """Return a description if the main thread has made no progress for twice the transaction timeout; None otherwise."""
        return not_live(self._progress, 2 * self._hang_seconds)

    def run(self, on_serving: Callable[[str], None]) -> None:
        """Start the worker, score events until `stop` is called, and shut the worker down.

        Args:
            on_serving: called when the start-up is complete, with the address of the HTTP server for health and metrics.

        Raises:
            Fatal: The worker cannot start or cannot continue.
        """
        with ExitStack() as shutdown:
            health = self._start_health_server()
            shutdown.callback(health.close)
            log.info("starting; health and metrics on http://%s", health.address)
            try:
                with ExitStack() as stop:
                    running = self._start_up(stop)
                    on_serving(health.address)
                    committed = self._main_loop(running)
                outcome = "everything scored is committed" if committed else "the outcome of its last transaction is unknown"
                log.info("the scorer has stopped; %s", outcome)
            except Aborted:
                log.info("the scorer has stopped before the first event")

    def _report_alive(self) -> None:
        """Record a heartbeat, unless the stop was requested more than DRAIN_SECONDS ago."""
        # Without heartbeats, the watchdog ends the worker before the supervisor kills it: DRAIN_SECONDS, twice the transaction
        # timeout and the watchdog's CHECK_SECONDS together are less than the time that the supervisor waits.
        if not self._is_overdue():
            self._progress.alive()

    def _is_overdue(self) -> bool:
        return time.monotonic() - self._stopped_at >= DRAIN_SECONDS

    def _raise_if_overdue(self) -> None:
        if self._is_overdue():
            raise Abandoned(
                f"the batch in progress was not scored within {DRAIN_SECONDS:g} s after the stop; the next owner scores it"
            )

    def _start_health_server(self) -> HealthServer:
        """Start the HTTP server for probes and metrics. It starts first and closes last, so that it always answers probes."""
        progress = self._progress
        metrics = self._metrics
        return HealthServer(
            self._settings.http.listen,
            metrics.registry,
            lambda: not_live(progress, self._hang_seconds),
            lambda: not_ready(metrics.outages, metrics.session.counters, progress),
        )

    def _start_up(self, stop: ExitStack) -> _RunningWorker:
        """Create the worker and its background threads, and register the shutdown of each with `stop`.

        Raises:
            Aborted: A stop was requested during the start-up.
            Fatal: The worker cannot start.
        """
        settings = self._settings
        brokers = self._brokers
        metrics = self._metrics
        progress = self._progress
        tables = brokers.open_tables() if settings.tables else None
        if tables is not None:
            stop.callback(tables.close)
            metrics.tables.tables = tables
        loading_library = call_in_thread("backend", lambda: loader(settings, tables=tables))  # while the brokers answer
        progress.state = "asking the brokers for the topics"
        start = self._waiter.retry_until_available(lambda: brokers.check_start(self._stopping))
        metrics.set_input_retentions(start.input_retention)
        began = time.monotonic()
        start_up = StartUpReporter(brokers.open_status_producer, settings, lambda: self._waits_for(began))
        stop.callback(start_up.close)
        load = prepare_tables(self._waiter.wait_for(loading_library), tables)
        traces = configured_traces(settings)

        commits = brokers.open_commits()
        session = brokers.open_session(commits, start.largest_batch)  # it initializes producers while the model loads
        stop.callback(session.close)  # last: the next owner of our partitions waits for open transactions
        metrics.session.counters = session.counters

        quarantine = Quarantine(settings, self._journal, load, self._drain_context, tables)
        stop.callback(quarantine.close)  # after the versions: their models may be in its sandbox
        versions = self._load_version(quarantine, stop)

        progress.state = "beginning transactions"
        # the transactions of a predecessor are decided before the first event is read
        self._waiter.wait_for(call_in_thread("session-open", session.open))
        if tables is not None:
            progress.state = "restoring the tables"
            tables.restore(self._waiter.context.check)
        progress.state = NOT_IN_GROUP
        stop.callback(traces.close)  # after the intake: no batch is in flight then
        listener = brokers.listen_for_moves(versions.poll_now)
        stop.callback(listener.close)
        intake = brokers.open_intake(commits, session)
        stop.callback(intake.close)  # it leaves the group at once, so that other members take over
        guard = brokers.guard_replica(start.dead_members)
        stop.callback(guard.close)
        start_up.end()
        producer = brokers.open_status_producer()
        reporter = status_reporter(
            settings, producer, progress, session.counters, versions, metrics.outages, lambda: guard.lost, tables
        )
        stop.callback(reporter.close)  # first: the last status record reports the stop
        worker = Worker(
            settings,
            intake=intake,
            session=session,
            versions=versions,
            scorer=worker_variants.batch_scorer(settings, start),
            quarantine=quarantine,
            metrics=metrics,
            progress=progress,
            traces=traces,
            targets=brokers.current_targets,
            assigner=worker_variants.arm_assigner(settings, quarantine),
            context=self._drain_context,
            tables=tables,
        )
        return _RunningWorker(worker, commits, reporter, guard)

    def _waits_for(self, began: float) -> str | None:
        """Return what the start-up waits for: an unavailable dependency or, after LONG_START_SECONDS, its current step."""
        is_long = time.monotonic() - began >= LONG_START_SECONDS
        return self._metrics.outages.summary() or (self._progress.state if is_long else None)

    def _load_version(self, quarantine: Quarantine, stop: ExitStack) -> VersionManager:
        """Create the version manager, wait until it has a version that is ready to serve, and return it."""
        settings = self._settings
        metrics = self._metrics
        trials = TrialLoads(settings, self._journal, self._workers, lambda outcome: metrics.trials.labels(outcome).inc())
        metrics.export_load_age(trials.age_seconds)
        versions = VersionManager(
            settings,
            quarantine.loading,
            metrics.outages,
            on_refused=lambda _: metrics.refused.inc(),
            lethal=quarantine.refusal_reason,
            candidate=worker_variants.candidate_selector(settings),
            guard=trials,
        )
        stop.callback(versions.close)
        metrics.channel_refused.set_function(lambda: versions.refuses_channel)
        self._progress.state = "making a version of the model ready"
        self._waiter.retry_until_available(versions.start)
        return versions

    def _main_loop(self, running: _RunningWorker) -> bool:
        """Score events until the worker must stop. Return whether every score is committed."""
        log.info("scoring %s %s", ", ".join(self._settings.input.topics), self._settings.delivery)
        foreign_members = ForeignMembers(self._settings.name, self._brokers.group_members, self._metrics.foreign_members.set)
        try:
            return running.worker.run(lambda: self._must_stop(running.guard), lambda: self._tick(running, foreign_members))
        except Fatal:
            self._brokers.check_rights()
            raise
        finally:
            self._progress.joined = False
            self._progress.state = "stopping"

    def _tick(self, running: _RunningWorker, foreign_members: ForeignMembers) -> None:
        running.tick()
        progress = self._progress
        partitions = progress.lag.keys() | progress.paused.keys()
        foreign_members.tick(
            time.monotonic(),
            joined=progress.joined,
            partitions=partitions,
            brokers_answer=not self._metrics.outages.is_unavailable(BROKERS),
        )
        if not progress.joined:
            progress.state = foreign_members.summary or NOT_IN_GROUP

    def _must_stop(self, guard: ReplicaGuard) -> bool:
        """Return whether a stop is requested.

        Raises:
            Fatal: The consumer has reported a fatal error, or another process uses this worker's replica name.
        """
        self._brokers.raise_fatal_error()
        if guard.lost:
            raise replica_conflict("another live process", self._settings.replica, self._settings.name)
        return self._stopping.is_set()
