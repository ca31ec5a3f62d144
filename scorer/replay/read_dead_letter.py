"""Reading of one dead letter: its event, and the record that replays it. No Kafka calls."""

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Message

from publisher.kafka import source_position
from publisher.kafka.headers import headers_of
from publisher.kafka.source_position import Position
from publisher.transactions.session import Record
from scorer.dead_letters.headers import NO_REASON, dead_letter_facts, dead_lettered_ms, original_headers
from scorer.dead_letters.reasons import Reason
from scorer.decoding.decoder_factory import IdReader
from scorer.decoding.event_id import event_id
from scorer.decoding.headers import HeaderValues

ID_ROOM = 64  # bytes that the added header `ce_id` may need besides its name and value
ID_HEADER = "ce_id"
DEADLINE_HEADER = "deadline"


class NotReplayable(Exception):
    """The dead letter cannot be replayed. The message contains the reason."""


@dataclass(frozen=True, slots=True)
class ReplayableDeadLetter:
    """A dead letter that can be replayed, and the record that replays it.

    Attributes:
        id: the id of the event.
        source: the position of the event in its input topic.
        reason: why the event was dead-lettered.
        at_ms: when the event was dead-lettered, in Unix ms.
        record: the record that replays the event.
        size: the size of the record in bytes.
        late: whether the event's deadline has passed; the record then has no deadline.
    """

    id: str
    source: Position
    reason: str
    at_ms: int
    record: Record
    size: int
    late: bool


def read_dead_letter(message: Message, ids: IdReader, now_ms: int) -> ReplayableDeadLetter:
    """Read a dead letter, and create the record that replays its event.

    `ids` reads the event's id. The record has the partition, key, value and headers of the event, and a header `ce_id`. A
    deadline before `now_ms` (Unix ms) is removed.

    Raises:
        NotReplayable: the dead letter does not contain its event, or the event's position.
    """
    # The record has no timestamp, so the producer sets the time of the replay: with the original timestamp, retention could
    # delete the record before it is scored. With the old deadline the event would be answered as `expired`.
    (message_headers,), unread = headers_of([message])
    headers = message_headers or []
    facts = dead_letter_facts(headers)
    try:
        source = source_position.parse(facts.get("source", ""))
    except ValueError as error:
        raise NotReplayable("the name of a header is not UTF-8" if unread else f"dead.source is {error}") from None
    if facts.get("reason") == Reason.RECORD_REFUSED and message.value() is None:
        raise NotReplayable("it contains only the position of the event, which may still be in its input topic")
    if facts.get("reason") == Reason.UNREADABLE_BATCH:
        raise NotReplayable("it represents a batch that cannot be decompressed; its records are still in their input topic")
    originals = original_headers(headers)
    values = HeaderValues.from_headers(originals)
    id_ = event_id(values, ids.read_id(message.value(), originals), source.region, source[1:])
    if values.ce_id is None:
        originals = [*((name, value) for name, value in originals if name != ID_HEADER), (ID_HEADER, id_.encode())]
    late = values.deadline is not None and values.deadline < now_ms
    if late:
        originals = [(name, value) for name, value in originals if name != DEADLINE_HEADER]
    return ReplayableDeadLetter(
        id=id_,
        source=source,
        reason=facts.get("reason") or NO_REASON,
        at_ms=dead_lettered_ms(facts, message.timestamp()[1]),
        record=(source.topic, message.value(), message.key(), source.partition, 0, originals),
        size=len(message.value() or b"") + len(message.key() or b"") + sum(len(n) + len(v or b"") for n, v in originals),
        late=late,
    )


def check_target(letter: ReplayableDeadLetter, topics: Mapping[str, tuple[int, int]]) -> None:
    """Raise NotReplayable if the event cannot be written to its input topic.

    Args:
        letter: the dead letter.
        topics: by input topic, the number of partitions and the largest accepted record in bytes.
    """
    source = letter.source
    if source.topic not in topics:
        raise NotReplayable(f"it came from {source.topic}, which is not an input topic of this scorer")
    partitions, largest = topics[source.topic]
    if source.partition >= partitions:
        raise NotReplayable(f"it came from {source.topic}[{source.partition}], and the topic has {partitions} partitions")
    if letter.size + ID_ROOM > largest:
        raise NotReplayable(f"it has {letter.size} bytes with its id, and {source.topic} takes {largest}")
