"""One life of a relay: what it copies is surveyed, fenced, verified, begun, supervised, closed. In that order.

Besides the lanes' sessions there is one more, `control`: it registers the process and writes the first checkpoints of new
partitions, all of a topic together, so that one that is missing later is known to be lost.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from publisher.errors import REFUSED, Aborted, Fatal
from publisher.kafka import acls
from publisher.kafka.clients import LARGEST_BATCH
from publisher.kafka.partitions import Partition, in_ranges
from publisher.kafka.topics import Topic, retention_seconds
from publisher.relay import checkpoints as checkpoint
from publisher.relay import start_position, verify_tail
from publisher.relay.checkpoints import Place, Registration
from publisher.relay.clients import quick
from publisher.relay.clusters import ANSWER_SECONDS, log_of, topics_of
from publisher.relay.copy_worker import Lane, Shared
from publisher.relay.fence import control_of, fence, registration_record
from publisher.relay.rate_limit import Budget
from publisher.relay.settings import RelaySettings
from publisher.relay.source_progress import Sightings
from publisher.relay.start_position import End, Refused
from publisher.relay.status import RelayState
from publisher.relay.topic_ids_watch import ABSENT_SECONDS, Watch
from publisher.relay.topic_mapping import Pair, ensure_own_topics, has_patterns, pairs, selected, smallest_limit
from publisher.relay.transform import Route
from publisher.relay.verify_tail import Expected
from publisher.runtime.context import Context, now_ms
from publisher.transactions.exactly_once import TransactionSession
from publisher.transactions.protocol import Record
from publisher.transactions.wait_for_decided import OpenTransactions

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
DISCOVERY_SECONDS = 5.0


class Life:
    """See the module. Methods raise Fatal, Refused, Retriable or Aborted."""

    def __init__(self, settings: RelaySettings, state: RelayState, stopping: threading.Event) -> None:
        self._settings = settings
        self._state = state
        self._told_to_stop = stopping
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self.source, self.destination = topics_of(settings)
        self.checkpoints = log_of(settings)
        self._pairs: dict[str, Pair] = {}
        self._batch_bytes = LARGEST_BATCH
        self._cluster_ids = ("", "")
        self._lanes: list[Lane] = []
        self._control: TransactionSession | None = None
        self._watches: list[Watch] = []
        self._sightings: Sightings | None = None
        self._discovered_at = time.monotonic()
        self._context = Context(raise_if_cancelled=self._raise_if_stopped)

    def survey(self) -> None:
        """What is to be copied, and what is known of it."""
        settings = self._settings
        self._cluster_ids = self.source.id(), self.destination.id()
        create = settings.destination.create_topics
        ensure_own_topics(settings, self.destination, create=create)
        self.checkpoints.look(settings.name)
        self._state.unreadable = len(self.checkpoints.unreadable)
        found = self._found(time.monotonic() + (ABSENT_SECONDS if self._state.registered else 0.0))
        self._pairs = {p.name: p for p in pairs(settings, self.source, self.destination, found, create=create)}
        self._batch_bytes = smallest_limit(self.destination, self._pairs.values())
        self._state.retention = retention_seconds(self.source.configs(self._pairs))

    def take_over(self, registration: Registration, on_look: Callable[[], None]) -> None:
        """No process but this one writes for the relay from here on, whatever lanes its predecessor had, and nothing of theirs
        is open. `on_look` as `fence` calls it."""
        settings = self._settings
        written = [pair.destination_name for pair in self._pairs.values()]
        written += [topic for topic in (settings.checkpoint_topic, settings.refusal_topic) if topic]
        left = OpenTransactions(quick(settings.destination.kafka), settings.name, written)
        writing = self._batch_bytes, Budget(settings.bytes_per_second)
        shared = Shared(settings, self._checkpoint, self._seen, self._context, left.wait, *writing, self._stopping, self._ended)
        self._lanes = [Lane(shared, state) for state in self._state.lanes]
        self._control = control_of(settings, self._context)
        fence(settings, self._control, self.checkpoints, registration, [lane.open for lane in self._lanes], on_look)

    def begin(self, registration: Registration) -> None:
        """Verify where each partition goes on, register, and copy."""
        self.checkpoints.refresh()
        self._state.unreadable = len(self.checkpoints.unreadable)
        partitions = [(pair, number) for pair in self._pairs.values() for number in range(pair.source.partitions)]
        routes = self._routes(partitions, registration)
        here = {pair.name: pair.source for pair in self._pairs.values()}
        there = {pair.destination_name: pair.destination for pair in self._pairs.values()}
        sides = (self.source, self._settings.source.region, here), (self.destination, self._settings.destination.region, there)
        self._watches = [Watch(*side) for side in sides]
        self._share_out(routes)
        for lane in self._lanes:
            lane.start()
        if self._settings.source.groups:
            before = self.checkpoints.sightings.get(self._settings.name)
            self._sightings = Sightings(self._settings, self._cluster_ids[0], self.source, self._copied, before)
        log.info("copying %d partitions of %s in %d lanes", len(routes), ", ".join(self._pairs), len(self._lanes))

    def supervise(self) -> None:
        """Look after the lanes until the end. Raises what ended one of them, or what the watches saw."""
        while not self._told_to_stop.wait(LOOK_SECONDS):
            self._state.seen = self._seen()
            self._keep_sighting()
            for watch in self._watches:
                if watch.failure is not None:
                    raise watch.failure
            if self._ended.is_set():
                for lane in self._lanes:
                    if lane.failure is not None:
                        raise lane.failure
            self._follow()

    def close(self) -> None:
        """Let the lanes finish what they have in hand; abort what cannot be finished. Never raises."""
        self._stopping.set()
        for watch in self._watches:
            watch.close()
        if self._sightings is not None:
            self._sightings.close()
        until = time.monotonic() + self._settings.destination.transaction_timeout_ms / 1_000 + ANSWER_SECONDS
        for lane in self._lanes:
            if not lane.join(max(0.0, until - time.monotonic())):
                log.error("lane %d does not end", lane.state.number)
        if self._control is not None:
            self._control.close()

    def _raise_if_stopped(self) -> None:
        if self._told_to_stop.is_set():
            raise Aborted("asked to stop")

    def _write(self, records: Sequence[Record]) -> None:
        assert self._control is not None, "nothing is written before all others are fenced"
        self._control.publish(records)

    def _found(self, until: float) -> dict[str, Topic]:
        """The source topics. One that is missing may only not be known yet to a broker that has just begun."""
        while True:
            names = selected(self._settings, self.source.names() if has_patterns(self._settings) else [])
            copied = {place.topic for place in self.checkpoints.of_relay(self._settings.name)}
            found = self.source.allowed(acls.to_read(*names))
            missing = [name for name in names if name not in found]
            if not missing:
                return found
            if time.monotonic() >= until or self._told_to_stop.wait(0.2):
                region = self._settings.source.region
                if missing[0] in copied:
                    raise start_position.gone(missing[0], region)
                hint = self.source.hint(missing[0], "make it, or correct source.topics", names)
                raise Fatal(f"topic {missing[0]} does not exist in {region}", hint, 2)

    def _routes(self, partitions: Sequence[tuple[Pair, int]], registration: Registration | None) -> list[Route]:
        """Verified ways, their checkpoints written."""
        settings = self._settings
        here = self.source.bounds((pair.name, number) for pair, number in partitions)
        there = self.destination.bounds((pair.destination_name, number) for pair, number in partitions)
        own = self.checkpoints.of_relay(settings.name)
        others = {other: found for other, found in self.checkpoints.positions.items() if other.relay != settings.name}
        routes: dict[Place, Route] = {}
        ends: dict[Place, tuple[End, End]] = {}
        for pair, number in partitions:
            place = Place(settings.name, settings.source.region, pair.name, number)
            ends[place] = (
                End(self._cluster_ids[0], pair.name, pair.source, here[pair.name, number]),
                End(self._cluster_ids[1], pair.destination_name, pair.destination, there[pair.destination_name, number]),
            )
            known = [p.partition for p in own if (p.region, p.topic) == (place.region, place.topic)]
            start = start_position.start(place, own.get(place), others, *ends[place], known)
            copied = own[place].copied if place in own else -1
            route = routes[place] = Route(place.region, pair.name, number, pair.destination_name, start, copied)
            route.end = here[pair.name, number].high
            if place in own:
                route.timestamp_ms, route.epoch = own[place].timestamp_ms, own[place].epoch
                route.copies_from = own[place].copies_from
        self._refuse_cut_copies(routes, ends)
        fresh = {place: route for place, route in routes.items() if place not in own}
        self._write_first(fresh.values(), registration)
        self._yield_to_an_earlier_relay(fresh, ends)
        return list(routes.values())

    def _refuse_cut_copies(self, routes: Mapping[Place, Route], ends: Mapping[Place, tuple[End, End]]) -> None:
        """Nothing may go on behind copies that are not there any more."""
        configs = self.destination.configs({route.destination for route in routes.values()})
        plain = {name for name, config in configs.items() if config.get("cleanup.policy") == "delete"}
        expected = {
            (route.destination, route.partition): (place, Expected(route.origin.encode(), route.copied))
            for place, route in routes.items()
            if route.copied >= 0 and route.destination in plain
        }
        try:
            lacking = verify_tail.cut(self.checkpoints.reader, {target: wanted for target, (_, wanted) in expected.items()})
        except Fatal as error:
            if error.exit_code != REFUSED:
                raise
            log.info("the copies may not be read, so nobody knows whether the destination holds them all: %s", error)
            return
        for target, last in lacking.items():
            place, wanted = expected[target]
            raise start_position.cut(place, wanted.copied, target[0], last, ends[place][0].bounds.low)

    def _yield_to_an_earlier_relay(self, fresh: Mapping[Place, Route], ends: Mapping[Place, tuple[End, End]]) -> None:
        """Relays that begin together find nothing of each other. Each writes its first checkpoints and reads again: the one
        that wrote first goes on, and the others take theirs back."""
        if not fresh:
            return
        self.checkpoints.refresh()
        others = {other: found for other, found in self.checkpoints.positions.items() if other.relay != self._settings.name}
        try:
            for place in fresh:
                before = {other: found for other, found in others.items() if self.checkpoints.earlier(other, place)}
                start_position.refuse_a_second_writer(place, before, *ends[place])
        except Refused:
            topic = self._settings.checkpoint_topic
            self._write([checkpoint.record(topic, checkpoint.key(*place), None) for place in fresh])
            raise

    def _write_first(self, fresh: Iterable[Route], registration: Registration | None) -> None:
        records = [self._checkpoint(route) for route in fresh]
        if registration is not None:
            records.append(registration_record(self._settings, registration))
        if records:
            self._write(records)

    def _share_out(self, routes: Sequence[Route]) -> None:
        for lane in self._lanes:
            mine = [route for route in routes if self._settings.lane(route.topic, route.partition) == lane.state.number]
            if mine:
                lane.add(mine)

    def _follow(self) -> None:
        """Copy partitions, and topics that a pattern matches, which have come in the meantime."""
        grown = [
            name
            for name, topic in self._watches[0].found.items()
            if name in self._pairs and topic.partitions > self._pairs[name].source.partitions
        ]
        now = time.monotonic()
        if has_patterns(self._settings) and now - self._discovered_at >= DISCOVERY_SECONDS:
            self._discovered_at = now
            grown += [name for name in selected(self._settings, self.source.names()) if name not in self._pairs]
        if not grown:
            return
        settings = self._settings
        found = self.source.allowed(acls.to_read(*grown))
        create = settings.destination.create_topics
        new = {pair.name: pair for pair in pairs(settings, self.source, self.destination, found, create=create)}
        if smallest_limit(self.destination, new.values()) < self._batch_bytes:
            raise Aborted("a topic joins that takes smaller batches than those of these producers")
        before = {name: self._pairs[name].source.partitions for name in new if name in self._pairs}
        self.checkpoints.refresh()
        self._state.unreadable = len(self.checkpoints.unreadable)
        partitions = [
            (pair, number) for pair in new.values() for number in range(before.get(pair.name, 0), pair.source.partitions)
        ]
        self._pairs |= new
        self._state.retention |= retention_seconds(self.source.configs(new))
        routes = self._routes(partitions, None)
        self._watches[0].add({pair.name: pair.source for pair in new.values()})
        self._watches[1].add({pair.destination_name: pair.destination for pair in new.values()})
        self._share_out(routes)
        log.info("copying also %s", in_ranges((pair.name, number) for pair, number in partitions))

    def _copied(self) -> dict[Partition, int]:
        """The next source offsets whose copies are confirmed."""
        return {place: route.committed for lane in self._lanes for place, route in list(lane.state.routes.items())}

    def _keep_sighting(self) -> None:
        """What was last seen of the source, beside the checkpoints: all that is known of it when it is lost."""
        if self._sightings is None:
            return
        if self._sightings.failure is not None:
            raise self._sightings.failure
        if seen := self._sightings.take():
            key, value = checkpoint.key(self._settings.name, checkpoint.SIGHTING), checkpoint.encode(seen)
            self._write([checkpoint.record(self._settings.checkpoint_topic, key, value)])

    def _seen(self) -> float:
        return min(watch.seen for watch in self._watches)

    def _checkpoint(self, route: Route) -> Record:
        settings, pair = self._settings, self._pairs[route.topic]
        place = Place(settings.name, settings.source.region, route.topic, route.partition)
        value = checkpoint.encode(pair.checkpoint(route, self._cluster_ids, now_ms()))
        return checkpoint.record(settings.checkpoint_topic, checkpoint.key(*place), value)
