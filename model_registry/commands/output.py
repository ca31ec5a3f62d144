"""How every verb prints: data on stdout, as JSON or for people; talk and progress on stderr."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from model_registry.untrusted_input.text import printable, printable_json

if TYPE_CHECKING:
    from model_registry.channels.history import ChannelMove
    from model_registry.oci.manifest import Descriptor
    from model_registry.stores.base import Progress

BAR_BYTES = 1 << 20  # smaller content is there before anybody could read its bar


def show(as_json: bool, value: object, text: str) -> None:
    """Data as JSON, or the text."""
    if as_json:
        import msgspec

        typer.echo(printable_json(msgspec.json.format(msgspec.json.encode(value), indent=2)))
    else:
        typer.echo(printable(text, lines=True))


def show_line(as_json: bool, value: object, text: str) -> None:
    """Data as JSON on one line, or the text, on one line too."""
    import msgspec

    typer.echo(printable_json(msgspec.json.encode(value)) if as_json else plain(text))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        shown.add_row(*[Text(plain(cell), overflow="fold") for cell in row])
    console = Console()
    with console.capture() as captured:
        console.print(shown)
    return captured.get().rstrip("\n")


def plain(text: object) -> str:
    """Return text of a registry or a topic on one line, with what a terminal would act on escaped."""
    return printable(text)


def short(digest: str) -> str:
    """A digest that fits a column."""
    return digest[: len("sha256:") + 12]


def talk(line: str) -> None:
    typer.echo(plain(line), err=True)


def move(made: "ChannelMove") -> dict[str, Any]:
    keys = {"from_digest": "from", "to_digest": "to"}
    return {keys.get(key, key): value for key, value in asdict(made).items()}


def move_line(made: "ChannelMove") -> str:
    from model_registry.channels import roles

    parts = f": {roles.format_roles(made.roles)}" if made.roles else ""
    back = f", back to revision {made.restores}" if made.restores else ""
    return plain(
        f"{made.channel}: {made.from_version or 'nothing'} -> {made.to_version} (revision {made.revision}{back}){parts}"
    )


@contextmanager
def bars() -> "Iterator[Progress | None]":
    """Progress of each piece of content on stderr; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def moved(content: "Descriptor", done: int) -> None:
            if content.size < BAR_BYTES:
                return
            if content.digest not in tasks:
                tasks[content.digest] = progress.add_task(short(content.digest), total=content.size)
            progress.update(tasks[content.digest], completed=done)

        yield moved
