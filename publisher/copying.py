"""Turns the records that were read into those that are written: the same but for two headers. No decision about positions.

`x-origin` says where a record was first written and is never changed; `x-hops` counts the copies. This is the one loop that
runs for each record, so it does for each no more than it must.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from confluent_kafka import Message

from publisher.positions import Position
from publisher.topic_reader import Partition

ORIGIN = "x-origin"
HOPS = "x-hops"
ROOM = 1_024  # bytes that the headers may add to a record: two region and topic names of the longest kind
FIRST_HOP = (HOPS, b"1")
LONGEST_COUNT = 9  # digits; longer ones are no hop counts

Headers = list[tuple[str, Any]]


class Route:
    """One partition's way: from where to where, and how far.

    `next` is the next offset to read, `committed` the one that the last confirmed checkpoint holds, `end` where the source's
    log ends as last heard; `timestamp_ms` and `epoch` are those of the last record (-1: none).
    """

    __slots__ = ("committed", "destination", "end", "epoch", "last", "next", "origin", "partition", "timestamp_ms", "topic")

    def __init__(self, region: str, topic: str, partition: int, destination: str, start: int) -> None:
        self.topic = topic
        self.partition = partition
        self.destination = destination
        self.origin = str(Position(region, topic, partition, 0))[:-1]
        self.next = self.committed = self.end = start
        self.timestamp_ms = self.epoch = -1
        self.last: Message | None = None

    def settle(self) -> bool:
        """Take over what the last copied record says; whether there is more than the last confirmed checkpoint holds."""
        last, self.last = self.last, None
        if last is not None:
            offset, epoch = last.offset(), last.leader_epoch()
            assert offset is not None
            self.next = offset + 1
            self.timestamp_ms = last.timestamp()[1]
            self.epoch = -1 if epoch is None else epoch
        return self.next != self.committed


@dataclass(slots=True)
class Tally:
    """What became of records: plain integers."""

    copied: int = 0
    looped: int = 0
    filtered: int = 0


class Rules:
    """Which records are copied: none that was first written in `region`, the destination's; with a filter only those
    that hold, for each header it names, one of its values."""

    def __init__(self, region: str, wanted: Mapping[str, Sequence[str]]) -> None:
        self._home = quote(region, safe="").encode("ascii") + b"/"
        self.wanted = {name: frozenset(value.encode() for value in values) for name, values in wanted.items()}

    def marked(self, headers: Headers, origin: str, offset: int) -> Headers | None:
        """The headers of the copy of a record that has `headers`; None where it comes from the destination."""
        for name, value in headers:
            if name == ORIGIN:
                return self._once_more(headers, value or b"")
        headers.append((ORIGIN, f"{origin}{offset}"))
        headers.append(FIRST_HOP)
        return headers

    def is_home(self, origin: bytes) -> bool:
        """Whether a record of this `x-origin` was first written at the destination."""
        return origin.startswith(self._home)

    def passes(self, headers: Headers | None) -> bool:
        """Whether the filter lets a record through."""
        there = headers or []
        return all(any(name == wanted and value in values for name, value in there) for wanted, values in self.wanted.items())

    def _once_more(self, headers: Headers, origin: bytes) -> Headers | None:
        if self.is_home(origin):
            return None
        hops = next((value for name, value in headers if name == HOPS), None) or b""
        count = int(hops) + 1 if hops.isdigit() and len(hops) <= LONGEST_COUNT else 1
        return [*(header for header in headers if header[0] != HOPS), (HOPS, b"%d" % count)]


def copy(
    messages: Sequence[Message],
    routes: Mapping[Partition, Route],
    rules: Rules,
    produce: Callable[..., None],
    tally: Tally,
) -> list[Message]:
    """Write the copies with `produce` (as Producer.produce takes them); what was no record (ends of partitions, errors).

    Key, value, timestamp, partition and all headers are kept. Raises what `produce` raises.
    """
    events: list[Message] = []
    marked, filtering = rules.marked, bool(rules.wanted)
    for message in messages:
        if message.error() is not None:
            events.append(message)
            continue
        route = routes[message.topic(), message.partition()]  # type: ignore[index]
        route.last = message
        headers: Any = message.headers()
        if filtering and not rules.passes(headers):
            tally.filtered += 1
            continue
        if headers:
            headers = marked(headers, route.origin, message.offset())  # type: ignore[arg-type]
            if headers is None:
                tally.looped += 1
                continue
        else:
            headers = [(ORIGIN, f"{route.origin}{message.offset()}"), FIRST_HOP]
        stamp = message.timestamp()[1]
        produce(route.destination, message.value(), message.key(), route.partition, None, None, max(stamp, 0), headers)
        tally.copied += 1
    return events
