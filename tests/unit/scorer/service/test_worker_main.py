"""The life of one scorer over a scripted group: what is begun in which order, and what a failure or a stop undoes of it."""

import json
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
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
from publisher.runtime import dependencies, watchdog
from publisher.runtime.health import HealthServer
from publisher.transactions.protocol import Counters
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.crash_isolation.in_flight_journal import InFlightJournal
from scorer.crash_isolation.quarantine import Quarantine
from scorer.models.version_manager import VersionManager
from scorer.observability.channel_move_listener import ChannelMoveListener
from scorer.observability.status_record import StatusReporter
from scorer.observability.traces import Traces
from scorer.service import worker_main
from scorer.service.preflight import Start
from scorer.service.replica_claim import ReplicaGuard
from scorer.service.supervisor import STOPS
from scorer.service.worker_main import Parts, Service
from scorer.settings import Settings
from scorer.worker.encode import Target
from tests.support import models
from tests.unit.scorer.consumer.group import TOPIC, Group, event

BEGUN = ["topics", "session", "version", "session opened", "notices", "beginnings", "intake", "status"]
CLOSED = ["status", "intake", "notices", "traces", "version", "quarantine", "session"]


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


class Site:
    """A registry with a version, and a scripted broker. `said` are the steps as they are made, `at` what happens in one."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = LayoutStore(folder / "registry" / "m")
        package.push(store, models.linear_package(folder / "1.0.0", 2.0), "m", "1.0.0")
        channel.promote(store, "prod", "1.0.0", MoveRequest("op", "", datetime.now(UTC)))
        self.said: list[str] = []
        self.at: dict[str, Callable[[], object]] = {}
        self.group = Group()
        self.group.committed[TOPIC, 0] = 7, OffsetMetadata()
        self.group.session.counters = Counters()
        self.group.session.open.side_effect = lambda: self.step("session opened")
        self.group.session.close.side_effect = lambda: self.step("session closed")
        self.group.consumer.close.side_effect = lambda: self.step("intake closed")
        closed = {"version": VersionManager, "quarantine": Quarantine, "traces": Traces, "status": StatusReporter}
        for name, kind in closed.items():
            self._tell(monkeypatch, kind, "close", f"{name} closed")
        self._tell(monkeypatch, VersionManager, "start", "version")
        monkeypatch.setattr(dependencies, "PROBE_INTERVAL_SECONDS", 3_600.0)  # no probe of the broker
        self.settings = settings_in(folder)
        notices = create_autospec(ChannelMoveListener, instance=True)
        notices.close.side_effect = lambda: self.step("notices closed")
        start = Start(Target("out", 1, 1_000_000), Target("dead", 1, 1_000_000))
        self.guard = create_autospec(ReplicaGuard, instance=True)
        self.guard.lost = False
        self.producer = create_autospec(Producer, instance=True)
        self.parts = Parts(
            may_begin=self._part("topics", start),
            name_missing_rights=self._part("rights", None),
            make_consumer=lambda *_: self.group.consumer,
            make_session=self._part("session", self.group.session),
            make_beginnings=self._part("beginnings", None),
            make_intake=self._part("intake", self.group.intake),
            make_notices=self._part("notices", notices),
            make_guard=lambda *_: self.guard,
            make_status_producer=self._part("status", self.producer),
            ask_for_members=lambda _: [],
        )

    def step(self, name: str) -> None:
        self.said.append(name)
        self.at.get(name, lambda: None)()

    def closed(self) -> list[str]:
        """What was closed, in this order."""
        return [name.removesuffix(" closed") for name in self.said if name.endswith(" closed")]

    def _part(self, name: str, made: Any) -> Callable[..., Any]:
        def make(*_: Any, **__: Any) -> Any:
            self.step(name)
            return made

        return make

    def _tell(self, monkeypatch: pytest.MonkeyPatch, kind: type, method: str, name: str) -> None:
        done = getattr(kind, method)

        def stepped(of: Any) -> None:
            self.step(name)
            done(of)

        monkeypatch.setattr(kind, method, stepped)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def service_of(site: Site) -> Service:
    return Service(site.settings, site.parts, InFlightJournal())


def fails(error: Exception) -> Callable[[], None]:
    """A step that raises this."""

    def fail() -> None:
        raise error

    return fail


def ready(address: str) -> str | None:
    """What /readyz gives as the reason; None where all is well."""
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=60) as answer:
            told = answer.read()
    except urllib.error.HTTPError as error:
        told = error.read()
    reason: str | None = json.loads(told)["reason"]
    return reason


def test_events_are_scored_between_a_start_and_a_stop_in_good_order(site: Site) -> None:
    made = service_of(site)
    site.at["serving"] = lambda: site.group.assign(0)
    site.group.waiting += [Message(TOPIC, 0, 7, None, b'{"a": 1, "b": 2}'), made.stop]
    made.run(lambda _: site.step("serving"))
    assert site.said == [*BEGUN, "serving", *(f"{name} closed" for name in CLOSED)]
    calls = [call.args for call in site.group.session.publish.call_args_list]
    published = [(records, [p.offset for p in offsets]) for records, offsets, _ in calls]
    assert [positions for _, positions in published] == [[7], [8], [8]]  # claimed, scored, left
    (topic, value, *_), swap = published[1][0]
    assert (topic, json.loads(value)["score"]) == ("out", 6.0)
    assert swap[0] == site.settings.swaps_topic
    states = [json.loads(call.args[1])["state"] for call in site.producer.produce.call_args_list]
    assert (states[0], states[-1]) == ("running", "stopped")


def test_health_answers_from_the_first_step_to_the_last(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    servers: list[HealthServer] = []
    told: dict[str, str | None] = {}

    def listen(*arguments: Any) -> HealthServer:
        servers.append(HealthServer(*arguments))
        return servers[0]

    def ask() -> None:
        told[site.said[-1]] = ready(servers[0].address)

    monkeypatch.setattr(worker_main, "HealthServer", listen)
    site.at |= dict.fromkeys(("topics", "version", "session opened", "intake", "session closed"), ask)
    made = service_of(site)
    made.run(lambda _: made.stop())
    assert told == {
        "topics": "asking the brokers for the topics",
        "version": "making a version of the model ready",
        "session opened": "beginning transactions",
        "intake": "not yet in the consumer group",
        "session closed": "stopping",
    }
    with pytest.raises(urllib.error.URLError):
        ready(servers[0].address)


@pytest.mark.parametrize("step", BEGUN)
def test_a_failure_at_a_step_is_told_and_undoes_those_before_it_backwards(site: Site, step: str) -> None:
    error = Fatal(f"no {step}", "a way out", 3)
    site.at[step] = fails(error)
    with pytest.raises(Fatal) as ended:
        service_of(site).run(lambda _: None)
    assert ended.value is error
    begun = BEGUN[: BEGUN.index(step) + 1]
    assert [name for name in site.said if not name.endswith(" closed")] == begun
    left = {
        "topics": 0,
        "session": 0,
        "version": 3,
        "session opened": 3,
        "notices": 4,
        "beginnings": 5,
        "intake": 5,
        "status": 6,
    }[step]
    assert site.closed() == CLOSED[len(CLOSED) - left :]


def test_what_the_broker_refuses_while_it_scores_ends_it_and_missing_rights_are_asked_for(site: Site) -> None:
    refused = Fatal("the broker does not allow it", "", 3)
    site.group.session.tick.side_effect = refused
    with pytest.raises(Fatal) as ended:
        service_of(site).run(lambda _: None)
    assert ended.value is refused
    assert site.said == [*BEGUN, "rights", *(f"{name} closed" for name in CLOSED)]


def test_a_right_that_is_known_to_be_missing_is_told_in_place_of_what_it_led_to(site: Site) -> None:
    site.group.session.tick.side_effect = Fatal("a commit failed")
    site.at["rights"] = fails(Fatal("no right to Write", "kafka-acls.sh", 3))
    with pytest.raises(Fatal, match="no right to Write"):
        service_of(site).run(lambda _: None)
    assert site.closed() == CLOSED


@pytest.mark.parametrize("step", ["topics", "session opened"])
def test_a_stop_while_brokers_are_away_ends_the_start_in_good_order(site: Site, step: str) -> None:
    """Nobody is told of a failure."""
    made = service_of(site)

    def stop() -> None:
        made.stop()
        raise Aborted("asked to stop")

    site.at[step] = stop
    made.run(lambda _: site.step("serving"))
    assert "serving" not in site.said
    assert site.closed() == ([] if step == "topics" else CLOSED[4:])


@pytest.mark.parametrize("step", ["notices", "status"])
def test_a_stop_late_in_the_start_is_heard_before_the_first_event(site: Site, step: str) -> None:
    made = service_of(site)
    site.at[step] = made.stop
    site.group.waiting.append(event(7))
    made.run(lambda _: None)
    assert len(site.group.waiting) == 1
    assert site.closed() == CLOSED


def test_a_second_signal_changes_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[Callable[[], str | None]] = []
    monkeypatch.setattr(watchdog, "watch", watched.append)
    monkeypatch.setattr(worker_main, "limit_malloc_arenas", lambda: site.said.append("few arenas"))
    monkeypatch.setattr(worker_main, "start_gc_thread", lambda: site.said.append("keep tidy"))

    def tell() -> None:
        for number in STOPS:
            signal.raise_signal(number)

    site.at |= dict.fromkeys(("serving", "intake closed"), tell)
    before, interval = {number: signal.getsignal(number) for number in STOPS}, sys.getswitchinterval()
    try:
        worker_main.run(site.settings, site.parts, lambda _: site.step("serving"))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.setswitchinterval(interval)
    assert site.said == ["few arenas", *BEGUN, "keep tidy", "serving", *(f"{name} closed" for name in CLOSED)]
    assert watched[0]() is None


def test_a_replica_that_belongs_to_another_process_ends_this_one(site: Site) -> None:
    with pytest.raises(Fatal, match="another live process runs as replica 'a'"):
        service_of(site).run(lambda _: setattr(site.guard, "lost", True))
    assert site.closed() == CLOSED
    assert site.guard.close.called
    assert not site.producer.produce.called, "another process runs under its name: it has not stopped"


def test_the_guard_is_given_the_member_that_the_consumer_is(site: Site) -> None:
    made = service_of(site)
    site.group.consumer.memberid.return_value = "n.a-1"
    site.group.waiting.append(made.stop)
    made.run(lambda _: None)
    assert site.guard.member == "n.a-1"
