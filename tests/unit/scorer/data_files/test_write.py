import csv
import io
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from publisher.errors import Fatal
from scorer.data_files.formats import TableFormat
from scorer.data_files.write import GROUP_ROWS, CsvWriter, JsonLinesWriter, ParquetWriter, table_writer


class Numbers:
    """Rows with one column of numbers."""

    names: Sequence[str] = ("n",)

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def json_rows(self) -> Iterator[bytes]:
        return (b'{"n":%d}' % number for number in self._numbers)

    def csv_rows(self) -> Iterator[Sequence[str]]:
        return ([str(number)] for number in self._numbers)

    def record_batch(self) -> Any:
        return pyarrow.RecordBatch.from_arrays([pyarrow.array(self._numbers, pyarrow.int64())], names=["n"])


@pytest.mark.parametrize(
    ("format_", "text"), [(TableFormat.JSON, '{"n":1}\n{"n":2}\n{"n":3}\n'), (TableFormat.CSV, "n\n1\n2\n3\n")]
)
def test_rows_of_several_calls_are_one_table(format_: TableFormat, text: str, tmp_path: Path) -> None:
    with table_writer(format_, tmp_path / "t") as writer:
        writer.write(Numbers(1, 2))
        writer.write(Numbers(3))
    assert (tmp_path / "t").read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_a_parquet_file_has_bounded_row_groups(tmp_path: Path) -> None:
    chunk = Numbers(*range(GROUP_ROWS // 2))
    with table_writer(TableFormat.PARQUET, tmp_path / "t.parquet") as writer:
        for _ in range(5):
            writer.write(chunk)
    metadata = parquet.read_metadata(tmp_path / "t.parquet")
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [GROUP_ROWS, GROUP_ROWS, GROUP_ROWS // 2]


def test_a_table_without_rows_has_its_columns(tmp_path: Path) -> None:
    with table_writer(TableFormat.PARQUET, tmp_path / "t.parquet") as writer:
        writer.write(Numbers())
    assert parquet.read_table(tmp_path / "t.parquet").schema.names == ["n"]


def test_a_parquet_file_is_written_to_a_pipe() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as stream:
        writer = ParquetWriter(stream)
        writer.write(Numbers(1, 2))
        writer.close()
    with os.fdopen(reading, "rb") as stream:
        table = parquet.read_table(pyarrow.BufferReader(stream.read()))
    assert table.column("n").to_pylist() == [1, 2]


def test_an_error_leaves_the_former_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("former")
    with pytest.raises(ZeroDivisionError), table_writer(TableFormat.CSV, path) as writer:
        writer.write(Numbers(1 // 0))
    assert path.read_text() == "former"
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_a_link_stays_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("former")
    (tmp_path / "link.csv").symlink_to("t.csv")
    with table_writer(TableFormat.CSV, tmp_path / "link.csv") as writer:
        writer.write(Numbers(1))
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "t.csv").read_text() == "n\n1\n"


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "t.csv"
    message = r"nowhere/t\.csv cannot be written: No such file or directory"
    with pytest.raises(Fatal, match=message), table_writer(TableFormat.CSV, path):
        pass


def test_parquet_without_its_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Fatal, match="Parquet files need pyarrow") as error, table_writer(TableFormat.PARQUET, tmp_path / "t"):
        pass
    assert "[parquet]" in error.value.hint


@pytest.mark.parametrize("format_", [TableFormat.JSON, TableFormat.CSV])
def test_text_needs_no_library(format_: TableFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with table_writer(format_, tmp_path / "t") as writer:
        writer.write(Numbers(1))
    assert "1" in (tmp_path / "t").read_text()


class HostileText:
    """One row with a text that would control a terminal."""

    names: Sequence[str] = ("t",)

    def json_rows(self) -> Iterator[bytes]:
        return iter(['{"t":"\x9b2J"}'.encode()])

    def csv_rows(self) -> Iterator[Sequence[str]]:
        return iter([["\x1b[2J\n"]])

    def record_batch(self) -> Any:
        raise NotImplementedError


def test_texts_for_stdout_control_no_terminal() -> None:
    lines = io.BytesIO()
    JsonLinesWriter(lines).write(HostileText())
    assert lines.getvalue() == b'{"t":"\\u009b2J"}\n'
    cells = io.BytesIO()
    CsvWriter(cells, escapes=True).write(HostileText())
    assert cells.getvalue() == b't\n"\\x1b[2J\n"\n'


def test_a_file_has_texts_as_they_are() -> None:
    cells = io.BytesIO()
    CsvWriter(cells, escapes=False).write(HostileText())
    assert cells.getvalue() == b't\n"\x1b[2J\n"\n'


class Cells(HostileText):
    """One row with cells whose characters separate cells and rows of CSV."""

    names: Sequence[str] = ("a", "b")
    cells = ("1\r2", 'x,y\r\n"z"\n')

    def csv_rows(self) -> Iterator[Sequence[str]]:
        return iter([self.cells])


def test_line_ends_inside_of_cells_are_quoted(tmp_path: Path) -> None:
    with table_writer(TableFormat.CSV, tmp_path / "t.csv") as writer:
        writer.write(Cells())
    assert (tmp_path / "t.csv").read_bytes() == b'a,b\n"1\r2","x,y\r\n""z""\n"\n'
    with (tmp_path / "t.csv").open(newline="") as stream:
        assert list(csv.reader(stream)) == [["a", "b"], list(Cells.cells)]
