"""Turn source records into copies, which differ from the source records in three headers only. Decides no positions.

`x-origin` is the position at which a record was first written; a copy of a copy retains it. `x-hops` counts the copies.
`x-copied-to` names the partition that the copy was written to.
"""

# A program may forward the headers of a copy to a new record in another partition. Because `x-copied-to` does not name this
# partition, the new record does not count as a copy, and receives its own origin. `copy` is the only loop that runs per record,
# so it does no avoidable work.

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from confluent_kafka import Message

from publisher.kafka.headers import headers_of
from publisher.kafka.partitions import Partition
from publisher.kafka.source_position import COPIED_TO, HOPS, ORIGIN, OWN, Position, address, origin_of

HEADER_BYTES = 1_024  # the most that the three headers add to a record: two region names and two topic names of full length
FIRST_HOP = (HOPS, b"1")
LONGEST_COUNT = 9  # digits; a longer value is not a count of hops

Headers = list[tuple[str, Any]]


class Route:
    """A source partition, the destination topic that it is copied to, and the progress of the copy. Offsets are source offsets.

    Attributes:
        topic: the source topic.
        partition: the partition, at the source and at the destination.
        destination: the destination topic.
        origin: the value of the header `x-origin` for the partition's records, without the offset at its end.
        tail: the headers that the relay adds after `x-origin` to a record that is not itself a copy.
        next: the next offset to read.
        read: the offset after the last record that was read. `next` may be higher, past offsets without a record.
        copied: the last offset that was copied; -1 if none.
        end: the end of the source partition, as of the last answer of the source.
        timestamp_ms: the timestamp of the last record before `next`; -1 if none.
        epoch: the leader epoch of the last record before `next`; -1 if none.
        committed: the value of `next` in the last committed checkpoint.
        confirmed: the value of `copied` in the last committed checkpoint.
        copies_from: the destination offset at which the copies of this source topic begin. Earlier copies belong to a deleted
            source topic of the same name.
        level_ms: the last time at which all records had been copied and committed (Unix ms); -1 if never.
        last_copied: the last record that was copied after `next` was last advanced; None if there is none.
        last_skipped: the last record that was read but not copied after `next` was last advanced; None if there is none.
    """

    __slots__ = (
        "committed",
        "confirmed",
        "copied",
        "copies_from",
        "destination",
        "end",
        "epoch",
        "last_copied",
        "last_skipped",
        "level_ms",
        "next",
        "origin",
        "partition",
        "read",
        "tail",
        "timestamp_ms",
        "topic",
    )

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
        self.last_copied: Message | None = None
        self.last_skipped: Message | None = None

    def advance_past_read(self) -> bool:
        """Advance `next` past the records that were read.

        Returns whether `next` differs from the position in the last committed checkpoint.
        """
        for message in (self.last_copied, self.last_skipped):
            if message is not None:
                offset = message.offset()
                epoch = message.leader_epoch()
                assert offset is not None
                if message is self.last_copied:
                    self.copied = offset
                if offset >= self.next:
                    self.next = self.read = offset + 1
                    self.timestamp_ms = message.timestamp()[1]
                    self.epoch = -1 if epoch is None else epoch
        self.last_copied = self.last_skipped = None
        return self.next != self.committed

    def advance_to_end(self, end: int, now_ms: int) -> None:
        """Advance `next` to the end of the partition, past offsets without a record.

        `end` is the end that the consumer has reported after the last record; `now_ms` is in Unix ms.
        """
        self.advance_past_read()
        self.next = max(self.next, end)
        if self.read <= self.committed:
            self.level_ms = now_ms

    def confirm(self) -> None:
        """Record that a checkpoint with the current `next` and `copied` is committed."""
        self.committed = self.next
        self.confirmed = self.copied

    def rewind(self) -> None:
        """Reset the progress to the last committed checkpoint, to read the records after it again."""
        self.last_copied = self.last_skipped = None
        self.next = self.committed
        self.copied = self.confirmed
        self.read = self.next


@dataclass(slots=True)
class CopyCounts:
    """The numbers of records that were read, by their treatment.

    Attributes:
        copied: records that were copied.
        looped: records that came from the destination and were not copied.
        filtered: records that the filter excluded.
        derived: copied records that had the headers of another copy, because a program had forwarded them. The relay replaced
            their `x-origin` by their own position.
        refused: records that were produced to the refusal topic.
    """

    copied: int = 0
    looped: int = 0
    filtered: int = 0
    derived: int = 0
    refused: int = 0

    @property
    def written(self) -> int:
        """Return the number of records that were produced: copies and dead letters."""
        return self.copied + self.refused


class Rules:
    """Decides which records of the region `source` are copied to the region `destination`, and with which headers.

    Records that were first written in `destination` are not copied back.

    Args:
        source: the region of the source.
        destination: the region of the destination.
        wanted: the filter: the allowed values by header name. Only records that have an allowed value in each of these headers
            are copied. Empty for no filter.
        renaming: the setting `destination.topic`, from which the names of destination topics are formed.
    """

    def __init__(self, source: str, destination: str, wanted: Mapping[str, Sequence[str]], renaming: str = "{topic}") -> None:
        self._source = quote(source, safe="").encode("ascii") + b"/"
        self._destination = quote(destination, safe="").encode("ascii") + b"/"
        self._renaming = renaming
        self.wanted = {name: frozenset(value.encode() for value in values) for name, values in wanted.items()}

    def copy_headers(self, headers: Headers, route: Route, offset: int, counts: CopyCounts) -> Headers | None:
        """Return the headers for the copy of a record. May change `headers`.

        Args:
            headers: the headers of the record.
            route: the route of the record's partition.
            offset: the source offset of the record.
            counts: the counts to increase.

        Returns:
            The headers of the copy; None if the record is not copied, because it was first written at the destination.
        """
        for name, _ in headers:
            if name == ORIGIN:
                return self._further_copy_headers(headers, route, offset, counts)
        headers.append((ORIGIN, f"{route.origin}{offset}"))
        headers.extend(route.tail)
        return headers

    def origin(self, headers: Headers | None, partition: Partition) -> bytes | None:
        """Return the `x-origin` of a record that a relay has copied from another region; None for any other record."""
        origin = origin_of(headers, partition, self._renaming)
        return None if origin is None or origin.startswith(self._source) else origin

    def is_home(self, origin: bytes) -> bool:
        """Return whether a record with this `x-origin` was first written at the destination."""
        return origin.startswith(self._destination)

    def passes(self, headers: Headers | None) -> bool:
        """Return whether the filter includes a record with these headers."""
        items = headers or []
        return all(any(name == wanted and value in values for name, value in items) for wanted, values in self.wanted.items())

    def _further_copy_headers(self, headers: Headers, route: Route, offset: int, counts: CopyCounts) -> Headers | None:
        origin = self.origin(headers, (route.topic, route.partition))
        hops = 0
        if origin is None:
            counts.derived += 1
            origin = f"{route.origin}{offset}".encode()
        elif self.is_home(origin):
            counts.looped += 1
            return None
        else:
            count = dict(headers).get(HOPS) or b""
            hops = int(count) if count.isdigit() and len(count) <= LONGEST_COUNT else 0
        others = [header for header in headers if header[0] not in OWN]
        return [*others, (ORIGIN, origin), (HOPS, b"%d" % (hops + 1)), route.tail[1]]


def copy(
    messages: Sequence[Message],
    routes: dict[Partition, Route],
    rules: Rules,
    produce: Callable[..., None],
    counts: CopyCounts,
    *,
    skip_unreadable: bool,
) -> tuple[list[Message], list[tuple[Message, Exception]]]:
    """Produce the copies of the records. Records of partitions without a route are ignored.

    Args:
        messages: the messages of the consumer.
        routes: the routes by source partition.
        rules: decide which records are copied.
        produce: the method `Producer.produce`, or a function with the same arguments.
        counts: the counts to increase.
        skip_unreadable: whether to continue after a record with unreadable headers. Otherwise its partition is removed from
            `routes`, so that no later record of it is copied.

    Returns:
        The messages that are not records (ends of partitions, errors), and the records with unreadable headers.

    Raises:
        Exception: any error of `produce`.
    """
    events: list[Message] = []
    unreadable: list[tuple[Message, Exception]] = []
    copy_headers = rules.copy_headers
    filtering = bool(rules.wanted)
    find_route = routes.get
    all_headers, unread = headers_of(messages)
    for index, (message, headers) in enumerate(zip(messages, all_headers, strict=True)):
        if message.error() is not None:
            events.append(message)
            continue
        route = find_route((message.topic(), message.partition()))  # type: ignore[arg-type]
        if route is None:
            continue
        if index in unread:
            unreadable.append((message, unread[index]))
            if not skip_unreadable:
                del routes[route.topic, route.partition]
            continue
        if filtering and not rules.passes(headers):
            route.last_skipped = message
            counts.filtered += 1
            continue
        if headers:
            headers = copy_headers(headers, route, message.offset(), counts)  # type: ignore[arg-type]
            if headers is None:
                route.last_skipped = message
                continue
        else:
            headers = [(ORIGIN, f"{route.origin}{message.offset()}"), *route.tail]
        timestamp_ms = max(message.timestamp()[1], 0)
        route.last_copied = message  # before `produce`, so that `advance_past_read` advances past it if `produce` raises
        produce(route.destination, message.value(), message.key(), route.partition, None, None, timestamp_ms, headers)
        counts.copied += 1
    return events, unreadable
