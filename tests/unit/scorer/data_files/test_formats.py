from pathlib import Path

import pytest

from scorer.data_files.formats import TableFormat, format_of


@pytest.mark.parametrize(
    ("name", "format_"), [("a.parquet", "parquet"), ("a.CSV", "csv"), ("a.b.jsonl", "json"), ("a.txt", None), ("csv", None)]
)
def test_the_ending_of_a_name_states_the_format(name: str, format_: str | None) -> None:
    assert format_of(Path(name)) == (format_ and TableFormat(format_))
