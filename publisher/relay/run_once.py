"""One run of a relay: resolve the topics, fence other processes, begin, supervise, close.

`Relay` starts a new run after every failure. Each copying thread (lane) has a transaction session. One more session, `control`,
registers the process and writes the first checkpoints of new partitions.
"""

# `control` writes the first checkpoints of all new partitions of a topic in one transaction. If a partition has a checkpoint,
# all partitions of the topic with lower numbers therefore have one too. If one of them has none, its checkpoint was lost.

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from publisher.errors import REFUSED, USAGE, Aborted, Fatal
from publisher.kafka import acls
from publisher.kafka.clients import LARGEST_BATCH
from publisher.kafka.partitions import Partition, in_ranges
from publisher.kafka.topics import Topic, retention_seconds
from publisher.relay import checkpoints as checkpoint
from publisher.relay import start_position, verify_tail
from publisher.relay.checkpoints import Checkpoint, CheckpointKey, Registration
from publisher.relay.clients import with_short_timeouts
from publisher.relay.clusters import ANSWER_SECONDS, open_checkpoint_log, open_topics
from publisher.relay.copy_worker import CopyWorker
from publisher.relay.fence import control_of, fence, registration_record
from publisher.relay.rate_limit import RateLimit
from publisher.relay.relay_state import RelayState
from publisher.relay.settings import RelaySettings
from publisher.relay.source_progress import SourcePoller
from publisher.relay.start_position import CopyEndpoint, CopyRefused
from publisher.relay.topic_ids_watch import ABSENT_SECONDS, TopicIdWatch
from publisher.relay.topic_mapping import TopicPair, ensure_relay_topics, has_patterns, pairs, selected, smallest_limit
from publisher.relay.transaction_writer import WorkerContext
from publisher.relay.transform import Route
from publisher.relay.verify_tail import ExpectedTail
from publisher.runtime.context import Context, now_ms
from publisher.transactions.exactly_once import TransactionSession
from publisher.transactions.session import Record
from publisher.transactions.wait_for_open_transactions import OpenTransactions

log = logging.getLogger(__name__)

SUPERVISION_SECONDS = 0.25
DISCOVERY_SECONDS = 5.0


class RelayRun:
    """Runs the relay once, until the first failure.

    Call the methods in the order `resolve_topics`, `take_over`, `begin`, `supervise`, `close`. Methods raise Fatal,
    CopyRefused, Retriable or Aborted. `close` is allowed at any time.
    """

    def __init__(self, settings: RelaySettings, state: RelayState, stop_requested: threading.Event) -> None:
        self._settings = settings
        self._state = state
        self._stop_requested = stop_requested
        self._stopping = threading.Event()
        self._worker_ended = threading.Event()
        self.source, self.destination = open_topics(settings)
        self.checkpoints = open_checkpoint_log(settings)
        self._pairs: dict[str, TopicPair] = {}
        self._batch_bytes = LARGEST_BATCH
        self._cluster_ids = ("", "")
        self._workers: list[CopyWorker] = []
        self._control: TransactionSession | None = None
        self._watches: list[TopicIdWatch] = []
        self._source_poller: SourcePoller | None = None
        self._discovered_at = time.monotonic()
        self._context = Context(raise_if_cancelled=self._raise_if_stopped)

    def resolve_topics(self) -> None:
        """Find the topics to copy and their destinations, and read the checkpoints."""
        settings = self._settings
        self._cluster_ids = self.source.id(), self.destination.id()
        create = settings.destination.create_topics
        ensure_relay_topics(settings, self.destination, create=create)
        self.checkpoints.refresh_visible(settings.name)
        self._state.unreadable = len(self.checkpoints.unreadable)
        topics = self._source_topics(time.monotonic() + (ABSENT_SECONDS if self._state.registered else 0.0))
        self._pairs = {pair.name: pair for pair in pairs(settings, self.source, self.destination, topics, create=create)}
        self._batch_bytes = smallest_limit(self.destination, self._pairs.values())
        self._state.retention = retention_seconds(self.source.configs(self._pairs))

    def take_over(self, registration: Registration, on_control_owned: Callable[[], None]) -> None:
        """Fence all other processes of the relay, and wait until their transactions are committed or aborted.

        Args:
            registration: the registration of this process.
            on_control_owned: as in `fence`.
        """
        settings = self._settings
        written = [pair.destination_name for pair in self._pairs.values()]
        written += [topic for topic in (settings.checkpoint_topic, settings.refusal_topic) if topic]
        open_transactions = OpenTransactions(with_short_timeouts(settings.destination.kafka), settings.name, written)
        worker_context = WorkerContext(
            settings=settings,
            checkpoint=self._checkpoint,
            topics_checked_at=self._topics_checked_at,
            context=self._context,
            wait_until_decided=open_transactions.wait,
            batch_bytes=self._batch_bytes,
            rate_limit=RateLimit(settings.bytes_per_second),
            stopping=self._stopping,
            ended=self._worker_ended,
        )
        self._workers = [CopyWorker(worker_context, lane) for lane in self._state.lanes]
        self._control = control_of(settings, self._context)
        openings = [worker.open for worker in self._workers]
        fence(settings, self._control, self.checkpoints, registration, openings, on_control_owned)

    def begin(self, registration: Registration) -> None:
        """Verify where the copy of each partition starts, register this process, and start the copying threads."""
        self.checkpoints.refresh()
        self._state.unreadable = len(self.checkpoints.unreadable)
        partitions = [(pair, number) for pair in self._pairs.values() for number in range(pair.source.partitions)]
        routes = self._verified_routes(partitions, registration)
        sources = {pair.name: pair.source for pair in self._pairs.values()}
        destinations = {pair.destination_name: pair.destination for pair in self._pairs.values()}
        self._watches = [
            TopicIdWatch(self.source, self._settings.source.region, sources),
            TopicIdWatch(self.destination, self._settings.destination.region, destinations),
        ]
        self._assign(routes)
        for worker in self._workers:
            worker.start()
        if self._settings.source.groups:
            stored = self.checkpoints.snapshots.get(self._settings.name)
            self._source_poller = SourcePoller(self._settings, self._cluster_ids[0], self.source, self._copied, stored)
        log.info("copying %d partitions of %s in %d lanes", len(routes), ", ".join(self._pairs), len(self._workers))

    def supervise(self) -> None:
        """Supervise the copying threads until a stop of the relay is requested.

        Raises the error that has ended a copying thread, a TopicIdWatch or the SourcePoller.
        """
        while not self._stop_requested.wait(SUPERVISION_SECONDS):
            self._state.topics_checked_at = self._topics_checked_at()
            self._store_source_snapshot()
            for watch in self._watches:
                if watch.failure is not None:
                    raise watch.failure
            if self._worker_ended.is_set():
                for worker in self._workers:
                    if worker.failure is not None:
                        raise worker.failure
            self._add_new_partitions()

    def close(self) -> None:
        """Stop the copying threads after their current transactions, and close all threads and sessions.

        Never raises. A thread that does not end in time is logged.
        """
        self._stopping.set()
        for watch in self._watches:
            watch.close()
        if self._source_poller is not None:
            self._source_poller.close()
        deadline = time.monotonic() + self._settings.destination.transaction_timeout_ms / 1_000 + ANSWER_SECONDS
        for worker in self._workers:
            if not worker.join(max(0.0, deadline - time.monotonic())):
                log.error("lane %d has not stopped in time", worker.state.number)
        if self._control is not None:
            self._control.close()

    def _raise_if_stopped(self) -> None:
        if self._stop_requested.is_set():
            raise Aborted("a stop was requested")

    def _write(self, records: Sequence[Record]) -> None:
        assert self._control is not None, "all other processes must be fenced before anything is written"
        self._control.publish(records)

    def _source_topics(self, deadline: float) -> dict[str, Topic]:
        """Return the source topics to copy. Raises Fatal if one is missing after the deadline (monotonic seconds).

        Until the deadline the method waits, because a broker that has just restarted may not know all topics yet.
        """
        while True:
            names = selected(self._settings, self.source.names() if has_patterns(self._settings) else [])
            copied = {key.topic for key in self.checkpoints.checkpoints_of(self._settings.name)}
            topics = self.source.allowed(acls.to_read(*names))
            missing = [name for name in names if name not in topics]
            if not missing:
                return topics
            if time.monotonic() >= deadline or self._stop_requested.wait(0.2):
                region = self._settings.source.region
                if missing[0] in copied:
                    raise start_position.missing_topic(missing[0], region)
                hint = self.source.hint(missing[0], "create the topic, or correct source.topics", names)
                raise Fatal(f"topic {missing[0]} does not exist in {region}", hint, USAGE)

    def _verified_routes(self, partitions: Sequence[tuple[TopicPair, int]], registration: Registration | None) -> list[Route]:
        """Check the start positions of these partitions, write the first checkpoints of new partitions, and return all routes.

        Args:
            partitions: for each partition, its pair of topics and its number.
            registration: the registration to write together with the first checkpoints; None for none.
        """
        settings = self._settings
        source_bounds = self.source.bounds((pair.name, number) for pair, number in partitions)
        destination_bounds = self.destination.bounds((pair.destination_name, number) for pair, number in partitions)
        positions = self.checkpoints.checkpoints_of(settings.name)
        others = self._positions_of_others()
        routes: dict[CheckpointKey, Route] = {}
        endpoints: dict[CheckpointKey, tuple[CopyEndpoint, CopyEndpoint]] = {}
        for pair, number in partitions:
            key = CheckpointKey(settings.name, settings.source.region, pair.name, number)
            bounds = source_bounds[pair.name, number]
            copy_bounds = destination_bounds[pair.destination_name, number]
            endpoints[key] = (
                CopyEndpoint(self._cluster_ids[0], pair.name, pair.source, bounds),
                CopyEndpoint(self._cluster_ids[1], pair.destination_name, pair.destination, copy_bounds),
            )
            checkpointed = [k.partition for k in positions if (k.region, k.topic) == (key.region, key.topic)]
            start = start_position.start(key, positions.get(key), others, *endpoints[key], checkpointed)
            copied = positions[key].copied if key in positions else -1
            route = routes[key] = Route(key.region, pair.name, number, pair.destination_name, start, copied)
            route.end = bounds.high
            if key in positions:
                route.timestamp_ms = positions[key].timestamp_ms
                route.epoch = positions[key].epoch
                route.copies_from = positions[key].copies_from
        self._refuse_lost_tails(routes, endpoints)
        new = {key: route for key, route in routes.items() if key not in positions}
        self._write_first_checkpoints(new.values(), registration)
        self._yield_to_earlier_relay(new, endpoints)
        return list(routes.values())

    def _positions_of_others(self) -> dict[CheckpointKey, Checkpoint]:
        positions = self.checkpoints.positions
        return {key: position for key, position in positions.items() if key.relay != self._settings.name}

    def _refuse_lost_tails(
        self, routes: Mapping[CheckpointKey, Route], endpoints: Mapping[CheckpointKey, tuple[CopyEndpoint, CopyEndpoint]]
    ) -> None:
        """Raise CopyRefused if a destination partition has lost its last copies, so that further copies would follow a gap."""
        configs = self.destination.configs({route.destination for route in routes.values()})
        uncompacted = {name for name, config in configs.items() if config.get("cleanup.policy") == "delete"}
        expected = {
            (route.destination, route.partition): (key, ExpectedTail(route.origin.encode(), route.copied))
            for key, route in routes.items()
            if route.copied >= 0 and route.destination in uncompacted
        }
        tails = {partition: tail for partition, (_, tail) in expected.items()}
        try:
            lost = verify_tail.find_lost_tails(self.checkpoints.reader, tails)
        except Fatal as error:
            if error.exit_code != REFUSED:
                raise
            log.info("no right to read the destination topics, so the relay cannot check whether copies were lost: %s", error)
            return
        for partition, last in lost.items():
            key, tail = expected[partition]
            raise start_position.lost_tail(key, tail.copied, partition[0], last, endpoints[key][0].bounds.low)

    def _yield_to_earlier_relay(
        self, new: Mapping[CheckpointKey, Route], endpoints: Mapping[CheckpointKey, tuple[CopyEndpoint, CopyEndpoint]]
    ) -> None:
        """Raise CopyRefused if another relay has written a checkpoint for one of the new partitions earlier.

        Before the error is raised, the checkpoints that this relay has written for the new partitions are deleted.
        """
        # Relays that start at the same time cannot see each other's checkpoints. Each therefore writes its first checkpoints,
        # and then reads the checkpoint topic again. The relay that wrote first continues.
        if not new:
            return
        self.checkpoints.refresh()
        others = self._positions_of_others()
        try:
            for key in new:
                earlier = {other: position for other, position in others.items() if self.checkpoints.is_earlier(other, key)}
                start_position.refuse_second_writer(key, earlier, *endpoints[key])
        except CopyRefused:
            topic = self._settings.checkpoint_topic
            self._write([checkpoint.record(topic, checkpoint.encode_key(*key), None) for key in new])
            raise

    def _write_first_checkpoints(self, new: Iterable[Route], registration: Registration | None) -> None:
        records = [self._checkpoint(route) for route in new]
        if registration is not None:
            records.append(registration_record(self._settings, registration))
        if records:
            self._write(records)

    def _assign(self, routes: Sequence[Route]) -> None:
        for worker in self._workers:
            lane = worker.state.number
            assigned = [route for route in routes if self._settings.lane(route.topic, route.partition) == lane]
            if assigned:
                worker.add(assigned)

    def _add_new_partitions(self) -> None:
        """Start to copy new partitions of the source topics, and new topics that match a pattern in source.topics."""
        names = [
            name
            for name, topic in self._watches[0].found.items()
            if name in self._pairs and topic.partitions > self._pairs[name].source.partitions
        ]
        now = time.monotonic()
        if has_patterns(self._settings) and now - self._discovered_at >= DISCOVERY_SECONDS:
            self._discovered_at = now
            names += [name for name in selected(self._settings, self.source.names()) if name not in self._pairs]
        if not names:
            return
        settings = self._settings
        topics = self.source.allowed(acls.to_read(*names))
        create = settings.destination.create_topics
        new = {pair.name: pair for pair in pairs(settings, self.source, self.destination, topics, create=create)}
        if smallest_limit(self.destination, new.values()) < self._batch_bytes:
            raise Aborted("a new destination topic accepts only smaller batches than the current producers send")
        before = {name: self._pairs[name].source.partitions for name in new if name in self._pairs}
        self.checkpoints.refresh()
        self._state.unreadable = len(self.checkpoints.unreadable)
        partitions = [
            (pair, number) for pair in new.values() for number in range(before.get(pair.name, 0), pair.source.partitions)
        ]
        self._pairs |= new
        self._state.retention |= retention_seconds(self.source.configs(new))
        routes = self._verified_routes(partitions, None)
        self._watches[0].add({pair.name: pair.source for pair in new.values()})
        self._watches[1].add({pair.destination_name: pair.destination for pair in new.values()})
        self._assign(routes)
        log.info("also copying %s", in_ranges((pair.name, number) for pair, number in partitions))

    def _copied(self) -> dict[Partition, int]:
        """Return the next source offset of each partition, as of its last committed checkpoint."""
        routes = [item for worker in self._workers for item in list(worker.state.routes.items())]
        return {partition: route.committed for partition, route in routes}

    def _store_source_snapshot(self) -> None:
        """Write the newest snapshot of the source, if there is one, to the checkpoint topic.

        Raises the error that has ended the source poller.
        """
        # If the source is lost, only this snapshot shows its last state.
        if self._source_poller is None:
            return
        if self._source_poller.failure is not None:
            raise self._source_poller.failure
        if snapshot := self._source_poller.take():
            key = checkpoint.encode_key(self._settings.name, checkpoint.SOURCE_SNAPSHOT)
            self._write([checkpoint.record(self._settings.checkpoint_topic, key, checkpoint.encode(snapshot))])

    def _topics_checked_at(self) -> float:
        return min(watch.seen for watch in self._watches)

    def _checkpoint(self, route: Route) -> Record:
        settings = self._settings
        pair = self._pairs[route.topic]
        key = CheckpointKey(settings.name, settings.source.region, route.topic, route.partition)
        value = checkpoint.encode(pair.checkpoint(route, self._cluster_ids, now_ms()))
        return checkpoint.record(settings.checkpoint_topic, checkpoint.encode_key(*key), value)
