"""Read the topics that a scorer writes: committed records only, without membership in a consumer group.

Score records and dead letters become JSON lines. Unreadable records are logged and skipped.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator

import msgspec
import orjson
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Message

from model_registry.untrusted_input import json_documents
from model_registry.untrusted_input.terminal_text import printable_json
from publisher.errors import USAGE, Fatal
from publisher.kafka import acls
from publisher.kafka.error_codes import ABSENT, PASSING, Codes
from publisher.kafka.headers import headers_of_one
from publisher.kafka.skipped_records import SkippedRecords
from publisher.kafka.topic_follower import TopicFollower
from scorer.dead_letters import headers as dead_letter_headers
from scorer.scores import formats
from scorer.settings import Settings

log = logging.getLogger(__name__)


def read_lines(settings: Settings, *, dead: bool = False, from_beginning: bool = False, follow: bool = True) -> Iterator[bytes]:
    """Yield score records, or dead letters if `dead`, as JSON lines.

    Args:
        settings: the scorer's settings.
        dead: whether to read dead letters instead of scores.
        from_beginning: whether to start at the oldest record instead of the end. Without `follow`, reading always starts at
            the oldest record.
        follow: whether to wait for further records without end. If False, the records up to the current end are yielded in
            the order of their timestamps.

    Raises:
        Fatal: The topic cannot be read, or no record of it has the configured format.
    """
    topic = settings.dead_letter.topic if dead else settings.output.topic
    start = OFFSET_BEGINNING if from_beginning or not follow else OFFSET_END
    messages = _records(settings, topic, start, follow=follow)
    if dead:
        return map(dead_letter_line, messages)
    return score_lines(messages, formats.as_json(settings))


def read_to_end(settings: Settings, topic: str) -> Iterator[Message]:
    """Yield the records of a topic from its start to its current end, in the order of timestamps.

    Raises Fatal if the topic cannot be read.
    """
    return _records(settings, topic, OFFSET_BEGINNING, follow=False)


def _records(settings: Settings, topic: str, start: int, *, follow: bool) -> Iterator[Message]:
    """Yield the committed records of a topic from the offset `start` on.

    With `follow`, wait for further records without end. Otherwise read up to the current end, in the order of the timestamps.
    """
    transient = Codes(*PASSING.items(), *ABSENT.items())
    follower = TopicFollower(settings.kafka, f"{settings.name}.tail", acls.to_read(topic), [topic], transient)
    with contextlib.closing(follower):
        follower.begin(start)
        while follow:
            yield from follower.poll()
        yield from follower.oldest_first()


def score_lines(messages: Iterable[Message], as_json: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """Yield score records as JSON lines; log and skip unreadable records.

    Raises:
        Fatal: All records are unreadable.
    """
    skipped = SkippedRecords(log)
    readable = False
    for message in messages:
        try:
            line = _score_line(message, as_json)
        except ValueError as error:
            skipped.skip(message.topic() or "", message.partition() or 0, message.offset() or 0, error)
            continue
        readable = True
        yield line
    if skipped.counts and not readable:
        hint = "check output.format and schema_registry.url"
        raise Fatal(f"none of the {skipped.counts.total():,} records has the configured format", hint, USAGE)


def _score_line(message: Message, as_json: Callable[[bytes], bytes]) -> bytes:
    """Return a score record as JSON on one line. Raises ValueError if it does not have the configured format."""
    record = as_json(message.value() or b"null")
    json_documents.ANY.decode(record)
    return printable_json(msgspec.json.format(record, indent=-1))


def dead_letter_line(message: Message) -> bytes:
    """Return a dead letter as JSON: the source, reason and error in its headers, and the event's key and value."""
    facts = dead_letter_headers.dead_letter_facts(headers_of_one(message) or [])
    return printable_json(orjson.dumps({**facts, "key": _text(message.key()), "value": _text(message.value())}))


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")
