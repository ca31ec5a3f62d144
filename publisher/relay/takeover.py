"""Taking over a relay: its clusters, its checkpoints, and every transactional id under which anything may still write for it.

Whoever changes a relay's positions does it through here, `publisher run` and `publisher checkpoint` alike: fence first, then
read to the end, then write.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
from confluent_kafka import KafkaException, Producer

from publisher.errors import Aborted
from publisher.kafka import clients as kafka
from publisher.kafka.clients import introduced, unwrapping
from publisher.kafka.connection import connect
from publisher.kafka.groups import ConsumerGroups, Follower
from publisher.kafka.reader import TopicReader
from publisher.kafka.topics import Cluster
from publisher.relay import checkpoints as checkpoint
from publisher.relay.checkpoints import Checkpoint, CheckpointLog, Place, Registration
from publisher.relay.clients import begin, near_writer, quick
from publisher.relay.copy import Route
from publisher.relay.settings import ClusterSettings, RelaySettings
from publisher.relay.topic_pairs import Pair

ANSWER_SECONDS = 5.0


def encoded(settings: RelaySettings, clusters: tuple[str, str], pair: Pair, route: Route) -> tuple[bytes, bytes]:
    """Key and value of the checkpoint of a route as it is; `clusters` are the ids of source and destination."""
    value = Checkpoint(
        next=route.next,
        cluster=clusters[0],
        topic_id=pair.source.id,
        destination_cluster=clusters[1],
        destination_topic=pair.destination_name,
        destination_topic_id=pair.destination.id,
        copied=route.copied,
        epoch=route.epoch,
        timestamp_ms=route.timestamp_ms,
        at_ms=now_ms(),
        copies_from=route.copies_from,
    )
    return checkpoint.key(Place(settings.name, settings.source.region, route.topic, route.partition)), checkpoint.encode(value)


def fence(
    settings: RelaySettings,
    checkpoints: CheckpointLog,
    told: Registration,
    stopping: threading.Event,
    openings: Sequence[Callable[[float], Producer]] = (),
    on_look: Callable[[], None] = lambda: None,
) -> Producer:
    """Take every transactional id of the relay, its lanes' by `openings` if there are any; the producer of its checkpoints.

    That producer's comes first, and then the registration: whoever loses a lane must find who has replaced it, or it would take
    the lanes back. `on_look` is called when nobody else can register any more, and may raise. Until all lanes are fenced the
    registration names as many as any process may still have.

    A lane of a predecessor that renews a producer takes that id back. It then commits with its other id, so it ends if that was
    taken by then; and where it was not yet, the commit that follows here with every id finds the one that is gone.
    """
    seconds = settings.destination.transaction_timeout_ms / 1_000 + ANSWER_SECONDS
    name = f"{settings.transactional_prefix}checkpoints"
    control = _taken(settings, name, stopping, seconds)
    checkpoints.look(settings.name)
    on_look()
    last = checkpoints.registrations.get(settings.name)
    claim = msgspec.structs.replace(told, lanes=max(last.lanes if last else 0, settings.lanes))
    registered = [(checkpoint.registration_key(settings.name), checkpoint.encode(claim))]
    write(control, settings.checkpoint_topic, registered)
    others = range(settings.lanes if openings else 0, claim.lanes)
    names = [name for lane in others for name in settings.transactional_ids(lane)]
    with ThreadPoolExecutor(len(names) + len(openings) or 1, thread_name_prefix="take-over") as pool:
        opened = [pool.submit(opening, seconds) for opening in openings]
        opened += [pool.submit(_taken, settings, name, stopping, seconds) for name in names]
        producers = [future.result() for future in opened]
        for _ in pool.map(lambda producer: write(producer, settings.checkpoint_topic, registered), producers):
            pass
    return control


def _taken(settings: RelaySettings, name: str, stopping: threading.Event, seconds: float) -> Producer:
    """A producer of this id, which nobody else has from here on. Raises as `begin` does."""
    writer = introduced(near_writer(settings, name), settings.checkpoint_topic)
    return begin(settings, name, writer, stopping, seconds)


def write(producer: Producer, topic: str, records: Iterable[tuple[bytes, bytes | None]]) -> None:
    """Keys and values in one transaction. Raises Aborted."""
    try:
        with unwrapping():
            producer.begin_transaction()
            for key, value in records:
                producer.produce(topic, value, key)
            producer.commit_transaction(ANSWER_SECONDS)
    except KafkaException as exception:
        raise Aborted(f"the checkpoints could not be written: {exception.args[0].str()}") from exception


def reach(settings: RelaySettings) -> None:
    """See that both clusters answer. Raises Fatal as `connect` does, within seconds and with the way out."""
    for cluster in (settings.source.kafka, settings.destination.kafka):
        connect(quick(cluster), settings.name, ANSWER_SECONDS)


def source_of(settings: RelaySettings) -> Cluster:
    """The source, to be asked."""
    name = f"{settings.source.region} (source)"
    return Cluster(quick(settings.source.kafka), settings.name, name, ANSWER_SECONDS)


def destination_of(settings: RelaySettings) -> Cluster:
    """The destination, to be asked."""
    name = f"{settings.destination.region} (destination)"
    return Cluster(quick(settings.destination.kafka), settings.name, name, ANSWER_SECONDS)


def groups_of(cluster: ClusterSettings, client_id: str) -> ConsumerGroups:
    """The consumer groups of one side, to be asked."""
    return ConsumerGroups(kafka.admin(quick(cluster.kafka), client_id), cluster.region, ANSWER_SECONDS)


def follower_of(settings: RelaySettings) -> Follower:
    """Where the groups of the source stand that the relay follows."""
    return Follower(quick(settings.source.kafka), settings.name, settings.source.groups, ANSWER_SECONDS)


def log_of(settings: RelaySettings) -> CheckpointLog:
    """The checkpoints at the destination."""
    return CheckpointLog(TopicReader(settings.destination.kafka, settings.name, ANSWER_SECONDS), settings.checkpoint_topic)


def registration(settings: RelaySettings, instance: str, what: str) -> Registration:
    """This process, as a relay's last one."""
    return Registration(settings.lanes, instance, what, socket.gethostname(), os.getpid(), now_ms())


def now_ms() -> int:
    """The wall clock, Unix ms."""
    return time.time_ns() // 1_000_000
