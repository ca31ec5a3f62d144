"""`scorer run`: start-up, main loop, shutdown.

Start: health and metrics, topics, model, every transactional id, then the consumer group: nothing is consumed before a version
is ready, and what is away is waited for. Stop: the batch in hand is finished or given up, the group is left at once, the last
status is told. A crash anywhere in between is safe.
"""

import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from publisher.errors import Aborted, Fatal, NotAllowed
from publisher.kafka import clients as kafka
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.connection import connect, refused
from publisher.process.health import HealthServer
from publisher.process.memory import few_arenas, rare_collections
from publisher.session import fencing
from publisher.session.at_least_once import CheckpointSession
from publisher.session.call_thread import call_apart
from publisher.session.exactly_once import TransactionSession
from publisher.session.group_commits import GroupCommits
from publisher.session.open_transactions import OpenTransactions
from publisher.session.protocol import Counters, Session
from publisher.session.transactional_ids import transactional_ids
from scorer import backends, topics
from scorer.crashes.aftermath import Aftermath
from scorer.crashes.in_hand import InHand
from scorer.intake.beginnings import Beginnings
from scorer.intake.consumer import Intake
from scorer.intake.patience import ANSWER_SECONDS, Patience
from scorer.intake.takeover import fence_the_dead, wait_for_the_living
from scorer.loop.loop import Loop
from scorer.loop.recovery import taken
from scorer.loop.scoring import Scoring, Target
from scorer.observe.metrics import Metrics
from scorer.observe.notices import Notices
from scorer.observe.progress import Progress
from scorer.observe.reporter import Reporter
from scorer.observe.status import HEARTBEAT_SECONDS, SILENT_SECONDS, Twins
from scorer.observe.traces import traces as tracing
from scorer.process.workers import HANGING
from scorer.servables.manager import VersionManager
from scorer.servables.servable import make
from scorer.settings import Settings

log = logging.getLogger(__name__)

SWITCH_SECONDS = 5e-5  # a model is loaded beside the scoring thread, which must not wait 5 ms for the interpreter each time
SECOND_LOOK_SECONDS = 1.0
LONG_SECONDS = 30.0  # of a transaction: as long as the alert ScorerOpenTransaction waits
LISTEN_SECONDS = 0.5  # between looks whether the group still counts a process of our name
TELLING_SECONDS = 1.5 * HEARTBEAT_SECONDS  # one that was heard so lately lives


@dataclass(frozen=True)
class Parts:
    """What a scorer is put together from. There is no setting for these: tests of faults hand in their own."""

    make_producer: Callable[[KafkaSettings, str, str, int], Producer] = kafka.transactional_producer
    make_session: Callable[..., TransactionSession] = TransactionSession
    make_intake: Callable[..., Intake] = Intake


def run(
    settings: Settings,
    parts: Parts | None = None,
    on_serving: Callable[[str], None] = lambda _: None,
    in_hand: InHand | None = None,
) -> None:
    """Score until SIGTERM or SIGINT; `on_serving(address of health and metrics)` is called when that begins. `in_hand` is the
    note that outlives this process.

    Raises Fatal where it cannot begin or go on.
    """
    few_arenas()
    sys.setswitchinterval(SWITCH_SECONDS)
    stopping = _stop_signals()
    progress = Progress(time.monotonic())
    metrics = Metrics(Counters(), settings.model)
    health = HealthServer(settings.http.listen, metrics.registry, _live(settings, progress), _ready(metrics, progress))
    log.info("starting; health and metrics on http://%s", health.address)
    with contextlib.closing(health):
        try:
            told = partial(on_serving, health.address)
            _run(settings, parts or Parts(), stopping, progress, metrics, told, in_hand or InHand())
        except Aborted:
            log.info("stopped before the first event")


def _run(
    settings: Settings,
    parts: Parts,
    stopping: threading.Event,
    progress: Progress,
    metrics: Metrics,
    on_serving: Callable[[], None],
    in_hand: InHand,
) -> None:
    """Begin, and score. Raises Aborted where a stop is asked for before that, Fatal as `run`."""
    watch = kafka.ErrorWatch()
    waiting = Patience(settings.kafka, settings.owner, progress, metrics.outages, stopping)
    finding = call_apart("backend", lambda: _backend(settings))  # imports a library while the broker answers
    twins = Twins()
    progress.state = "asking the brokers for the topics"
    output, dead = waiting.repeated(lambda: _broker_allows(settings, twins, stopping))
    backend = finding.result()
    traces = tracing(settings)
    commits = _member(settings, waiting.hear(watch))
    largest = min(output.max_bytes, dead.max_bytes)
    making = partial(make, backend=backend, settings=settings)
    aftermath = Aftermath(settings, in_hand, making, progress.alive)
    with contextlib.closing(_session(settings, parts, commits, largest, waiting)) as session:  # begins while the model loads
        metrics.session.counters = session.counters
        versions = VersionManager(settings, aftermath.making, metrics.outages, on_refused=lambda _: metrics.refused.inc())
        with contextlib.closing(aftermath), contextlib.closing(versions):
            progress.state = "making a version of the model ready"
            waiting.repeated(versions.start)
            progress.state = "beginning transactions"
            session.open()
            progress.state = "not yet in the consumer group"
            intake = _intake(settings, parts, commits, session, waiting)
            scoring = Scoring(settings, output, dead)
            loop = Loop(settings, intake, session, versions, scoring, metrics, progress, traces, aftermath)
            notices = Notices(settings, twins, versions.hurry)
            with contextlib.closing(traces), contextlib.closing(notices), contextlib.closing(intake):
                reporter = Reporter(settings, loop.progress, session.counters, versions, twins)
                _serve(settings, loop, reporter, lambda: _stop(settings, stopping, watch, twins), on_serving)
    log.info("stopped; everything scored is committed")


def _serve(
    settings: Settings,
    loop: Loop,
    reporter: Reporter,
    stop: Callable[[], bool],
    on_serving: Callable[[], None],
) -> None:
    """The main loop, with what watches it and tells of it."""
    log.info("scoring %s %s", ", ".join(settings.input.topics), settings.delivery)
    threading.Thread(target=_watch, args=(settings, loop), name="watchdog", daemon=True).start()
    rare_collections()
    on_serving()
    try:
        loop.run(stop, reporter.tick)
    except Fatal:
        _name_what_is_missing(settings)
        raise
    finally:
        loop.progress.joined, loop.progress.state = False, "stopping"
        reporter.close()


def _stop_signals() -> threading.Event:
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping


def _stop(settings: Settings, stopping: threading.Event, watch: kafka.ErrorWatch, twins: Twins) -> bool:
    """Whether the loop ends: it was told to. Raises Fatal where the broker refuses this client for good, or our replica is
    another's."""
    if watch.fatal is not None:
        raise refused(settings.kafka, watch.fatal)
    if twins.older:
        raise taken("an older process", settings.replica, settings.name)
    return stopping.is_set()


def _broker_allows(settings: Settings, twins: Twins, stopping: threading.Event) -> tuple[Target, Target]:
    """Output and dead-letter topics, once it is known that nothing is missing and no twin is alive. Raises Fatal."""
    admin = connect(settings.kafka, settings.owner, ANSWER_SECONDS)
    targets = _targets(settings, admin)
    fencing.may_join(admin, settings.kafka, settings.name)
    _refuse_a_twin(settings, admin, twins, stopping)
    return targets


def _targets(settings: Settings, admin: AdminClient) -> tuple[Target, Target]:
    """Output and dead-letter topics as they are. Raises Fatal where a topic is missing or unfit: nothing is created here."""
    found = topics.describe(admin, settings.kafka, topics.required(settings))
    if topics.faults(settings, found):  # a broker that has just come up does not know everything yet: look again
        time.sleep(SECOND_LOOK_SECONDS)
        found = topics.describe(admin, settings.kafka, topics.required(settings))
    if wrong := topics.faults(settings, found):
        raise Fatal("; ".join(wrong), "scorer check CONFIG --create makes what is missing", 2)
    output, dead = found[settings.output.topic], found[settings.dead_letter.topic]
    return Target(output.name, output.partitions, output.max_bytes), Target(dead.name, dead.partitions, dead.max_bytes)


def _name_what_is_missing(settings: Settings) -> None:
    """Raises NotAllowed with the rights that are missing, where that is why the scorer cannot go on and the broker tells."""
    try:
        admin = connect(settings.kafka, settings.owner, SECOND_LOOK_SECONDS)
        topics.describe(admin, settings.kafka, topics.required(settings))
        fencing.may_join(admin, settings.kafka, settings.name)
    except NotAllowed:
        raise
    except Fatal as error:
        log.info("whether a right is missing is not known: %s", error)


def _refuse_a_twin(settings: Settings, admin: AdminClient, twins: Twins, stopping: threading.Event) -> None:
    """Return when no live process has our replica. Raises Fatal (3) where one goes on telling its status.

    A busy group may count a dead process long after its session: one that tells nothing is fenced, not waited for.
    """
    if not _in_group(settings, admin):
        return
    log.info("replica %s is still in the group; listening whether it lives", settings.replica)
    began = time.monotonic()
    with contextlib.closing(Notices(settings, twins)) as notices:
        while not stopping.wait(LISTEN_SECONDS) and _in_group(settings, admin):
            now = time.monotonic()
            silent = now - (twins.heard_at or began)
            if notices.deaf and now - began > settings.kafka.session_timeout_ms / 1_000 + 2:
                raise taken("a live process", settings.replica, settings.name)
            if notices.deaf or now - began < SILENT_SECONDS:
                continue
            if silent < TELLING_SECONDS:
                raise taken("a live process", settings.replica, settings.name)
            if silent > SILENT_SECONDS:
                log.warning("replica %s is in the group and tells nothing: taking its place", settings.replica)
                return


def _in_group(settings: Settings, admin: AdminClient) -> bool:
    try:
        return settings.owner in fencing.live_clients(admin, settings.name)
    except KafkaException as error:
        log.info("the group's members are not known yet: %s", error.args[0])
        return False


def _member(settings: Settings, watch: Callable[[KafkaError], None]) -> GroupCommits:
    """The consumer, which joins the group when an intake subscribes it, and commits as that member."""
    return GroupCommits(lambda told: kafka.consumer(settings.kafka, settings.owner, settings.name, watch, told))


def _session(settings: Settings, parts: Parts, commits: GroupCommits, batch_bytes: int, waiting: Callable[[], None]) -> Session:
    seconds = settings.kafka.transaction_timeout_ms / 1_000
    if settings.delivery == "at-least-once":
        return CheckpointSession(
            lambda failed, singly: kafka.checkpoint_producer(
                settings.kafka, settings.owner, batch_bytes, failed, singly=singly
            ),
            commits,
            confirm_seconds=seconds,
        )

    def producer(name: str) -> Producer:
        return kafka.introduced(parts.make_producer(settings.kafka, name, settings.owner, batch_bytes), settings.output.topic)

    written = (settings.output.topic, settings.dead_letter.topic, settings.swaps_topic)
    opened = OpenTransactions(settings.kafka, settings.owner, written, settings.name, settings.input.topics)
    ids = transactional_ids(settings.transactional_prefix(settings.owner))
    decided = partial(wait_for_the_living, settings, opened.wait)
    return parts.make_session(producer, ids, transaction_seconds=seconds, waiting=waiting, decided=decided)


def _backend(settings: Settings) -> backends.Backend:
    try:
        return backends.find(settings.model)
    except backends.BackendMissing as error:
        raise Fatal(str(error), error.hint, 2) from error


def _intake(settings: Settings, parts: Parts, commits: GroupCommits, session: Session, waiting: Callable[[], None]) -> Intake:
    return parts.make_intake(
        commits.consumer,
        settings.input.topics,
        Beginnings(settings, waiting),
        partial(fence_the_dead, settings),
        lambda partitions, lost: session.release(partitions, lost=lost),
        session.decide,
        waiting,
        renew=commits.renew,
        transactional=session.sends_group,
    )


def _ready(metrics: Metrics, progress: Progress) -> Callable[[], str | None]:
    """None where this scorer is in its group and serves; else what is missing."""

    def missing() -> str | None:
        since = metrics.session.counters.open_since
        age = time.monotonic() - since if since is not None else 0.0
        late = f"a transaction has been open for {age:.0f} s" if age > LONG_SECONDS else None
        return metrics.outages.told() or late or (None if progress.joined else progress.state)

    return missing


def _live(settings: Settings, progress: Progress) -> Callable[[], str | None]:
    limit = settings.kafka.transaction_timeout_ms / 1_000

    def live() -> str | None:
        age = time.monotonic() - progress.heartbeat
        return None if age < limit or not progress.scoring else f"the scoring thread has not moved for {age:.1f} s"

    return live


def _watch(settings: Settings, loop: Loop) -> None:
    """End the process when the owner thread hangs in a call that never returns: others take over, nothing is lost."""
    limit = 2 * settings.kafka.transaction_timeout_ms / 1_000
    while True:
        time.sleep(1)
        age = time.monotonic() - loop.progress.heartbeat
        if age > limit:
            log.critical("the scoring thread has not moved for %.1f s; ending the process", age)
            faulthandler.dump_traceback(all_threads=True)
            os._exit(HANGING)
