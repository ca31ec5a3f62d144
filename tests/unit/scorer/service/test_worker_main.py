"""A worker over a scripted group: the order of its start-up, and its shutdown after a failure or a stop."""

import json
import signal
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Set
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
from confluent_kafka import Message, Producer

from model_registry import package
from model_registry.channels import channel
from model_registry.channels.move_request import MoveRequest
from model_registry.stores.oci_layout import LayoutStore
from publisher.errors import Aborted, Fatal
from publisher.kafka.groups import GroupMember
from publisher.kafka.topics import Topic
from publisher.runtime import dependency_wait, watchdog
from publisher.runtime.health import HealthServer
from publisher.runtime.stop_signals import STOPS
from publisher.transactions.counters import Counters
from publisher.transactions.offset_commits import GroupCommits
from publisher.transactions.session import Session
from scorer.consumer.consumer import EventConsumer
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.crash_isolation.in_flight_journal import InFlightJournal
from scorer.crash_isolation.quarantine import Quarantine
from scorer.decoding.table_rows import row_decoder_factory
from scorer.models.version_manager import VersionManager
from scorer.observability.channel_move_listener import ChannelMoveListener
from scorer.observability.traces import Traces
from scorer.service import worker_main
from scorer.service.broker_connections import BrokerConnections
from scorer.service.preflight import StartCheck
from scorer.service.replica_claim import ReplicaGuard
from scorer.service.report_status import StatusReporter
from scorer.service.worker_main import Service
from scorer.settings import Settings
from scorer.tables.tables import Tables
from scorer.worker.encode import TargetTopic
from tests.support import models
from tests.unit.scorer.consumer.group import TOPIC, Group, event
from tests.unit.scorer.tables.fake_source import FakeSource

STARTED = ["topics", "session", "version", "session opened", "listener", "intake", "status"]
CLOSED = ["status", "intake", "listener", "traces", "version", "quarantine", "session"]


def settings_in(folder: Path) -> Settings:
    values = {
        "name": "n",
        "replica": "a",
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "http": {"listen": "127.0.0.1:0"},
        "input": {"topics": [TOPIC]},
        "output": {"topic": "out"},
        "dead_letter": {"topic": "dead"},
        "model": {"source": f"oci:{folder}/registry/m", "cache": folder / "cache"},
    }
    return Settings.model_validate(values)


class ScriptedConnections(BrokerConnections):
    """Connections to a scripted group. Each call is a step of the site."""

    def __init__(self, site: "Site") -> None:
        self._site = site

    def check_start(self, _: threading.Event) -> StartCheck:
        self._site.step("topics")
        return StartCheck(TargetTopic("out", 1, 1_000_000), TargetTopic("dead", 1, 1_000_000))

    def check_rights(self) -> None:
        self._site.step("rights")

    def raise_fatal_error(self) -> None:
        pass

    def current_targets(self) -> None:
        return None

    def group_members(self) -> list[GroupMember]:
        return []

    def open_commits(self) -> GroupCommits:
        return GroupCommits(lambda _: self._site.group.consumer)

    def open_session(self, _: GroupCommits, batch_bytes: int) -> Session:
        assert batch_bytes == 1_000_000
        self._site.step("session")
        session: Session = self._site.group.session
        return session

    def open_intake(self, _: GroupCommits, session: Session) -> EventConsumer:
        assert session is self._site.group.session
        self._site.step("intake")
        return self._site.group.intake

    def open_tables(self) -> Tables:
        settings = self._site.settings
        tables = Tables(settings.tables, self._site.table_source, lambda name: row_decoder_factory(name, settings))
        tables.start()
        return tables

    def listen_for_moves(self, _: Callable[[], None]) -> ChannelMoveListener:
        self._site.step("listener")
        listener: ChannelMoveListener = self._site.listener
        return listener

    def guard_replica(self, _: Set[str]) -> ReplicaGuard:
        guard: ReplicaGuard = self._site.guard
        return guard

    def open_status_producer(self) -> Producer:
        self._site.step("status")
        producer: Producer = self._site.producer
        return producer


class Site:
    """A registry with a version, and a scripted broker.

    Attributes:
        steps: the steps that were made, in this order.
        at: a function that is called at a step, by its name.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = LayoutStore(folder / "registry" / "m")
        package.push(store, models.linear_package(folder / "1.0.0", 2.0), "m", "1.0.0")
        channel.promote(store, "prod", "1.0.0", MoveRequest("op", "", datetime.now(UTC)))
        self.steps: list[str] = []
        self.at: dict[str, Callable[[], object]] = {}
        self.group = Group()
        self.group.committed[TOPIC, 0] = 7, OffsetMetadata()
        self.group.session.counters = Counters()
        self.group.session.open.side_effect = lambda: self.step("session opened")
        self.group.session.close.side_effect = lambda: self.step("session closed")
        self.group.consumer.close.side_effect = lambda: self.step("intake closed")
        closed = {"version": VersionManager, "quarantine": Quarantine, "traces": Traces, "status": StatusReporter}
        for name, kind in closed.items():
            self._record(monkeypatch, kind, "close", f"{name} closed")
        self._record(monkeypatch, VersionManager, "start", "version")
        monkeypatch.setattr(dependency_wait, "PROBE_INTERVAL_SECONDS", 3_600.0)  # no probe of the broker
        monkeypatch.setattr(worker_main, "LONG_START_SECONDS", 3_600.0)  # no status record of a slow start-up
        self.settings = settings_in(folder)
        self.folder = folder
        self.table_source = FakeSource({"customers": Topic("id", 1)})
        self.listener = create_autospec(ChannelMoveListener, instance=True)
        self.listener.close.side_effect = lambda: self.step("listener closed")
        self.guard = create_autospec(ReplicaGuard, instance=True)
        self.guard.lost = False
        self.producer = create_autospec(Producer, instance=True)

    def step(self, name: str) -> None:
        self.steps.append(name)
        self.at.get(name, lambda: None)()

    def closed(self) -> list[str]:
        """Return the names of the closed objects, in this order."""
        return [name.removesuffix(" closed") for name in self.steps if name.endswith(" closed")]

    def _record(self, monkeypatch: pytest.MonkeyPatch, kind: type, method: str, name: str) -> None:
        original = getattr(kind, method)

        def call_with_step(instance: Any) -> None:
            self.step(name)
            original(instance)

        monkeypatch.setattr(kind, method, call_with_step)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def service_of(site: Site) -> Service:
    return Service(site.settings, InFlightJournal(), connect_brokers=lambda *_: ScriptedConnections(site))


def fails(error: Exception) -> Callable[[], None]:
    """Return a step that raises this error."""

    def fail() -> None:
        raise error

    return fail


def ready(address: str) -> str | None:
    """Return the reason of /readyz; None if the worker is ready."""
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=60) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        body = error.read()
    reason: str | None = json.loads(body)["reason"]
    return reason


def test_events_are_scored_between_a_start_and_a_stop_in_good_order(site: Site) -> None:
    service = service_of(site)
    site.at["serving"] = lambda: site.group.assign(0)
    site.group.waiting += [Message(TOPIC, 0, 7, None, b'{"a": 1, "b": 2}'), service.stop]
    service.run(lambda _: site.step("serving"))
    assert site.steps == [*STARTED, "serving", *(f"{name} closed" for name in CLOSED)]
    calls = [call.args for call in site.group.session.publish.call_args_list]
    published = [(records, [p.offset for p in offsets]) for records, offsets, _ in calls]
    assert [positions for _, positions in published] == [[7], [8], [8]]  # the claim, the scores, the release
    (topic, value, *_), swap = published[1][0]
    assert (topic, json.loads(value)["score"]) == ("out", 6.0)
    assert swap[0] == site.settings.swaps_topic
    states = [json.loads(call.args[1])["state"] for call in site.producer.produce.call_args_list]
    assert (states[0], states[-1]) == ("running", "stopped")


def test_an_event_is_joined_with_its_row_after_the_restore(site: Site) -> None:
    store = LayoutStore(site.folder / "registry" / "m")
    package.push(store, models.joined_package(site.folder / "2.0.0", 2.0), "m", "2.0.0")
    channel.promote(store, "prod", "2.0.0", MoveRequest("op", "", datetime.now(UTC)))
    site.settings = Settings.model_validate(site.settings.model_dump() | {"tables": {"customers": {"topic": "customers"}}})
    site.table_source.write(("customers", 0), *[(b"k%d" % number, b'{"b": %d}' % number) for number in range(100)])
    service = service_of(site)
    site.at["serving"] = lambda: site.group.assign(0, claimed=False)
    resume = site.group.consumer.resume.side_effect

    def deliver(partitions: Any) -> None:
        resume(partitions)
        if not site.group.paused():
            site.group.waiting += [Message(TOPIC, 0, 7, b"k42", b'{"a": 1}'), service.stop]

    site.group.consumer.resume.side_effect = deliver
    service.run(lambda _: site.step("serving"))
    (score,) = [record for call in site.group.session.publish.call_args_list for record in call.args[0] if record[0] == "out"]
    assert json.loads(score[1])["score"] == 86.0
    status = json.loads(site.producer.produce.call_args_list[-1].args[1])
    assert [(table["table"], table["rows"], table["restored"]) for table in status["tables"]] == [("customers", 100, True)]
    assert site.table_source.closed


def test_health_answers_from_the_first_step_to_the_last(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    servers: list[HealthServer] = []
    reasons: dict[str, str | None] = {}

    def listen(*arguments: Any) -> HealthServer:
        servers.append(HealthServer(*arguments))
        return servers[0]

    def record_readiness() -> None:
        reasons[site.steps[-1]] = ready(servers[0].address)

    monkeypatch.setattr(worker_main, "HealthServer", listen)
    site.at |= dict.fromkeys(("topics", "version", "session opened", "intake", "session closed"), record_readiness)
    service = service_of(site)
    service.run(lambda _: service.stop())
    assert reasons == {
        "topics": "asking the brokers for the topics",
        "version": "making a version of the model ready",
        "session opened": "beginning transactions",
        "intake": "not yet in the consumer group",
        "session closed": "stopping",
    }
    with pytest.raises(urllib.error.URLError):
        ready(servers[0].address)


@pytest.mark.parametrize("step", STARTED)
def test_a_failure_at_a_step_is_raised_and_undoes_the_steps_before_it_backwards(site: Site, step: str) -> None:
    error = Fatal(f"no {step}", "a way out", 3)
    site.at[step] = fails(error)
    with pytest.raises(Fatal) as ended:
        service_of(site).run(lambda _: None)
    assert ended.value is error
    started = STARTED[: STARTED.index(step) + 1]
    assert [name for name in site.steps if not name.endswith(" closed")] == started
    closed = {"topics": 0, "session": 0, "version": 3, "session opened": 3, "listener": 4, "intake": 5, "status": 6}[step]
    assert site.closed() == CLOSED[len(CLOSED) - closed :]


def test_a_rejection_by_the_broker_during_the_main_loop_ends_the_worker_and_the_rights_are_checked(site: Site) -> None:
    refused = Fatal("the broker does not allow it", "", 3)
    site.group.session.tick.side_effect = refused
    with pytest.raises(Fatal) as ended:
        service_of(site).run(lambda _: None)
    assert ended.value is refused
    assert site.steps == [*STARTED, "rights", *(f"{name} closed" for name in CLOSED)]


def test_a_missing_right_is_raised_in_place_of_its_consequence(site: Site) -> None:
    site.group.session.tick.side_effect = Fatal("a commit failed")
    site.at["rights"] = fails(Fatal("no right to Write", "kafka-acls.sh", 3))
    with pytest.raises(Fatal, match="no right to Write"):
        service_of(site).run(lambda _: None)
    assert site.closed() == CLOSED


@pytest.mark.parametrize("step", ["topics", "session opened"])
def test_a_stop_while_brokers_are_unavailable_ends_the_start_up_without_an_error(site: Site, step: str) -> None:
    service = service_of(site)

    def stop() -> None:
        service.stop()
        raise Aborted("a stop was requested")

    site.at[step] = stop
    service.run(lambda _: site.step("serving"))
    assert "serving" not in site.steps
    assert site.closed() == ([] if step == "topics" else CLOSED[4:])


def test_a_stop_ends_a_start_up_while_the_session_cannot_be_opened(site: Site) -> None:
    service = service_of(site)
    release = threading.Event()

    def hang() -> None:
        service.stop()
        release.wait()

    site.at["session opened"] = hang
    service.run(lambda _: site.step("serving"))
    release.set()
    assert site.closed() == CLOSED[4:]


@pytest.mark.parametrize("step", ["listener", "status"])
def test_a_stop_late_in_the_start_up_takes_effect_before_the_first_event(site: Site, step: str) -> None:
    service = service_of(site)
    site.at[step] = service.stop
    site.group.waiting.append(event(7))
    service.run(lambda _: None)
    assert len(site.group.waiting) == 1
    assert site.closed() == CLOSED


def test_a_batch_that_is_not_scored_in_time_after_a_stop_is_left_to_the_next_owner(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_main, "DRAIN_SECONDS", 0.0)
    service = service_of(site)
    site.at["serving"] = lambda: site.group.assign(0)
    site.group.waiting += [Message(TOPIC, 0, 7, None, b'{"a": 1, "b": 2}'), service.stop]
    service.run(lambda _: site.step("serving"))
    assert site.closed() == CLOSED
    published = [[p.offset for p in call.args[1]] for call in site.group.session.publish.call_args_list]
    assert published == [[7]], "the claim of the partition"
    assert [name for name, *_ in site.group.session.mock_calls][-2:] == ["checkpoint", "close"]


def test_a_second_signal_changes_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[Callable[[], str | None]] = []
    monkeypatch.setattr(watchdog, "watch", watched.append)
    monkeypatch.setattr(worker_main, "limit_malloc_arenas", lambda: site.steps.append("limit arenas"))
    monkeypatch.setattr(worker_main, "start_gc_thread", lambda: site.steps.append("start gc"))

    def send_signals() -> None:
        for number in STOPS:
            signal.raise_signal(number)

    site.at |= dict.fromkeys(("serving", "intake closed"), send_signals)
    before, interval = {number: signal.getsignal(number) for number in STOPS}, sys.getswitchinterval()
    try:
        connect = lambda *_: ScriptedConnections(site)  # noqa: E731
        worker_main.run(site.settings, lambda _: site.step("serving"), connect_brokers=connect)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.setswitchinterval(interval)
    assert site.steps == ["limit arenas", *STARTED, "start gc", "serving", *(f"{name} closed" for name in CLOSED)]
    assert watched[0]() is None


def test_a_replica_name_in_use_by_another_process_ends_this_process(site: Site) -> None:
    with pytest.raises(Fatal, match="another live process already uses the replica name 'a'"):
        service_of(site).run(lambda _: setattr(site.guard, "lost", True))
    assert site.closed() == CLOSED
    assert site.guard.close.called
    assert not site.producer.produce.called, "the replica has not stopped: another process uses its name"


def test_the_guard_has_the_member_id_of_the_consumer(site: Site) -> None:
    service = service_of(site)
    site.group.consumer.memberid.return_value = "n.a-1"
    site.group.waiting.append(service.stop)
    service.run(lambda _: None)
    assert site.guard.member == "n.a-1"
