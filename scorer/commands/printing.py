"""What every command prints with: data on stdout, as JSON or for people; talk on stderr."""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

WIDE = 10_000  # columns: nothing is folded

Config = Annotated[Path, typer.Argument(help="The configuration, a YAML file.", show_default=False)]
Set = Annotated[list[str] | None, typer.Option("--set", help="Override a setting: --set batching.latency_target_ms=10")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


def print_json(value: object) -> None:
    """One JSON document."""
    import orjson

    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n")
    sys.stdout.flush()


def print_data(as_json: bool, value: object, shown: Callable[[], Any], *, wide: bool = False) -> None:
    """The value as JSON, or what `shown` makes of it for people: as wide as the terminal, or with `wide` as it comes."""
    if as_json:
        print_json(value)
    else:
        Console(width=WIDE if wide else None).print(shown())


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Any:
    """For people."""
    from rich.table import Table

    made = Table(*columns)
    for row in rows:
        made.add_row(*row)
    return made
