"""`scorer emit`: writes events to the input topic, one JSON object a line, at a steady rate if one is asked for.

However it ends, it reports how many events the broker has confirmed and where to continue.
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
from publisher.runtime.interruption import counted
from scorer.emit.delivery_counts import Confirmations
from scorer.emit.event_lines import EventLine, events, kind_of
from scorer.emit.event_writer import EventWriter
from scorer.emit.record_template import RecordTemplate
from scorer.settings import load

SHOW_SECONDS = 0.2  # between two updates of the progress bar
STDIN = Path("-")
Progress = Callable[[int, int], None]
"""Called with how many events were handed over, and the bytes of their lines."""
TICK = 0.01  # seconds between bursts where a rate is asked for: a request an event would cost broker and client more


def emit(
    path: Config,
    flags: Set = None,
    file: Annotated[Path, typer.Option(help="Events, one JSON object a line; `-` is stdin.")] = STDIN,
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
    skip: Annotated[
        int, typer.Option(metavar="LINES", help="Pass over the first lines, which an earlier run has written.", min=0)
    ] = 0,
    raw_lines: Annotated[bool, typer.Option("--raw", help="Write lines as they are, whether they are JSON or not.")] = False,
    as_json: Json = False,
) -> None:
    """Write events to the input topic, up to a line that is not JSON. Report how many were written, and where to continue."""
    settings = load(path, flags or []).settings
    if base64 and value is None:
        raise typer.BadParameter("--base64 is for --value")
    if raw_lines and value is not None:
        raise typer.BadParameter("--value needs JSON; leave --raw out", param_hint="--raw")
    if topic is not None and not topic.strip():
        raise typer.BadParameter("is empty; leave it out to write to the first input topic", param_hint="--topic")
    target = topic or settings.input.topics[0]
    kind = kind_of(settings.input.format, own=target in settings.input.topics, raw=raw_lines, part=value is not None)
    template = RecordTemplate(key, _headers(header or []), (value, base64) if value else None, time_field)
    confirmations = Confirmations(skip)

    def counts() -> dict[str, int]:
        return confirmations.counts().to_dict()

    with counted(as_json, counts, lambda: confirmations.counts().progress()) as interruption, _opened(file) as lines:
        writer = EventWriter(settings, target, confirmations, interruption)
        with contextlib.closing(writer), _progress(file) as progress:
            write(writer, events(lines, kind, skip, fields=template.reads_fields), template, rate, progress)
    print_data(as_json, counts(), lambda: f"{confirmations.written} events written")


def _headers(items: list[str]) -> list[tuple[str, str]]:
    """Return names and values of headers. Raises BadParameter."""
    pairs = []
    for item in items:
        name, separator, value = item.partition("=")
        if not (name and separator):
            raise typer.BadParameter(f"{item!r} is not name=value", param_hint="--header")
        try:
            item.encode()
        except UnicodeEncodeError:
            raise typer.BadParameter(f"{item!r} is not UTF-8", param_hint="--header") from None
        pairs.append((name, value))
    return pairs


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    """Open the file, or stdin. Raises Fatal (2) if it cannot be read, now or later in the block."""
    try:
        if file != STDIN:
            with file.open("rb") as lines:
                yield lines
        elif sys.stdin is None:
            raise Fatal("stdin is closed", "name a file with --file, or feed events through a pipe", USAGE)
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
    """Show how much is written, on stderr if that is a terminal."""
    size = file.stat().st_size if file.is_file() else None
    columns = (TextColumn("writing"), BarColumn(), TextColumn("{task.fields[events]:,} events"), TimeElapsedColumn())
    with Bars(*columns, console=err_console, transient=True, disable=not err_console.is_terminal) as bars:
        task = bars.add_task("", total=size, events=0)
        yield lambda events, read: bars.update(task, completed=read if size else 0, events=events)


class WritePace:
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


def write(
    writer: EventWriter, lines: Iterable[EventLine], template: RecordTemplate, rate: float | None, progress: Progress
) -> None:
    """Write lines, and wait until the broker has confirmed each.

    Partitions are chosen by key as the Java client does (murmur2). `rate` is events a second; `progress` is called a few times
    a second.

    Raises:
        Fatal: if the broker did not take an event, or if a line lacks a field.
    """
    pace, read, shown = WritePace(rate, time.monotonic()), 0, 0.0
    for count, line in enumerate(lines):
        now = time.monotonic()
        if (pause := pace.pause(count, now)) > 0:
            time.sleep(pause)
        writer.write(line.number, template.record(line))
        read += len(line.data) + 1
        if count == 0:  # it waits half a second for its producer id: the others begin after that
            writer.confirm()
            pace = WritePace(rate, time.monotonic())
        if now > shown + SHOW_SECONDS:
            progress(count + 1, read)
            shown = now
    writer.confirm()
