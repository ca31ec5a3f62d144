"""`scorer tables`: print the tables as the running scorers report them, or the row of a key as the topic has it."""

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import msgspec
import orjson
import typer
from confluent_kafka import Message
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from model_registry import suggestions
from model_registry.package.signature import Signature
from model_registry.untrusted_input.terminal_text import printable, printable_json
from publisher.errors import FINDING, USAGE, Fatal
from publisher.kafka.partitions import Spans
from publisher.kafka.reader import TopicReader
from publisher.runtime.command_line import Config, DefaultCommandGroup, Json, Set, print_data
from publisher.runtime.time_range import iso_time
from scorer.console.scorer_fold import last_states
from scorer.console.table_partitions import TablePartition, summarize
from scorer.dead_letters.reasons import Poison
from scorer.decoding.row_schema import RowSchema
from scorer.decoding.schema_formats.schema_source import SchemaSource, create_schema_source, start_of
from scorer.observability.read_output_topics import read_to_end
from scorer.settings import Settings, load
from scorer.settings.tables import TableSettings

COLUMNS = ("table", "partition", "scorers", "rows", "bytes", "position", "lag", "state")
NUMBERS = frozenset({"partition", "scorers", "rows", "bytes", "position", "lag"})

app = typer.Typer(
    cls=DefaultCommandGroup,
    help="Print the tables that events are joined with, or a row. `scorer tables CONFIG` is `scorer tables list CONFIG`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@dataclass(frozen=True, slots=True)
class NewestRow:
    """The newest record of a key in one partition of a table's topic.

    Attributes:
        partition: The partition.
        offset: The offset of the record.
        time: The timestamp of the record, as ISO 8601; None if the record has no valid timestamp.
        deleted: Whether the record is a tombstone, which deletes the row.
        row: The row as a JSON value; None for a tombstone or an unreadable record.
        problem: The reason why the record cannot be decoded; "" if it can be decoded.
    """

    partition: int
    offset: int
    time: str | None
    deleted: bool
    row: Any
    problem: str = ""


@app.command("list")
def list_tables(path: Config, flags: Set = None, as_json: Json = False) -> None:
    """Print the tables as the running scorers report them: rows, bytes, position and lag by partition."""
    settings = load(path, flags or []).settings
    scorers = last_states(read_to_end(settings, settings.status_topic), time.time()) if settings.tables else []
    partitions = summarize(scorers, time.time(), list(settings.tables))
    value = {"tables": [asdict(each) for each in partitions]}
    print_data(as_json, value, lambda: as_table(partitions) if settings.tables else f"{path} configures no tables")


@app.command()
def get(
    path: Config,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The name of the table.", show_default=False)],
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key of the row, as text.", show_default=False)],
    flags: Set = None,
    as_json: Json = False,
) -> None:
    """Print the newest row of a key in each partition of the table's topic. Reads the topic; exit code 1 without a row."""
    settings = load(path, flags or []).settings
    table_settings = select_table(settings, table)
    rows = newest_rows(settings, table_settings, key.encode("utf-8", "surrogateescape"))
    value = {"table": table, "topic": table_settings.topic, "key": printable(key), "rows": [asdict(row) for row in rows]}
    print_data(as_json, value, lambda: as_lines(rows))
    if not any(not row.deleted for row in rows):
        raise typer.Exit(FINDING)


def select_table(settings: Settings, name: str) -> TableSettings:
    """Return the settings of the table with this name. Raises Fatal with exit code 2 if there is no such table."""
    if name in settings.tables:
        return settings.tables[name]
    names = list(settings.tables)
    hint = suggestions.question(name, names) or f"tables: {', '.join(names) or 'none'}"
    raise Fatal(f"the configuration has no table {name!r}", hint, USAGE)


def as_table(partitions: Iterable[TablePartition]) -> Table:
    """Return the partitions of tables as a table for a terminal."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in NUMBERS else "left", no_wrap=True)
    for each in partitions:
        if each.partition is None:
            cells = [each.table, "-", "0", "-", "-", "-", "-", each.state]
        else:
            numbers = [f"{each.rows:,}", f"{each.bytes:,}", f"{each.position:,}", f"{each.lag_seconds:.1f} s"]
            cells = [each.table, str(each.partition), str(len(each.scorers)), *numbers, each.state]
        table.add_row(*map(Text, cells))
    return table


def as_lines(rows: Iterable[NewestRow]) -> str:
    """Return one line for each record: partition, offset, time and content.

    The content is the row as JSON, `deleted` for a tombstone, or `(unreadable: ...)` with the problem.
    """
    lines = []
    for each in rows:
        if each.deleted:
            content = "deleted"
        elif each.problem:
            content = f"(unreadable: {each.problem})"
        else:
            content = printable_json(orjson.dumps(each.row)).decode()
        lines.append(f"partition {each.partition}, offset {each.offset}, {each.time or 'no time'}: {content}")
    return printable("\n".join(lines), lines=True) or "no row has this key"


def newest_rows(settings: Settings, table: TableSettings, key: bytes) -> list[NewestRow]:
    """Return the newest record of a key in each partition that has one, read up to the current end of the topic.

    Raises:
        Fatal: The topic does not exist or cannot be read, or the format's library is missing.
    """
    reader = TopicReader(settings.kafka, f"{settings.name}.tables")
    spans: Spans = reader.spans(reader.partitions([table.topic]))
    newest: dict[int, Message] = {}
    for batch in reader.read(spans):
        for message in batch.messages:
            if message.key() == key:
                newest[batch.partition[1]] = message
    decode = row_decoder(settings, table)
    return [_row(number, message, decode) for number, message in sorted(newest.items())]


def row_decoder(settings: Settings, table: TableSettings, source: SchemaSource | None = None) -> Callable[[bytes], Any]:
    """Return a function that decodes a row of the table to a JSON value. The function raises Poison for an invalid row.

    As in a scorer, the value of a row contains the id of its schema, and headers are ignored. The function waits until the
    schema is available. `source` is the source of the schemas; None to use the configured registry.
    """
    if table.format == "json":
        return _decode_json
    table_input = settings.input.model_copy(update={"format": table.format, "schema_file": None, "message": None})
    schemas = source or create_schema_source(settings.model_copy(update={"input": table_input}))
    fields = RowSchema(Signature((), ()), None, table_input.max_event_bytes)

    def decode(value: bytes) -> Any:
        schema_key = schemas.key(value, None)
        row = schemas.reader(schema_key, fields, None).path_reader([()])(value, start_of(schema_key))[0]
        return msgspec.to_builtins(row)

    return decode


def _decode_json(value: bytes) -> Any:
    from scorer.dead_letters.reasons import Reason

    try:
        return orjson.loads(value)
    except ValueError as error:
        raise Poison(Reason.MALFORMED, f"the row is not JSON: {error}") from None


def _row(partition: int, message: Message, decode: Callable[[bytes], Any]) -> NewestRow:
    value = message.value()
    offset = message.offset() or 0
    at = iso_time(message.timestamp()[1])
    if value is None:
        return NewestRow(partition, offset, at, deleted=True, row=None)
    try:
        return NewestRow(partition, offset, at, deleted=False, row=decode(value))
    except Poison as poison:
        return NewestRow(partition, offset, at, deleted=False, row=None, problem=str(poison))
