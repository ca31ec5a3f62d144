"""Local files of events: Parquet, CSV with a header, and JSON lines. Each row becomes the JSON of one event."""

import contextlib
import csv
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import orjson

from model_registry import suggestions
from model_registry.package.signature import Signature
from publisher.errors import USAGE, Fatal
from scorer.data_files.arrow import load_pyarrow
from scorer.data_files.formats import SUFFIXES, TableFormat, format_of
from scorer.dead_letters.reasons import Poison, Reason
from scorer.offline.file_signature import FittedColumns, fit_columns, outside_fields
from scorer.offline.json_cells import NULL, cell_json, column_json, join_objects, json_text
from scorer.settings import Settings

STDIN = Path("-")
EVENT = "event"
"""The only column of a file of JSON lines: the line as text."""
CHUNK_ROWS = 8_192
CHUNK_BYTES = 16 << 20
MIN_CELL = 131_072  # the limit of the module csv for one cell, which `input.max_event_bytes` may raise


class FileRows(Protocol):
    """Some rows of a file."""

    @property
    def events(self) -> Sequence[bytes]:
        """The event of each row as JSON."""

    @property
    def invalid(self) -> Mapping[int, Poison]:
        """The rows from which no event can be built: the error by row index."""

    def json_objects(self, without: Sequence[str]) -> list[bytes]:
        """Return each row as a JSON object of the file's columns. For JSON lines, the fields named in `without` are removed."""

    def texts(self) -> Sequence[Sequence[str]]:
        """Return each row as texts, one for each column of the file; an empty text for null."""

    def arrays(self) -> list[Any]:
        """Return each column of the file as a `pyarrow.Array`."""


class Progress(NamedTuple):
    """How much of a file was read, and its total size, both in rows or both in bytes. The total is None if it is unknown."""

    done: int
    total: int | None


class InputFile(Protocol):
    """An open file of events."""

    @property
    def format(self) -> TableFormat:
        """The format of the file."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""

    @property
    def fitted(self) -> FittedColumns | None:
        """The columns that feed the fields of the signature; None for JSON lines, which already are events."""

    def read(self) -> Iterator[tuple[FileRows, Progress]]:
        """Yield the rows of the file in chunks. The first chunk may be empty. Raises Fatal if the file cannot be read."""


@contextlib.contextmanager
def open_file(path: Path, signature: Signature, settings: Settings) -> Iterator[InputFile]:
    """Open a file of events; `-` is stdin with JSON lines.

    Raises:
        Fatal: With exit code 2 if the file cannot be read, has no known format, or has no column for a field.
    """
    if path == STDIN:
        yield JsonLinesFile(sys.stdin.buffer, "stdin", signature)
        return
    with contextlib.ExitStack() as opened:
        try:
            stream = opened.enter_context(path.open("rb"))
        except OSError as error:
            hint = suggestions.file_question(path) or "check the path and its permissions"
            raise Fatal(f"{path} cannot be read: {error.strerror}", hint, USAGE) from None
        match format_of(path):
            case TableFormat.PARQUET:
                yield ParquetRowsFile(stream, str(path), signature, settings)
            case TableFormat.CSV:
                yield CsvFile(stream, str(path), signature, settings)
            case TableFormat.JSON:
                yield JsonLinesFile(stream, str(path), signature)
            case _:
                names = ", ".join(SUFFIXES)
                raise Fatal(f"the format of {path} is unknown: its name has none of the endings {names}", "rename it", USAGE)


class ParquetRowsFile:
    """A Parquet file."""

    format = TableFormat.PARQUET

    def __init__(self, stream: BinaryIO, name: str, signature: Signature, settings: Settings) -> None:
        self._pa = load_pyarrow()
        self._name = name
        with self._errors():
            self._file = self._pa.parquet.ParquetFile(stream)
        self.names = self._file.schema_arrow.names
        _check_distinct(self.names, name)
        self.fitted = fit_columns(signature, self.names, settings.input.id_field, name)

    def read(self) -> Iterator[tuple[FileRows, Progress]]:
        """Yield the rows; see `InputFile`."""
        total = self._file.metadata.num_rows
        done = 0
        yield ParquetRows(self._empty(), self.fitted), Progress(0, total)
        with self._errors():
            for batch in self._file.iter_batches(batch_size=CHUNK_ROWS):
                done += len(batch)
                yield ParquetRows(batch, self.fitted), Progress(done, total)

    def _empty(self) -> Any:
        schema = self._file.schema_arrow
        return self._pa.RecordBatch.from_arrays([self._pa.array([], field.type) for field in schema], schema=schema)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (self._pa.ArrowException, OSError) as error:
            raise Fatal(f"{self._name} cannot be read: {error!s:.300}", "check that it is a Parquet file", USAGE) from None


class ParquetRows:
    """Rows of a Parquet file; see `FileRows`."""

    def __init__(self, batch: Any, fitted: FittedColumns) -> None:
        self._batch = batch
        names = list(fitted.fields)
        columns = [column_json(name, batch.column(name)) for name in names]
        self.events = join_objects(names, columns, len(batch))
        self.invalid: dict[int, Poison] = {}

    def json_objects(self, without: Sequence[str]) -> list[bytes]:  # noqa: ARG002 - the names are checked before
        return join_objects(self._batch.schema.names, self._json_columns(), len(self._batch))

    def texts(self) -> Sequence[Sequence[str]]:
        return list(zip(*([_text(cell) for cell in column] for column in self._json_columns()), strict=True))

    def arrays(self) -> list[Any]:
        return list(self._batch.columns)

    def _json_columns(self) -> list[list[bytes]]:
        pairs = zip(self._batch.schema.names, self._batch.columns, strict=True)
        return [column_json(name, column, nan=NULL) for name, column in pairs]


class CsvFile:
    """A CSV file with a header, in UTF-8."""

    format = TableFormat.CSV

    def __init__(self, stream: BinaryIO, name: str, signature: Signature, settings: Settings) -> None:
        self._total = _size(stream)
        self._stream = stream
        text = io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline="")
        csv.field_size_limit(max(MIN_CELL, settings.input.max_event_bytes))
        self._rows = csv.reader(text)
        try:
            self.names = list(map(_printable, next(self._rows, [])))
        except csv.Error as error:
            raise Fatal(f"the header of {name} cannot be read: {error}", "check that it is a CSV file", USAGE) from None
        if not self.names:
            raise Fatal(f"{name} has no header", "write the names of the columns in its first line", USAGE)
        _check_distinct(self.names, name)
        self.fitted = fit_columns(signature, self.names, settings.input.id_field, name)

    def read(self) -> Iterator[tuple[FileRows, Progress]]:
        """Yield the rows; see `InputFile`."""
        yield CsvRows([], self.names, self.fitted), Progress(0, self._total)
        while rows := list(islice(self._next_rows(), CHUNK_ROWS)):
            done = 0 if self._total is None else self._stream.tell()
            yield CsvRows(rows, self.names, self.fitted), Progress(done, self._total)

    def _next_rows(self) -> Iterator[list[str] | csv.Error]:
        while True:
            try:
                row = next(self._rows)
            except StopIteration:
                return
            except csv.Error as error:
                yield error
            else:
                if row:  # an empty line is no row
                    yield row


class CsvRows:
    """Rows of a CSV file; see `FileRows`. Missing cells at the end of a row are null."""

    def __init__(self, rows: Sequence[list[str] | csv.Error], names: Sequence[str], fitted: FittedColumns) -> None:
        self._names = names
        self._rows: list[list[str]] = []
        self.invalid: dict[int, Poison] = {}
        width = len(names)
        for index, row in enumerate(rows):
            cells: list[str] = [] if isinstance(row, csv.Error) else row
            if isinstance(row, csv.Error):
                self.invalid[index] = Poison(Reason.MALFORMED, f"not CSV: {row}")
            elif len(row) > width:
                error = f"the row has {len(row)} cells, but the header has {width} columns"
                self.invalid[index] = Poison(Reason.MALFORMED, error)
            self._rows.append((cells + [""] * (width - len(cells)))[:width])
        places = [(names.index(name), field) for name, field in fitted.fields.items()]
        columns = [[cell_json(row[place], field) for row in self._rows] for place, field in places]
        self.events = join_objects(list(fitted.fields), columns, len(self._rows))

    def json_objects(self, without: Sequence[str]) -> list[bytes]:  # noqa: ARG002 - the names are checked before
        columns = [
            [json_text(_printable(row[at])) if row[at] else NULL for row in self._rows] for at in range(len(self._names))
        ]
        return join_objects(self._names, columns, len(self._rows))

    def texts(self) -> Sequence[Sequence[str]]:
        return [list(map(_printable, row)) for row in self._rows]

    def arrays(self) -> list[Any]:
        pa = load_pyarrow()
        texts = self.texts()
        return [pa.array([row[at] or None for row in texts], pa.string()) for at in range(len(self._names))]


class JsonLinesFile:
    """A file of JSON lines. Each line that is not empty is an event; `file_signature.for_lines` describes its form."""

    format = TableFormat.JSON
    names: Sequence[str] = (EVENT,)
    fitted = None

    def __init__(self, stream: BinaryIO, name: str, signature: Signature) -> None:
        self._stream = stream
        self._name = name
        self._outside = outside_fields(signature)
        self._total = None if name == "stdin" else _size(stream)

    def read(self) -> Iterator[tuple[FileRows, Progress]]:
        """Yield the rows; see `InputFile`.

        Raises:
            Fatal: With exit code 2 if no line of the first chunk has a value for one of the `outside_fields`.
        """
        yield LineRows([]), Progress(0, self._total)
        done = 0
        is_checked = not self._outside
        for lines in self._chunks():
            done += sum(map(len, lines))
            rows = LineRows([event for line in lines if (event := line.strip(b" \t\r\n"))])
            if not is_checked:
                self._check_outside(rows)
                is_checked = True
            yield rows, Progress(done, self._total)

    def _chunks(self) -> Iterator[list[bytes]]:
        """Yield the lines in lists of at most CHUNK_ROWS lines and about CHUNK_BYTES bytes."""
        while lines := self._stream.readlines(CHUNK_BYTES):
            for start in range(0, len(lines), CHUNK_ROWS):
                yield lines[start : start + CHUNK_ROWS]

    def _check_outside(self, rows: "LineRows") -> None:
        objects = [event for event in map(_parse_object, rows.events) if event is not None]
        missing = [field for field in self._outside if not any(field.name in event for event in objects)]
        if objects and missing:
            names = ", ".join(f"{field.name!r} ({field.source})" for field in missing)
            raise Fatal(
                f"the lines of {self._name} have no field {names}, and no table or record is read for a line",
                "add the values to each line as fields of these names",
                USAGE,
            )


class LineRows:
    """JSON lines; see `FileRows`."""

    def __init__(self, events: list[bytes]) -> None:
        self.events = events
        self.invalid: dict[int, Poison] = {}

    def json_objects(self, without: Sequence[str]) -> list[bytes]:
        return [_as_object(line, without) for line in self.events]

    def texts(self) -> Sequence[Sequence[str]]:
        return [[line.decode("utf-8", "backslashreplace")] for line in self.events]

    def arrays(self) -> list[Any]:
        pa = load_pyarrow()
        return [pa.array([row[0] for row in self.texts()], pa.string())]


def _as_object(line: bytes, without: Sequence[str]) -> bytes:
    """Return a line as a JSON object. An object loses the fields in `without`. Any other text becomes `{"event": text}`."""
    event = _parse_object(line)
    if event is None:
        return b'{"event":%b}' % orjson.dumps(line.decode("utf-8", "backslashreplace"))
    if not any(name in event for name in without):
        return line
    return orjson.dumps({name: value for name, value in event.items() if name not in without})


def _parse_object(line: bytes) -> dict[str, Any] | None:
    try:
        event = orjson.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _printable(text: str) -> str:
    """Return the text of a cell with escapes in place of bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _text(cell: bytes) -> str:
    """Return a JSON value as the text of a CSV cell: a string without quotation marks, and null as an empty text."""
    if cell == NULL:
        return ""
    return str(orjson.loads(cell)) if cell.startswith(b'"') else cell.decode()


def _size(stream: BinaryIO) -> int | None:
    """Return the number of bytes of a file; None for a pipe."""
    return os.fstat(stream.fileno()).st_size if stream.seekable() else None


def _check_distinct(names: Sequence[str], file: str) -> None:
    if repeated := next((name for name in names if list(names).count(name) > 1), None):
        raise Fatal(f"{file} has several columns {repeated!r}", "rename or drop them", USAGE)
