"""`publisher checkpoint`: positions that a person sets. Every writer of the relay is fenced first, so a relay that runs ends
(exit code 3) and goes on from the new positions when it is started again.
"""

import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Producer

from publisher.errors import Fatal, Retriable
from publisher.kafka.topics import Bounds
from publisher.relay import checkpoints as checkpoint
from publisher.relay.checkpoints import Place, Registration
from publisher.relay.copy import Route
from publisher.relay.settings import RelaySettings
from publisher.relay.takeover import destination_of, encoded, fence, log_of, registration, source_of, write
from publisher.relay.topic_pairs import Pair, pairs


@dataclass(frozen=True)
class Move:
    """A position that was changed: `before` and `after` are next offsets; None is none."""

    topic: str
    partition: int
    before: int | None
    after: int | None


def move(settings: RelaySettings, topic: str, partition: int | None, to: str) -> list[Move]:
    """Go on from `to` (earliest, latest, or an offset that the log holds) in one partition or all of a topic, with the topics
    and clusters as they are now. Raises Fatal: 2 for what is not there, 4 where a cluster does not answer.
    """
    try:
        source, destination = source_of(settings), destination_of(settings)
        clusters = source.id(), destination.id()
        found = source.topics([topic])
        if not found:
            raise Fatal(f"topic {topic} does not exist in {settings.source.region}", "see source.topics", 2)
        pair = pairs(settings, source, destination, found, create=False)[0]
        numbers = _numbers(pair, partition)
        bounds = source.bounds((topic, number) for number in numbers)
        targets = {number: offset(to, bounds[topic, number], f"{topic}[{number}]") for number in numbers}
        checkpoints = log_of(settings)
        told = registration(settings, uuid.uuid4().hex, "publisher checkpoint set")
        control = fence(settings, checkpoints, told, threading.Event())
        checkpoints.refresh()
        own = checkpoints.of_relay(settings.name)
    except Retriable as error:
        raise Fatal(str(error), "check bootstrap_servers", 4) from error
    places = {number: Place(settings.name, settings.source.region, topic, number) for number in numbers}
    moves = [Move(topic, n, own[places[n]].next if places[n] in own else None, targets[n]) for n in numbers]
    routes = [Route(settings.source.region, topic, n, pair.destination_name, targets[n]) for n in numbers]
    records: list[tuple[bytes, bytes | None]] = [encoded(settings, clusters, pair, route) for route in routes]
    _write(settings, control, records, told)
    return moves


def forget(settings: RelaySettings, topic: str | None) -> list[Move]:
    """Remove the positions of a topic, or all: the relay then begins as if it had never run. Raises Fatal as `move` does."""
    checkpoints = log_of(settings)
    told = registration(settings, uuid.uuid4().hex, "publisher checkpoint reset")
    try:
        control = fence(settings, checkpoints, told, threading.Event())
    except Retriable as error:
        raise Fatal(str(error), "check destination.bootstrap_servers", 4) from error
    checkpoints.refresh()
    own = {p: found for p, found in checkpoints.of_relay(settings.name).items() if topic in (None, p.topic)}
    _write(settings, control, [(checkpoint.key(place), None) for place in own], told)
    return [Move(place.topic, place.partition, found.next, None) for place, found in sorted(own.items())]


def offset(to: str, bounds: Bounds, where: str) -> int:
    """The offset that `to` names. Pure. Raises Fatal (2)."""
    if to in ("earliest", "latest"):
        return bounds.low if to == "earliest" else bounds.high
    if not to.isdigit() or not bounds.low <= int(to) <= bounds.high:
        raise Fatal(f"{to!r} is no offset of {where}, which holds {bounds.low} to {bounds.high}", "or: --to earliest|latest", 2)
    return int(to)


def _numbers(pair: Pair, partition: int | None) -> Sequence[int]:
    if partition is None:
        return range(pair.source.partitions)
    if partition >= pair.source.partitions:
        raise Fatal(f"{pair.name} has no partition {partition}", f"it has 0 to {pair.source.partitions - 1}", 2)
    return [partition]


def _write(settings: RelaySettings, control: Producer, records: list[tuple[bytes, bytes | None]], told: Registration) -> None:
    records.append((checkpoint.registration_key(settings.name), checkpoint.encode(told)))
    write(control, settings.checkpoint_topic, records)
