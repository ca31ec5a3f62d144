"""Write tables row by row as JSON lines, CSV or Parquet, in bounded memory, to a file or to stdout.

A file appears under its name when it is complete.
"""

import contextlib
import csv
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from model_registry import atomic_files
from model_registry.untrusted_input.terminal_text import printable, printable_json
from publisher.errors import USAGE, Fatal
from scorer.data_files.arrow import load_pyarrow
from scorer.data_files.formats import TableFormat

GROUP_ROWS = 1 << 17
GROUP_BYTES = 64 << 20
"""A row group of a Parquet file is complete at GROUP_ROWS rows or at GROUP_BYTES bytes."""


class TableRows(Protocol):
    """Rows of a table. All rows that a writer gets have the same columns."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""

    def json_rows(self) -> Iterable[bytes]:
        """Return each row as a JSON object on one line."""

    def csv_rows(self) -> Iterable[Sequence[str]]:
        """Return each row as one text per column; an empty text for null."""

    def record_batch(self) -> Any:
        """Return the rows as a `pyarrow.RecordBatch`. All batches have the same schema."""


class TableWriter(Protocol):
    """A writer of one table."""

    def write(self, rows: TableRows) -> None:
        """Write rows. The first call defines the columns, also if it has no rows."""

    def close(self) -> None:
        """Write the end of the table. Call it once, and not after an error."""


class JsonLinesWriter:
    """Writer of JSON lines, in which control characters of texts are escaped."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, rows: TableRows) -> None:
        """Write rows; see `TableWriter`."""
        self._stream.write(b"".join(printable_json(line) + b"\n" for line in rows.json_rows()))

    def close(self) -> None:
        """Flush the stream."""
        self._stream.flush()


class CsvWriter:
    """Writer of CSV in UTF-8 with a header, quoted as RFC 4180 describes, with one line feed after each row.

    Args:
        stream: the stream to write to.
        escapes: whether control characters are escaped, because the text may be shown on a terminal.
    """

    def __init__(self, stream: BinaryIO, *, escapes: bool) -> None:
        self._stream = stream
        self._escapes = escapes
        self._is_begun = False

    def write(self, rows: TableRows) -> None:
        """Write rows; see `TableWriter`."""
        lines = _CsvLines()
        writer = csv.writer(lines)
        if not self._is_begun:
            writer.writerow(rows.names)
            self._is_begun = True
        writer.writerows(rows.csv_rows())
        text = "".join(lines)
        content = printable(text, lines=True) if self._escapes else text
        self._stream.write(content.encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        """Flush the stream."""
        self._stream.flush()


class _CsvLines(list[str]):
    """Lines of CSV that end with a line feed.

    The module csv quotes a carriage return in a cell only if it ends lines with CRLF. It therefore ends lines with CRLF, and
    this class replaces the CRLF at the end of each line by a line feed.
    """

    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")


class ParquetWriter:
    """Writer of a Parquet file, which keeps at most one row group in memory."""

    def __init__(self, stream: BinaryIO) -> None:
        self._pa = load_pyarrow()
        self._sink = self._pa.PythonFile(_CountedStream(stream), "w")
        self._stream = stream
        self._writer: Any = None
        self._pending: list[Any] = []

    def write(self, rows: TableRows) -> None:
        """Write rows; see `TableWriter`."""
        batch = rows.record_batch()
        if self._writer is None:
            self._writer = self._pa.parquet.ParquetWriter(self._sink, batch.schema, compression="zstd")
        self._pending.append(batch)
        if sum(len(each) for each in self._pending) >= GROUP_ROWS or sum(each.nbytes for each in self._pending) >= GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        """Write the last row group and the footer."""
        self._write_group()
        self._writer.close()
        self._stream.flush()

    def _write_group(self) -> None:
        if self._pending:
            self._writer.write_table(self._pa.Table.from_batches(self._pending), row_group_size=GROUP_ROWS)
        self._pending = []


class _CountedStream:
    """A stream that counts its position, because a pipe does not report one."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._position = 0

    def write(self, data: Any) -> int:
        self._stream.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """Leave the stream open: its owner closes it."""


@contextlib.contextmanager
def table_writer(format_: TableFormat, path: Path | None) -> Iterator[TableWriter]:
    """Yield a writer of a table to a file, or to stdout if `path` is None. After an error, the file has its former content.

    Raises:
        Fatal: the file cannot be written, pyarrow is missing, or a Parquet file would be written to a terminal.
    """
    if format_ is TableFormat.PARQUET:
        load_pyarrow()
        if path is None and sys.stdout.isatty():
            raise Fatal("a Parquet file cannot be shown on a terminal", "write a file with --output, or a pipe", USAGE)
    with _open_output(path) as stream:
        writer = _create_writer(format_, stream, is_stdout=path is None)
        yield writer
        writer.close()


def _create_writer(format_: TableFormat, stream: BinaryIO, *, is_stdout: bool) -> TableWriter:
    match format_:
        case TableFormat.PARQUET:
            return ParquetWriter(stream)
        case TableFormat.CSV:
            return CsvWriter(stream, escapes=is_stdout)
        case TableFormat.JSON:
            return JsonLinesWriter(stream)


@contextlib.contextmanager
def _open_output(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        return
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:  # a pipe or a device
                yield stream
            return
        path = path.resolve()  # the file behind a link, such as /dev/stdout, in place of the link itself
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        part = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                yield stream
                os.fchmod(stream.fileno(), 0o644)
            atomic_files.place(part, path)
        finally:
            part.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Fatal(f"{path} cannot be written: {error.strerror}", "give another path with --output", USAGE) from error
