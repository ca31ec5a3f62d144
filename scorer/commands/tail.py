"""`scorer tail`: reads score records or dead letters, committed ones only, one JSON object a line."""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Annotated

import msgspec
import orjson
import typer
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Message

from model_registry.untrusted_input import documents
from model_registry.untrusted_input.text import printable_json
from publisher.errors import USAGE, Fatal
from publisher.kafka import acls
from publisher.kafka.error_codes import ABSENT, PASSING, Codes
from publisher.kafka.headers import headers_of_one
from publisher.kafka.skipped_records import SkippedRecords
from publisher.kafka.tail import Following
from publisher.runtime.command_line import Config, Set
from scorer.dead_letters import headers as dead_letters
from scorer.scores import formats
from scorer.settings import Settings, load

log = logging.getLogger(__name__)


def tail(
    path: Config,
    flags: Set = None,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters instead of scores.")] = False,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="From the oldest record on.")] = False,
    follow: Annotated[bool, typer.Option(help="Wait for more; --no-follow reads what there is, by time, and ends.")] = True,
    events: Annotated[int | None, typer.Option(help="End after so many.", min=1)] = None,
) -> None:
    """Read scores (read_committed), one JSON object a line.

    With --no-follow the oldest come first. Otherwise they come as they are read: in order within a partition only."""
    settings = load(path, flags or []).settings
    for line in islice(lines(settings, dead=dead, from_beginning=from_beginning, follow=follow), events):
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.flush()


def lines(settings: Settings, *, dead: bool = False, from_beginning: bool = False, follow: bool = True) -> Iterator[bytes]:
    """Records as they become visible to a read_committed consumer. Without `follow`, up to the end as it is now, by time."""
    topic = settings.dead_letter.topic if dead else settings.output.topic
    start = OFFSET_BEGINNING if from_beginning or not follow else OFFSET_END
    if dead:
        return map(dead_letter, records(settings, topic, start, follow=follow))
    as_json = formats.as_json(settings)
    return scores(records(settings, topic, start, follow=follow), as_json)


def read_to_end(settings: Settings, topic: str) -> Iterator[Message]:
    """Every record of a topic, from its start to its end as it is now, by time. Raises Fatal where it cannot be read."""
    return records(settings, topic, OFFSET_BEGINNING, follow=False)


def records(settings: Settings, topic: str, start: int, *, follow: bool) -> Iterator[Message]:
    """The committed records of a topic from `start` on; for ever, or by time up to its end as it is now. Raises Fatal."""
    passing = Codes(*PASSING.items(), *ABSENT.items())
    following = Following(settings.kafka, f"{settings.name}.tail", acls.to_read(topic), [topic], passing)
    with contextlib.closing(following):
        following.begin(start)
        while follow:
            yield from following.news()
        yield from following.oldest_first()


def scores(messages: Iterable[Message], as_json: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """Yield the records as JSON, a line each. Unreadable ones are named and skipped; raises Fatal (2) if all of them are."""
    skipped, readable = SkippedRecords(log), False
    for message in messages:
        try:
            line = score(message, as_json)
        except ValueError as error:
            skipped.skip(message.topic() or "", message.partition() or 0, message.offset() or 0, error)
            continue
        readable = True
        yield line
    if skipped.counts and not readable:
        hint = "check output.format and schema_registry.url"
        raise Fatal(f"{skipped.counts.total():,} records are read, and none is of the format", hint, USAGE)


def score(message: Message, as_json: Callable[[bytes], bytes]) -> bytes:
    """Return the record as JSON on one line. Raises ValueError if it is none of the configured format."""
    record = as_json(message.value() or b"null")
    documents.ANY.decode(record)
    return printable_json(msgspec.json.format(record, indent=-1))


def dead_letter(message: Message) -> bytes:
    """Where the event came from, what is wrong with it, and what it was, as JSON."""
    facts = dead_letters.facts(headers_of_one(message) or [])
    return printable_json(orjson.dumps({**facts, "key": _text(message.key()), "value": _text(message.value())}))


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")
