"""`publisher checkpoint`: positions that a person sets. Every writer of the relay is fenced first, so a relay that runs ends
(exit code 3) and goes on from the new positions when it is started again.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from publisher.errors import Fatal, Retriable
from publisher.kafka.topics import Bounds
from publisher.relay import checkpoints as checkpoint
from publisher.relay.checkpoints import Checkpoint, Place
from publisher.relay.copy import Route
from publisher.relay.fence import control_of, fence, registration, registration_record
from publisher.relay.settings import RelaySettings
from publisher.relay.sides import destination_of, log_of, now_ms, source_of
from publisher.relay.topic_pairs import Pair, pairs

Positions = dict[Place, Checkpoint]


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
    except Retriable as error:
        raise Fatal(str(error), "check bootstrap_servers", 4) from error
    places = {Place(settings.name, settings.source.region, topic, number): offset for number, offset in targets.items()}
    values: dict[Place, bytes | None] = {}
    for place, target in places.items():
        route = Route(settings.source.region, topic, place.partition, pair.destination_name, target)
        values[place] = checkpoint.encode(pair.checkpoint(route, clusters, now_ms()))
    own = _write(settings, "publisher checkpoint set", lambda _: values)
    return [Move(topic, p.partition, own[p].next if p in own else None, target) for p, target in places.items()]


def forget(settings: RelaySettings, topic: str | None) -> list[Move]:
    """Remove the positions of a topic, or all: the relay then begins as if it had never run. Raises Fatal as `move` does."""

    def found(own: Positions) -> dict[Place, bytes | None]:
        return {place: None for place in own if topic in (None, place.topic)}

    own = _write(settings, "publisher checkpoint reset", found)
    return [Move(p.topic, p.partition, own[p].next, None) for p in sorted(found(own))]


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


def _write(settings: RelaySettings, what: str, values: Callable[[Positions], Mapping[Place, bytes | None]]) -> Positions:
    """Fence the relay, then write `values` of the positions that it has reached; those. Raises Fatal: 4 where the destination
    does not answer."""
    checkpoints, told = log_of(settings), registration(settings, uuid.uuid4().hex, what)
    with closing(control_of(settings)) as control:
        try:
            fence(settings, control, checkpoints, told)
        except Retriable as error:
            raise Fatal(str(error), "check destination.bootstrap_servers", 4) from error
        checkpoints.refresh()
        own = checkpoints.of_relay(settings.name)
        records = [checkpoint.record(settings.checkpoint_topic, checkpoint.key(p), value) for p, value in values(own).items()]
        control.publish([*records, registration_record(settings, told)])
    return own
