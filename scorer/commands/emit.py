"""`scorer emit`: writes events to the input topic, one JSON object a line, at a steady rate if one is asked for.

However it ends, it reports how many events the broker has confirmed.
"""

import contextlib
import string
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from confluent_kafka import KafkaError, KafkaException, Message
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from model_registry.package import paths, raw
from model_registry.package.event_tree import look_up
from publisher.errors import INTERRUPTED, USAGE, Fatal
from publisher.kafka import clients as kafka
from publisher.kafka import rights, topics
from publisher.kafka.connection import connect
from publisher.kafka.error_codes import REFUSED
from publisher.kafka.rights import WRITE, Right
from publisher.process.command_line import Config, Json, Set, print_data, talk
from scorer.commands.emitted_lines import events, kind_of
from scorer.settings import Settings, load
from scorer.topics import describe

CONNECT_SECONDS = 10.0
FLUSH_SECONDS = 30.0
MAX_TIME = 1 << 48  # Unix ms; what is larger is no time
LARGEST = 100_000_000  # bytes; the broker's limit decides
SHOW_SECONDS = 0.2  # between two updates of the progress bar
Progress = Callable[[int, int], None]
"""Called with how many events were handed over, and the bytes of their lines."""
TICK = 0.01  # seconds between bursts where a rate is asked for: a request an event would cost broker and client more


def emit(
    path: Config,
    flags: Set = None,
    file: Annotated[Path | None, typer.Option(help="Events, one JSON object a line; default: stdin.")] = None,
    topic: Annotated[str | None, typer.Option(help="Another topic than the first input topic.")] = None,
    key: Annotated[
        str | None, typer.Option(help="Key as a template over the event, with paths: '{carrier}-{after.id}'.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="name=value on every event, the value a template as the key; repeatable.")
    ] = None,
    value: Annotated[
        str | None, typer.Option(help="The field whose text is written in place of the event.", metavar="FIELD")
    ] = None,
    base64: Annotated[bool, typer.Option("--base64", help="With --value: the bytes that the text is in base64.")] = False,
    time_field: Annotated[
        str | None,
        typer.Option("--time", metavar="FIELD", help="The path of the event's time, its timestamp: ISO 8601 or Unix ms."),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Events a second; default: as fast as they come.", min=0.001)] = None,
    raw_lines: Annotated[bool, typer.Option("--raw", help="Write lines as they are, whether they are JSON or not.")] = False,
    as_json: Json = False,
) -> None:
    """Write events to the input topic. A line that is no JSON stops it: what was written until then is counted."""
    settings = load(path, flags or []).settings
    if base64 and value is None:
        raise typer.BadParameter("--base64 is for --value")
    if raw_lines and value is not None:
        raise typer.BadParameter("--value needs JSON; leave --raw out", param_hint="--raw")
    pairs = [(name, value) for name, _, value in (item.partition("=") for item in header or [])]
    told = (value, base64) if value else None
    target = topic or settings.input.topics[0]
    own = target in settings.input.topics
    kind = kind_of(settings.input.format, own=own, raw=raw_lines, part=value is not None)
    writer, records = _Writer(settings, target), Template(key, pairs, told, time_field)
    try:
        with file.open("rb") if file else contextlib.nullcontext(sys.stdin.buffer) as lines, _progress(file) as progress:
            write(writer, events(lines, kind), records, rate, progress)
    except KeyboardInterrupt:
        writer.settle()
        talk.print(f"interrupted: {writer.said()}")
        print_data(as_json, {"written": writer.written}, lambda: f"{writer.written} events written")
        raise typer.Exit(INTERRUPTED) from None
    except Fatal as error:
        writer.settle()
        raise Fatal(f"{error}; {writer.said()}", error.hint, error.exit_code) from error
    print_data(as_json, {"written": writer.written}, lambda: f"{writer.written} events written")


@contextlib.contextmanager
def _progress(file: Path | None) -> Iterator[Progress]:
    """Show how much is written, on stderr if that is a terminal."""
    size = file.stat().st_size if file and file.is_file() else None
    columns = (TextColumn("writing"), BarColumn(), TextColumn("{task.fields[events]:,} events"), TimeElapsedColumn())
    with Bars(*columns, console=talk, transient=True, disable=not talk.is_terminal) as bars:
        task = bars.add_task("", total=size, events=0)
        yield lambda events, read: bars.update(task, completed=read if size else 0, events=events)


def key_of(template: str | None, line: bytes, number: int) -> bytes | None:
    """The key of an event by a template over its fields, `{carrier}-{flight}`. Raises Fatal where it has not those fields."""
    return None if template is None else filled(template, "key", line, number)


class _Template(string.Formatter):
    """A template whose names are paths into an event, `{items[0].sku}`; also `{after[id]}`."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        """The value at a path. Raises KeyError where the event has none, WrongStep where a step is no object or array."""
        try:
            steps = paths.of_object(field_name)
        except ValueError:
            found, _ = super().get_field(field_name, args, kwargs)
            return found, field_name
        if (found := look_up(kwargs, steps)) is None:
            raise KeyError(field_name)
        return (str(found).lower() if isinstance(found, bool) else found), field_name


def filled(template: str, what: str, line: bytes, number: int) -> bytes:
    """A template with the fields of an event. Raises Fatal, naming the option `what`, where it has not those fields."""
    try:
        return _Template().vformat(template, (), orjson.loads(line)).encode()
    except KeyError as error:
        said = f"line {number}: the event has no field {error.args[0]!r} for the {what} {template!r}"
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        said = f"line {number}: no {what} {template!r}: {error}"
    raise Fatal(said, f"check --{what} and the event; braces that stand for themselves are written twice", USAGE)


def value_of(field: str, base64: bool, line: bytes, number: int) -> bytes:
    """The text of a field of an event, or the bytes that it is in base64. Raises Fatal where there is none."""
    try:
        found = orjson.loads(line)[field]
        if base64:
            return raw.from_base64(found)
        return found.encode() if isinstance(found, str) else orjson.dumps(found)
    except (KeyError, TypeError, IndexError):
        said = f"line {number}: the event has no field {field!r} for its value"
    except ValueError as error:
        said = f"line {number}: field {field!r}: {error}"
    raise Fatal(said, "check --value and the event", USAGE)


def time_of(field: str, line: bytes, number: int) -> int:
    """The time of an event in Unix ms, at a path: a number, or ISO 8601 text, UTC where it names no zone. Raises Fatal."""
    try:
        found = look_up(orjson.loads(line), paths.of_object(field))
        if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < MAX_TIME:
            return found
        if isinstance(found, str):
            moment = datetime.fromisoformat(found)
            return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
        said = f"line {number}: {found!r:.100} at {field!r} is no time"
    except (TypeError, ValueError) as error:
        said = f"line {number}: no time at {field!r}: {error}"
    raise Fatal(said, "check --time and the event: ISO 8601, or Unix milliseconds", USAGE)


class Pace:
    """When an event may be written, in bursts of TICK seconds. Pure: `began` and `now` are monotonic seconds."""

    def __init__(self, rate: float | None, began: float) -> None:
        self._rate = rate
        self._began = began
        self._allowed = 0.0

    def pause(self, count: int, now: float) -> float:
        """Seconds to wait before event number `count` (from 0) is written."""
        if self._rate is None or count < self._allowed:
            return 0.0
        due = self._began + count / self._rate
        self._allowed = (max(now, due) + TICK - self._began) * self._rate
        return max(0.0, due - now)


class _Writer:
    """An idempotent producer for one topic that counts the events that the broker took, and keeps its errors."""

    def __init__(self, settings: Settings, topic: str) -> None:
        """Connect before the first event gets its timestamp. Raises Fatal where the broker or the topic is not there."""
        name, needed = f"{settings.name}.emit", {topic: frozenset({WRITE})}
        topics.existing(settings.kafka, name, needed, [topic])
        self._limit = describe(connect(settings.kafka, name), settings.kafka, needed)[topic]
        batch = min(self._limit.max_bytes, kafka.LARGEST_BATCH)  # a topic's limit is for what is sent together
        tuning = {"linger.ms": 5, "message.max.bytes": LARGEST, "batch.size": batch}
        self.failures: list[KafkaError] = []
        self._too_large = 0  # bytes of the first event that the broker did not take for its size
        self.written = self.given = 0
        """How many events the broker has confirmed, and how many were handed over."""
        self._settings = settings.kafka
        self._topic = topic
        self._producer = kafka.plain_producer(settings.kafka, name, partitioner="murmur2_random", **tuning)
        try:
            self._producer.list_topics(topic, CONNECT_SECONDS)
        except KafkaException as error:
            raise Fatal(f"no Kafka broker answers: {error.args[0].str()}", "check kafka.bootstrap_servers") from error

    def write(self, key: bytes | None, event: bytes, headers: Sequence[tuple[str, bytes]], time_ms: int | None) -> None:
        """Hand over one event; waits where the queue is full."""
        self._producer.poll(0)
        stated: dict[str, Any] = {} if time_ms is None else {"timestamp": time_ms}
        produce = partial(
            self._producer.produce, self._topic, event, key, on_delivery=self._note, headers=list(headers) or None, **stated
        )
        try:
            produce()
        except BufferError:
            self._producer.flush(FLUSH_SECONDS)
            produce()
        except KafkaException as error:
            if error.args[0] != KafkaError.MSG_SIZE_TOO_LARGE:
                raise
            hint = "leave the event out, or let its producer send a reference to the content in its place"
            raise Fatal(f"an event of {len(event)} bytes: at most {LARGEST} are written (message.max.bytes)", hint) from None
        self.given += 1

    def settle(self) -> None:
        """Wait until every event is confirmed or has failed, for a while."""
        self._producer.flush(FLUSH_SECONDS)

    def said(self) -> str:
        """Return how many events were written, for people."""
        rest = self.given - self.written
        return f"{self.written:,} events were written" + (f", {rest:,} were not confirmed" if rest else "")

    def confirm(self) -> None:
        """Wait for every confirmation. Raises Fatal where the broker did not take an event."""
        left = self._producer.flush(FLUSH_SECONDS)
        if self.failures and self.failures[0] in REFUSED:
            raise rights.refused(self._settings, [Right(WRITE, rights.TOPIC, self._topic)])
        if self._too_large:
            raise self._over_limit()
        if self.failures or left:
            why = self.failures[0].str() if self.failures else f"{left} events were not confirmed within {FLUSH_SECONDS:.0f} s"
            raise Fatal(f"writing to {self._topic} failed: {why}", "check that the topic exists and the broker answers")

    def _over_limit(self) -> Fatal:
        """The error for an event that is larger than the topic takes, with the limit as far as it may be read."""
        stated = f"{self._limit.max_bytes} bytes" if self._limit.told else "not readable with these rights"
        return Fatal(
            f"an event of {self._too_large} bytes is larger than topic {self._topic} takes: its max.message.bytes is {stated}",
            f"raise max.message.bytes of {self._topic} and input.max_event_bytes, or leave the event out",
        )

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.written += 1
            return
        if error == KafkaError.MSG_SIZE_TOO_LARGE and not self._too_large:
            self._too_large = len(message.value() or b"") + len(message.key() or b"")
        self.failures.append(error)


@dataclass(frozen=True, slots=True)
class Template:
    """How a line becomes a record.

    Attributes:
        key: a template over the fields of the event; None: no key.
        headers: names and values; a value with braces is a template too.
        value: a field that is written in place of the line, and whether it is in base64; None: the line itself.
        time_field: the path of the event's time; None: the time of writing.
    """

    key: str | None = None
    headers: Sequence[tuple[str, str]] = ()
    value: tuple[str, bool] | None = None
    time_field: str | None = None

    def record(self, line: bytes, number: int) -> tuple[bytes | None, bytes, list[tuple[str, bytes]], int | None]:
        """Return key, value, headers and timestamp (Unix ms) of a line.

        Raises:
            Fatal: with code 2 if the event lacks a field.
        """
        named = [
            (name, filled(text, "header", line, number) if {*"{}"} & {*text} else text.encode()) for name, text in self.headers
        ]
        at = None if self.time_field is None else time_of(self.time_field, line, number)
        value = value_of(*self.value, line, number) if self.value else line
        return key_of(self.key, line, number), value, named, at


def write(
    writer: _Writer, lines: Iterable[tuple[int, bytes]], template: Template, rate: float | None, progress: Progress
) -> None:
    """Write numbered lines, and wait until the broker has confirmed each.

    Partitions are chosen by key as the Java client does (murmur2). `rate` is events a second; `progress` is called a few times
    a second.

    Raises:
        Fatal: if the broker did not take an event, or if a line lacks a field.
    """
    pace, read, shown = Pace(rate, time.monotonic()), 0, 0.0
    for number, line in lines:
        if writer.failures:
            break
        now = time.monotonic()
        if (pause := pace.pause(writer.given, now)) > 0:
            time.sleep(pause)
        writer.write(*template.record(line, number))
        read += len(line) + 1
        if writer.given == 1:  # it waits half a second for its producer id: the others begin after that
            writer.confirm()
            pace = Pace(rate, time.monotonic())
        if now > shown + SHOW_SECONDS:
            progress(writer.given, read)
            shown = now
    writer.confirm()
