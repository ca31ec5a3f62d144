"""`scorer run`: start-up, main loop, shutdown.

Start: topics, model, every transactional id, then the consumer group: nothing is consumed before a version is ready. Stop: the
batch in hand is finished or given up, the group is left at once, the last status is told. A crash anywhere in between is safe.
"""

import contextlib
import faulthandler
import functools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from publisher import fencing, kafka
from publisher.call_thread import call_apart
from publisher.connection import connect, refused
from publisher.delivery import CheckpointSession
from publisher.errors import Aborted, Fatal, NotAllowed
from publisher.group_commits import GroupCommits
from publisher.health import HealthServer
from publisher.kafka import KafkaSettings
from publisher.memory import few_arenas, rare_collections
from publisher.open_transactions import OpenTransactions
from publisher.session import Session
from publisher.transactions import TransactionSession
from scorer import backends, topics
from scorer.intake import Intake
from scorer.loop import Loop
from scorer.observe.metrics import Metrics
from scorer.observe.notices import Notices
from scorer.observe.progress import Progress
from scorer.observe.reporter import Reporter
from scorer.observe.traces import traces as tracing
from scorer.patience import patience
from scorer.scoring import Scoring, Target
from scorer.servables.manager import VersionManager
from scorer.settings import Settings
from scorer.takeover import fence_the_dead, wait_for_the_living

log = logging.getLogger(__name__)

SWITCH_SECONDS = 5e-5  # a model is loaded beside the scoring thread, which must not wait 5 ms for the interpreter each time
SECOND_LOOK_SECONDS = 1.0
HANGING = 70  # exit status of the watchdog (EX_SOFTWARE)


@dataclass(frozen=True)
class Parts:
    """What a scorer is put together from. There is no setting for these: tests of faults hand in their own."""

    make_producer: Callable[[KafkaSettings, str, str, int], Producer] = kafka.transactional_producer
    make_session: Callable[..., TransactionSession] = TransactionSession
    make_intake: Callable[..., Intake] = Intake


def run(settings: Settings, parts: Parts | None = None, on_serving: Callable[[str], None] = lambda _: None) -> None:
    """Score until SIGTERM or SIGINT; `on_serving(address of health and metrics)` is called when that begins.

    Raises Fatal where it cannot begin or go on.
    """
    parts = parts or Parts()
    few_arenas()
    sys.setswitchinterval(SWITCH_SECONDS)
    stopping = _stop_signals()
    watch = kafka.ErrorWatch()
    finding = call_apart("backend", lambda: _backend(settings))  # imports a library while the broker answers
    output, dead = _broker_allows(settings, stopping)
    backend = finding.result()
    traces = tracing(settings)
    commits = _member(settings, watch)
    largest = min(output.max_bytes, dead.max_bytes)
    progress = Progress(time.monotonic())
    waiting = patience(settings.kafka, settings.owner, progress, stopping.is_set)
    with contextlib.closing(_session(settings, parts, commits, largest, waiting)) as session:  # begins while the model loads
        metrics = Metrics(session.counters, settings.model)
        versions = VersionManager(settings, backend, on_refused=lambda _: metrics.refused.inc())
        with contextlib.closing(versions):
            versions.start()
            try:
                session.open()
            except Aborted:
                log.info("stopped before the first event")
                return
            intake = _intake(settings, parts, commits.consumer, session, waiting)
            loop = Loop(settings, intake, session, versions, Scoring(settings, output, dead), metrics, progress, traces)
            with contextlib.closing(traces), contextlib.closing(Notices(settings, versions.hurry)), contextlib.closing(intake):
                reporter = Reporter(settings, loop.progress, session.counters, versions)
                _serve(settings, loop, reporter, metrics, stopping, watch, on_serving)
    log.info("stopped; everything scored is committed")


def _serve(
    settings: Settings,
    loop: Loop,
    reporter: Reporter,
    metrics: Metrics,
    stopping: threading.Event,
    watch: kafka.ErrorWatch,
    on_serving: Callable[[str], None],
) -> None:
    """The main loop, with what watches it and tells of it."""
    health = HealthServer(settings.http.listen, metrics.registry, _live(settings, loop), reporter.not_ready)
    source = ", ".join(settings.input.topics)
    log.info("scoring %s %s; health and metrics on http://%s", source, settings.delivery, health.address)
    threading.Thread(target=_watch, args=(settings, loop), name="watchdog", daemon=True).start()
    rare_collections()
    on_serving(health.address)
    try:
        loop.run(lambda: _stop(settings, stopping, watch), reporter.tick)
    except Fatal:
        _name_what_is_missing(settings)
        raise
    finally:
        reporter.close()
        health.close()


def _stop_signals() -> threading.Event:
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping


def _stop(settings: Settings, stopping: threading.Event, watch: kafka.ErrorWatch) -> bool:
    """Whether the loop ends: it was told to, or the broker refuses this client for good (raises Fatal)."""
    if watch.fatal is not None:
        raise refused(settings.kafka, watch.fatal)
    return stopping.is_set()


def _broker_allows(settings: Settings, stopping: threading.Event) -> tuple[Target, Target]:
    """Output and dead-letter topics, once it is known that nothing is missing and no twin is alive. Raises Fatal."""
    admin = connect(settings.kafka, settings.owner)
    targets = _targets(settings, admin)
    fencing.may_join(admin, settings.kafka, settings.name)
    _refuse_a_twin(settings, admin, stopping)
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


def _refuse_a_twin(settings: Settings, admin: AdminClient, stopping: threading.Event) -> None:
    """Two live processes with one replica would fence each other. A dead one leaves the group when its session ends."""
    deadline = time.monotonic() + settings.kafka.session_timeout_ms / 1_000 + 2
    told = False
    while not stopping.is_set():
        try:
            twin = settings.owner in fencing.live_clients(admin, settings.name)
        except KafkaException as error:
            log.info("the group's members are not known yet: %s", error.args[0])
            return
        if not twin:
            return
        if time.monotonic() > deadline:
            raise Fatal(
                f"a live process already runs as replica {settings.replica!r} of {settings.name!r}",
                "give each process a replica of its own: --set replica=...",
                3,
            )
        if not told:
            log.info("replica %s is still in the group; waiting for its session to end", settings.replica)
            told = True
        stopping.wait(0.5)


def _member(settings: Settings, watch: kafka.ErrorWatch) -> GroupCommits:
    """The consumer, which joins the group when an intake subscribes it, and commits as that member."""
    return GroupCommits(lambda told: kafka.consumer(settings.kafka, settings.owner, settings.name, watch, told))


def _session(settings: Settings, parts: Parts, commits: GroupCommits, batch_bytes: int, waiting: Callable[[], None]) -> Session:
    seconds = settings.kafka.transaction_timeout_ms / 1_000
    if settings.delivery == "at-least-once":
        return CheckpointSession(
            lambda failed: kafka.checkpoint_producer(settings.kafka, settings.owner, batch_bytes, failed),
            commits,
            confirm_seconds=seconds,
        )

    def producer(name: str) -> Producer:
        return kafka.introduced(parts.make_producer(settings.kafka, name, settings.owner, batch_bytes), settings.output.topic)

    written = (settings.output.topic, settings.dead_letter.topic, settings.swaps_topic)
    opened = OpenTransactions(settings.kafka, settings.owner, written, settings.name, settings.input.topics)
    decided = functools.partial(wait_for_the_living, settings, opened.wait)
    return parts.make_session(producer, settings.owner, transaction_seconds=seconds, waiting=waiting, decided=decided)


def _backend(settings: Settings) -> backends.Backend:
    try:
        return backends.find(settings.model)
    except backends.BackendMissing as error:
        raise Fatal(str(error), error.hint, 2) from error


def _intake(settings: Settings, parts: Parts, consumer: Consumer, session: Session, waiting: Callable[[], None]) -> Intake:
    return parts.make_intake(
        consumer,
        settings.owner,
        settings.input.topics,
        settings.input.start,
        functools.partial(fence_the_dead, settings),
        lambda partitions, lost: session.release(partitions, lost=lost),
        session.decide,
        waiting,
        transactional=session.transactional,
    )


def _live(settings: Settings, loop: Loop) -> Callable[[], str | None]:
    limit = settings.kafka.transaction_timeout_ms / 1_000

    def live() -> str | None:
        age = time.monotonic() - loop.progress.heartbeat
        return None if age < limit else f"the scoring thread has not moved for {age:.1f} s"

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
