"""Turns the records that were read into those that are written: the same but for three headers. No decision about positions.

`x-origin` says where a record was first written and is kept by further copies; `x-hops` counts the copies; `x-copied-to` names
the partition that the copy was written to. A program that forwards headers writes them elsewhere: that record is no copy, and
gets an origin of its own. `copy` is the one loop that runs for each record, so it does for each no more than it must.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from confluent_kafka import Message

from publisher.kafka.headers import headers_of
from publisher.kafka.partitions import Partition
from publisher.kafka.source_position import COPIED_TO, HOPS, ORIGIN, OWN, Position, address, origin_of

ROOM = 1_024  # bytes that the headers may add to a record: two region and topic names of the longest kind
FIRST_HOP = (HOPS, b"1")
LONGEST_COUNT = 9  # digits; longer ones are no hop counts

Headers = list[tuple[str, Any]]


class Route:
    """One partition's way: from where to where, and how far.

    `next` is the next offset to read, `copied` the last one that was copied (-1: none), `end` where the source's log ends as
    last heard; `timestamp_ms` and `epoch` are those of the last record (-1: none), `read` is the offset behind it. `committed`
    and `confirmed` are `next` and `copied` in the last confirmed checkpoint, `copies_from` is the checkpoint's. `sent` is the
    last record that was copied, `passed` the last one that was not. At `level_ms` (Unix ms) nothing waited behind the confirmed
    records (-1: never).
    """

    __slots__ = (
        "committed", "confirmed", "copied", "copies_from", "destination", "end", "epoch", "level_ms", "next", "origin",
        "partition", "passed", "read", "sent", "tail", "timestamp_ms", "topic",
    )  # fmt: skip

    def __init__(self, region: str, topic: str, partition: int, destination: str, start: int, copied: int = -1) -> None:
        self.topic = topic
        self.partition = partition
        self.destination = destination
        self.origin = str(Position(region, topic, partition, 0))[:-1]
        self.tail = (FIRST_HOP, (COPIED_TO, address(destination, partition)))
        self.next = self.read = self.committed = self.end = start
        self.copied = self.confirmed = copied
        self.timestamp_ms = self.epoch = self.level_ms = -1
        self.copies_from = 0
        self.sent: Message | None = None
        self.passed: Message | None = None

    def settle(self) -> bool:
        """Take over what the last records say; whether there is more than the last confirmed checkpoint holds."""
        for message in (self.sent, self.passed):
            if message is not None:
                offset, epoch = message.offset(), message.leader_epoch()
                assert offset is not None
                if message is self.sent:
                    self.copied = offset
                if offset >= self.next:
                    self.next = self.read = offset + 1
                    self.timestamp_ms = message.timestamp()[1]
                    self.epoch = -1 if epoch is None else epoch
        self.sent = self.passed = None
        return self.next != self.committed

    def reach(self, end: int, now_ms: int) -> None:
        """Advance to the end of the partition, past offsets without a record. All records before it have been read."""
        self.settle()
        self.next = max(self.next, end)
        if self.read <= self.committed:
            self.level_ms = now_ms

    def confirm(self) -> None:
        """A checkpoint of what was settled is committed."""
        self.committed, self.confirmed = self.next, self.copied

    def rewind(self) -> None:
        self.sent = self.passed = None
        self.next, self.copied = self.committed, self.confirmed
        self.read = self.next


@dataclass(slots=True)
class Tally:
    """What became of records: plain integers. `derived` are those of `copied` that carried the origin of another record,
    `refused` went to the refusal topic."""

    copied: int = 0
    looped: int = 0
    filtered: int = 0
    derived: int = 0
    refused: int = 0

    @property
    def written(self) -> int:
        """Records that a transaction holds."""
        return self.copied + self.refused


class Rules:
    """Which records of region `source` are copied: no copy of a record that was first written in `region`, the destination's;
    with a filter only those that hold, for each header it names, one of its values. `renaming` is the form of destination
    topics."""

    def __init__(self, source: str, region: str, wanted: Mapping[str, Sequence[str]], renaming: str = "{topic}") -> None:
        self._source, self._home = (quote(name, safe="").encode("ascii") + b"/" for name in (source, region))
        self._renaming = renaming
        self.wanted = {name: frozenset(value.encode() for value in values) for name, values in wanted.items()}

    def marked(self, headers: Headers, route: Route, offset: int, tally: Tally) -> Headers | None:
        """The headers of the copy of a record that has `headers`; None for a record that comes from the destination."""
        for name, _ in headers:
            if name == ORIGIN:
                return self._once_more(headers, route, offset, tally)
        headers.append((ORIGIN, f"{route.origin}{offset}"))
        headers.extend(route.tail)
        return headers

    def origin(self, headers: Headers | None, partition: Partition) -> bytes | None:
        """As `origin_of`, for a record of the source; None also for one first written in this very region."""
        found = origin_of(headers, partition, self._renaming)
        return None if found is None or found.startswith(self._source) else found

    def is_home(self, origin: bytes) -> bool:
        """Whether a record of this `x-origin` was first written at the destination."""
        return origin.startswith(self._home)

    def passes(self, headers: Headers | None) -> bool:
        there = headers or []
        return all(any(name == wanted and value in values for name, value in there) for wanted, values in self.wanted.items())

    def _once_more(self, headers: Headers, route: Route, offset: int, tally: Tally) -> Headers | None:
        origin, hops = self.origin(headers, (route.topic, route.partition)), 0
        if origin is None:
            tally.derived += 1
            origin = f"{route.origin}{offset}".encode()
        elif self.is_home(origin):
            tally.looped += 1
            return None
        else:
            told = dict(headers).get(HOPS) or b""
            hops = int(told) if told.isdigit() and len(told) <= LONGEST_COUNT else 0
        kept = [header for header in headers if header[0] not in OWN]
        return [*kept, (ORIGIN, origin), (HOPS, b"%d" % (hops + 1)), route.tail[1]]


def copy(
    messages: Sequence[Message],
    routes: Mapping[Partition, Route],
    rules: Rules,
    produce: Callable[..., None],
    tally: Tally,
    refuse: Callable[[Message, Exception], None],
) -> list[Message]:
    """Write the copies with `produce` (as Producer.produce takes them), all but three headers as they were; what was no record
    (ends of partitions, errors). Records of partitions without a route are passed over. `refuse` is called for a record, of any
    partition, whose headers the client cannot read. Raises what `produce` and `refuse` raise."""
    events: list[Message] = []
    marked, filtering, find = rules.marked, bool(rules.wanted), routes.get
    all_headers, unread = headers_of(messages)
    for place, (message, headers) in enumerate(zip(messages, all_headers, strict=True)):
        if place in unread:
            refuse(message, unread[place])
            continue
        if message.error() is not None:
            events.append(message)
            continue
        route = find((message.topic(), message.partition()))  # type: ignore[arg-type]
        if route is None:
            continue
        if filtering and not rules.passes(headers):
            route.passed = message
            tally.filtered += 1
            continue
        if headers:
            headers = marked(headers, route, message.offset(), tally)  # type: ignore[arg-type]
            if headers is None:
                route.passed = message
                continue
        else:
            headers = [(ORIGIN, f"{route.origin}{message.offset()}"), *route.tail]
        stamp = max(message.timestamp()[1], 0)
        route.sent = message  # also where `produce` refuses it
        produce(route.destination, message.value(), message.key(), route.partition, None, None, stamp, headers)
        tally.copied += 1
    return events
