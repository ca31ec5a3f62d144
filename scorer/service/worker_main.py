"""One worker of `scorer run`: start-up, main loop, shutdown.

Nothing is consumed before a version of the model is ready, and unavailable dependencies are waited for. Each step of the
start-up pushes its inverse onto a stack; the shutdown runs the stack backwards. A crash at any point is safe.
"""

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Consumer, KafkaError, Producer

from model_registry.channels import roles
from model_registry.channels.roles import Role
from publisher.errors import Aborted, Fatal
from publisher.kafka import clients as kafka
from publisher.kafka.connection import connect, refused
from publisher.kafka.error_codes import NO_CONNECTION
from publisher.kafka.groups import GroupMember
from publisher.kafka.sandboxed_reads import sandboxed
from publisher.kafka.skipped_records import SkippedRecords
from publisher.runtime import watchdog
from publisher.runtime.abandonable_call import call_in_thread
from publisher.runtime.dependencies import DependencyWaiter
from publisher.runtime.health import HealthServer
from publisher.runtime.malloc_tuning import limit_malloc_arenas, start_gc_thread
from publisher.transactions.at_least_once import CheckpointSession
from publisher.transactions.exactly_once import TransactionSession
from publisher.transactions.offset_commits import GroupCommits, OnCommit
from publisher.transactions.protocol import Counters, Session
from publisher.transactions.transactional_ids import transactional_ids
from publisher.transactions.wait_for_decided import OpenTransactions
from scorer.consumer.consumer import EventConsumer
from scorer.consumer.fence_dead_owners import fence_dead_owners, wait_for_foreign_transactions
from scorer.consumer.sandboxed_partitions import SandboxedInputPartitions
from scorer.consumer.start_offsets import StartPositions
from scorer.crash_isolation.in_flight_journal import InFlightJournal
from scorer.crash_isolation.quarantine import Quarantine
from scorer.crash_isolation.trial_load import TrialLoads
from scorer.fetch.native_source import plugin
from scorer.models.loaded_model import loader
from scorer.models.servable import LoadPackage
from scorer.models.version_manager import VersionManager
from scorer.observability import foreign_members
from scorer.observability.channel_move_listener import ChannelMoveListener
from scorer.observability.foreign_members import ForeignMembers
from scorer.observability.liveness import WorkerProgress, not_live, not_ready
from scorer.observability.metrics import Metrics
from scorer.observability.status_record import StatusReporter
from scorer.observability.traces import traces as tracing
from scorer.service import preflight
from scorer.service.preflight import Start
from scorer.service.replica_claim import ReplicaGuard, guard_of
from scorer.service.status_reporter import reporter
from scorer.settings import Settings
from scorer.worker.canary_routing import ArmAssigner
from scorer.worker.retry_backoff import replica_conflict
from scorer.worker.score_batch import BatchScorer
from scorer.worker.worker import Worker

log = logging.getLogger(__name__)

LOOK_UP_SECONDS = 5.0  # a batch waits so long for the schemas of its events: heartbeats and revocations wait as long
NOT_IN_GROUP = "not yet in the consumer group"
SWITCH_SECONDS = 5e-5  # a model is loaded beside the scoring thread, which must not wait 5 ms for the interpreter each time


@dataclass(frozen=True)
class Parts:
    """The factories of broker clients, and of the parts that a shadow replaces.

    There is no setting for these: tests pass their own.
    """

    may_begin: Callable[[Settings, threading.Event], Start] = preflight.may_begin
    name_missing_rights: Callable[[Settings], None] = preflight.name_missing_rights
    make_consumer: Callable[..., Consumer] = kafka.consumer
    make_producer: Callable[..., Producer] = kafka.transactional_producer
    make_session: Callable[..., TransactionSession] = TransactionSession
    make_scoring: Callable[..., BatchScorer] = BatchScorer
    make_assigning: Callable[[Quarantine], ArmAssigner] = ArmAssigner
    candidate: Callable[[Sequence[Role]], Role | None] = roles.find_canary
    make_beginnings: Callable[..., StartPositions] = StartPositions
    make_intake: Callable[..., EventConsumer] = EventConsumer
    make_notices: Callable[..., ChannelMoveListener] = ChannelMoveListener
    make_guard: Callable[..., ReplicaGuard] = guard_of
    make_status_producer: Callable[..., Producer] = kafka.plain_producer
    ask_for_members: Callable[[Settings], list[GroupMember]] = foreign_members.ask


def run(
    settings: Settings,
    parts: Parts | None = None,
    on_serving: Callable[[str], None] = lambda _: None,
    in_hand: InFlightJournal | None = None,
    workers: int = 1,
) -> None:
    """Score until SIGTERM or SIGINT, in the main thread of a process of its own. `on_serving(address of health and metrics)` is
    called when that begins. `in_hand` is the note that outlives this process. `workers`: the processes that share this one's
    memory limit, this one included. Raises Fatal where it cannot begin or go on."""
    limit_malloc_arenas()
    sys.setswitchinterval(SWITCH_SECONDS)
    service = Service(settings, parts or Parts(), in_hand or InFlightJournal(), workers)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())

    def serving(address: str) -> None:
        watchdog.watch(service.hangs)
        start_gc_thread()
        on_serving(address)

    service.run(serving)


@dataclass(frozen=True)
class _Running:
    """A running scorer: its worker, and the functions that are called about once a second."""

    worker: Worker
    commits: GroupCommits
    telling: StatusReporter
    guard: ReplicaGuard

    def tick(self) -> None:
        """Run the periodic functions. Only this thread may query the consumer: it closes and replaces it."""
        self.guard.member = self.commits.consumer.memberid() or ""
        self.telling.tick(time.monotonic())


class Service:
    """One scorer, from its start to its end."""

    def __init__(self, settings: Settings, parts: Parts, in_hand: InFlightJournal, workers: int = 1) -> None:
        self._settings = settings
        self._parts = parts
        self._in_hand = in_hand
        self._workers = workers
        self._stopping = threading.Event()
        self._progress = WorkerProgress(time.monotonic())
        self._skipped = SkippedRecords(log)
        self._metrics = Metrics(Counters(), settings.model, self._skipped)
        self._watch = kafka.ErrorWatch()
        self._waiter = DependencyWaiter(
            partial(connect, settings.kafka, settings.owner, preflight.ANSWER_SECONDS),
            self._progress.alive,
            self._metrics.outages,
            self._stopping,
        )
        self._hang_seconds = settings.kafka.transaction_timeout_ms / 1_000

    def stop(self) -> None:
        """End in order, from any thread or signal handler. Idempotent."""
        self._stopping.set()

    def hangs(self) -> str | None:
        """Return the part that made no progress for too long."""
        return not_live(self._progress, 2 * self._hang_seconds)

    def run(self, on_serving: Callable[[str], None]) -> None:
        """Score until `stop`. `on_serving(address of health and metrics)` is called when that begins. Raises Fatal."""
        with ExitStack() as shutdown:
            address = self._listen(shutdown)
            log.info("starting; health and metrics on http://%s", address)
            try:
                with ExitStack() as stop:
                    running = self._startup(stop)
                    on_serving(address)
                    self._main_loop(running)
                log.info("stopped; everything scored is committed")
            except Aborted:
                log.info("stopped before the first event")

    def _listen(self, shutdown: ExitStack) -> str:
        """Start the HTTP server and return its address. It starts first and closes last: probes see the whole life."""
        progress, metrics = self._progress, self._metrics
        health = HealthServer(
            self._settings.http.listen,
            metrics.registry,
            lambda: not_live(progress, self._hang_seconds),
            lambda: not_ready(metrics.outages, metrics.session.counters, progress),
        )
        shutdown.callback(health.close)
        return health.address

    def _startup(self, stop: ExitStack) -> "_Running":
        """Return the running scorer with its watchers.

        Raises Aborted if a stop is requested meanwhile, Fatal if it cannot start.
        """
        settings, parts, progress = self._settings, self._parts, self._progress
        waiter = self._waiter
        metrics = self._metrics
        finding = call_in_thread("backend", lambda: loader(settings))  # imports a library while the broker answers
        progress.state = "asking the brokers for the topics"
        start = waiter.retry_until_available(lambda: parts.may_begin(settings, self._stopping))
        output, dead = start.output, start.dead_letter
        load = finding.result()
        traces = tracing(settings)

        commits = GroupCommits(self._consumer)
        session = self._session(commits, min(output.max_bytes, dead.max_bytes))  # begins while the model loads
        stop.callback(session.close)  # last: the next owner of our partitions waits for what is still open
        metrics.session.counters = session.counters

        quarantine, versions = self._versions(stop, load)
        progress.state = "beginning transactions"
        session.open()  # what a predecessor left open is decided before we read
        progress.state = NOT_IN_GROUP
        stop.callback(traces.close)  # no batch is in hand any more
        notices = parts.make_notices(settings, versions.poll_now, skipped=self._skipped)
        stop.callback(notices.close)
        intake = self._intake(commits, session)
        stop.callback(intake.close)  # leaves the group at once, so that others take over
        guard = parts.make_guard(settings, start.dead_members)
        stop.callback(guard.close)
        producer = parts.make_status_producer(settings.kafka, settings.owner)
        telling = reporter(settings, producer, progress, session.counters, versions, lambda: guard.lost)
        stop.callback(telling.close)  # first: the fleet is told that we stop
        scoring = parts.make_scoring(settings, output, dead, look_up_seconds=LOOK_UP_SECONDS)
        targets = partial(preflight.targets_now, settings)
        worker = Worker(
            settings,
            intake=intake,
            session=session,
            versions=versions,
            scorer=scoring,
            quarantine=quarantine,
            metrics=metrics,
            progress=progress,
            traces=traces,
            targets=targets,
            assigner=parts.make_assigning(quarantine),
        )
        return _Running(worker, commits, telling, guard)

    def _versions(self, stop: ExitStack, load: LoadPackage) -> tuple[Quarantine, VersionManager]:
        """Return the events in flight of a dead predecessor, and the versions of the model, one of which is ready."""
        settings, metrics = self._settings, self._metrics
        quarantine = Quarantine(settings, self._in_hand, load, self._progress.alive)
        stop.callback(quarantine.close)  # the models may live in its examiner
        trials = TrialLoads(settings, self._in_hand, self._workers, lambda outcome: metrics.trials.labels(outcome).inc())
        metrics.loading(trials.age_seconds)
        versions = VersionManager(
            settings,
            quarantine.loading,
            metrics.outages,
            on_refused=lambda _: metrics.refused.inc(),
            lethal=quarantine.lethal,
            candidate=self._parts.candidate,
            guard=trials,
        )
        stop.callback(versions.close)
        metrics.channel_refused.set_function(lambda: versions.refuses_channel)
        self._progress.state = "making a version of the model ready"
        self._waiter.retry_until_available(versions.start)
        return quarantine, versions

    def _main_loop(self, running: "_Running") -> None:
        log.info("scoring %s %s", ", ".join(self._settings.input.topics), self._settings.delivery)
        try:
            each_second = partial(self._each_second, running, self._foreign_members())
            running.worker.run(lambda: self._told_to_stop(running.guard), each_second)
        except Fatal:
            self._parts.name_missing_rights(self._settings)
            raise
        finally:
            self._progress.joined, self._progress.state = False, "stopping"

    def _foreign_members(self) -> ForeignMembers:
        show = self._metrics.foreign_members.set
        return ForeignMembers(self._settings.name, partial(self._parts.ask_for_members, self._settings), show)

    def _each_second(self, running: "_Running", watch: ForeignMembers) -> None:
        running.tick()
        progress = self._progress
        watch.tick(time.monotonic(), joined=progress.joined, partitions=progress.lag.keys() | progress.paused.keys())
        if not progress.joined:
            progress.state = watch.told or NOT_IN_GROUP

    def _told_to_stop(self, guard: ReplicaGuard) -> bool:
        """Return whether a stop is requested.

        Raises:
            Fatal: The broker rejects this client for good, or another process has our replica.
        """
        if self._watch.fatal is not None:
            raise refused(self._settings.kafka, self._watch.fatal)
        if guard.lost:
            raise replica_conflict("another live process", self._settings.replica, self._settings.name)
        return self._stopping.is_set()

    def _consumer(self, told: OnCommit) -> Consumer:
        """Return a consumer that joins the group when it is subscribed. `told` gets the results of its commits."""
        settings = self._settings
        return self._parts.make_consumer(settings.kafka, settings.owner, settings.name, self._on_client_error, told, plugin())

    def _on_client_error(self, error: KafkaError) -> None:
        """Handle an error of the consumer; probe the brokers if it has lost them all."""
        self._watch(error)
        if error in NO_CONNECTION:
            self._waiter.start_probe()

    def _session(self, commits: GroupCommits, batch_bytes: int) -> Session:
        settings = self._settings
        if settings.delivery == "at-least-once":
            checkpoints = partial(kafka.checkpoint_producer, settings.kafka, settings.owner, batch_bytes, plugin=plugin())
            return CheckpointSession(
                lambda failed, singly: checkpoints(failed, singly=singly), commits, confirm_seconds=self._hang_seconds
            )

        def producer(name: str) -> Producer:
            made = self._parts.make_producer(settings.kafka, name, settings.owner, batch_bytes, plugin())
            return kafka.warm_up(made, settings.output.topic)

        read = settings.input.topics
        opened = OpenTransactions(settings.kafka, settings.owner, settings.answer_topics, settings.name, read)
        return self._parts.make_session(
            producer,
            transactional_ids(settings.transactional_prefix(settings.owner)),
            transaction_seconds=self._hang_seconds,
            context=self._waiter.context,
            wait_until_decided=partial(wait_for_foreign_transactions, settings, opened.wait),
        )

    def _intake(self, commits: GroupCommits, session: Session) -> EventConsumer:
        settings = self._settings
        sandbox = sandboxed(settings.kafka, settings.owner, settings.input.expanded_bytes)
        return self._parts.make_intake(
            commits.consumer,
            self._settings.input.topics,
            self._parts.make_beginnings(self._settings, self._waiter.context.check, self._skipped),
            session,
            fence=partial(fence_dead_owners, self._settings),
            waiting=self._waiter.context.check,
            renew=commits.renew,
            offsets_command=settings.offsets_command,
            suspects=SandboxedInputPartitions(sandbox, settings.owner),
        )
