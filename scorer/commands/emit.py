"""`scorer emit`: write events from JSON lines to the input topic, optionally at a steady rate.

On every exit the command reports how many events the broker has confirmed and how to continue.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Annotated

import typer
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from model_registry import suggestions
from publisher.errors import USAGE, Fatal
from publisher.runtime.command_line import Config, Json, Set, err_console, print_data
from publisher.runtime.interruption import report_progress
from scorer.emit.delivery_counts import Confirmations
from scorer.emit.event_lines import EventLine, events, kind_of
from scorer.emit.event_writer import EventWriter
from scorer.emit.record_template import RecordTemplate
from scorer.settings import load

SHOW_SECONDS = 0.2  # between two updates of the progress bar
STDIN = Path("-")
Progress = Callable[[int, int], None]
"""Called with the number of events passed to the producer, and the size of their lines in bytes."""
TICK = 0.01  # seconds between bursts with --rate: one request per event would cost broker and client more


def emit(
    path: Config,
    flags: Set = None,
    file: Annotated[Path, typer.Option(help="The file of events, one JSON object per line; `-` is stdin.")] = STDIN,
    topic: Annotated[str | None, typer.Option(help="The topic to write to. Default: the first input topic.")] = None,
    key: Annotated[
        str | None,
        typer.Option(help="The key of the records: a template with paths into the event, such as '{carrier}-{after.id}'."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(help="A header of the records, written name=value. The value is a template like the key. Repeatable."),
    ] = None,
    value: Annotated[
        str | None, typer.Option(help="Write only the text of this field of the event as the record's value.", metavar="FIELD")
    ] = None,
    base64: Annotated[bool, typer.Option("--base64", help="With --value: decode the text of the field from base64.")] = False,
    time_field: Annotated[
        str | None,
        typer.Option(
            "--time", metavar="FIELD", help="The path of the event's time, for the record's timestamp: ISO 8601 or Unix ms."
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="The maximum number of events per second. Default: no limit.", min=0.001)
    ] = None,
    skip: Annotated[
        int,
        typer.Option(
            metavar="LINES",
            help="Skip this number of lines at the start of the file, for example because an earlier run wrote them.",
            min=0,
        ),
    ] = 0,
    raw_lines: Annotated[bool, typer.Option("--raw", help="Write lines unchanged, without a check for JSON.")] = False,
    as_json: Json = False,
) -> None:
    """Write events to the input topic until the first line that is not JSON. Report the number of written events."""
    settings = load(path, flags or []).settings
    if base64 and value is None:
        raise typer.BadParameter("--base64 needs --value")
    if raw_lines and value is not None:
        raise typer.BadParameter("--value needs JSON lines; remove --raw", param_hint="--raw")
    if topic is not None and not topic.strip():
        raise typer.BadParameter(
            "the name of the topic is empty; without --topic, emit writes to the first input topic", param_hint="--topic"
        )
    target = topic or settings.input.topics[0]
    kind = kind_of(settings.input.format, own=target in settings.input.topics, raw=raw_lines, part=value is not None)
    template = RecordTemplate(key, _headers(header or []), (value, base64) if value else None, time_field)
    confirmations = Confirmations(skip)

    def counts() -> dict[str, int]:
        return confirmations.counts().to_dict()

    with report_progress(as_json, counts, lambda: confirmations.counts().progress()) as interruption, _opened(file) as lines:
        writer = EventWriter(settings, target, confirmations, interruption)
        with contextlib.closing(writer), _progress(file) as progress:
            write(writer, events(lines, kind, skip, fields=template.reads_fields), template, rate, progress)
    print_data(as_json, counts(), lambda: f"{confirmations.written} events written")


def _headers(items: list[str]) -> list[tuple[str, str]]:
    """Parse headers into names and values. Raises BadParameter."""
    pairs = []
    for item in items:
        name, separator, value = item.partition("=")
        if not (name and separator):
            raise typer.BadParameter(f"the header {item!r} is not of the form name=value", param_hint="--header")
        try:
            item.encode()
        except UnicodeEncodeError:
            raise typer.BadParameter(f"{item!r} is not UTF-8", param_hint="--header") from None
        pairs.append((name, value))
    return pairs


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    """Open the file, or stdin if `file` is `-`.

    Raises Fatal with exit code 2 if the file cannot be opened, or if a read in the `with` block fails.
    """
    try:
        if file != STDIN:
            with file.open("rb") as lines:
                yield lines
        elif sys.stdin is None:
            raise Fatal("stdin is closed", "give a file with --file, or pipe events to stdin", USAGE)
        else:
            if sys.stdin.isatty():
                err_console.print("reading events from the terminal; Ctrl-D ends them")
            yield sys.stdin.buffer
    except OSError as error:
        question = suggestions.file_question(file) if isinstance(error, FileNotFoundError) else ""
        name = "stdin" if file == STDIN else file
        raise Fatal(f"{name}: {error.strerror}", question or "check the path and its permissions", USAGE) from error


@contextlib.contextmanager
def _progress(file: Path) -> Iterator[Progress]:
    """Show the progress on stderr if stderr is a terminal; yield the callback that updates the progress."""
    size = file.stat().st_size if file.is_file() else None
    columns = (TextColumn("writing"), BarColumn(), TextColumn("{task.fields[events]:,} events"), TimeElapsedColumn())
    with Bars(*columns, console=err_console, transient=True, disable=not err_console.is_terminal) as bars:
        task = bars.add_task("", total=size, events=0)
        yield lambda events, read: bars.update(task, completed=read if size else 0, events=events)


class WritePace:
    """Computes the pauses that limit the rate of events. Pure; times are monotonic seconds.

    There is at most one pause per TICK seconds. Between two pauses, the events are written in a burst.
    """

    def __init__(self, rate: float | None, began: float) -> None:
        self._rate = rate
        self._began = began
        self._allowed = 0.0

    def pause(self, count: int, now: float) -> float:
        """Return the seconds to wait from `now` before the next event is written. `count` events were written before it."""
        if self._rate is None or count < self._allowed:
            return 0.0
        due = self._began + count / self._rate
        self._allowed = (max(now, due) + TICK - self._began) * self._rate
        return max(0.0, due - now)


def write(
    writer: EventWriter, lines: Iterable[EventLine], template: RecordTemplate, rate: float | None, progress: Progress
) -> None:
    """Write the lines as events, and wait until the broker has confirmed all of them.

    The key of an event selects its partition as in the Java client (murmur2).

    Args:
        writer: the producer.
        lines: the lines to write.
        template: the template that turns a line into a record.
        rate: events per second; None for no limit.
        progress: called a few times per second.

    Raises:
        Fatal: The broker rejects an event, or a line lacks a field.
    """
    pace = WritePace(rate, time.monotonic())
    read = 0
    reported = 0.0
    for count, line in enumerate(lines):
        now = time.monotonic()
        if (pause := pace.pause(count, now)) > 0:
            time.sleep(pause)
        writer.write(line.number, template.record(line))
        read += len(line.data) + 1
        if count == 0:  # the first event waits half a second for the producer id, so the rate applies after it
            writer.confirm()
            pace = WritePace(rate, time.monotonic())
        if now > reported + SHOW_SECONDS:
            progress(count + 1, read)
            reported = now
    writer.confirm()
