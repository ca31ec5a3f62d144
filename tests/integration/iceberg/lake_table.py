"""A table in an Iceberg catalog in SQLite: its number of rows from the metadata, its columns and rows from pyiceberg."""

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.pinned_environment import pinned_python

PINNED = "pyiceberg[pyarrow,sql-sqlite]==0.12.0"
READ = """
import json, sys
from datetime import datetime, timedelta, timezone
from pyiceberg.catalog.sql import SqlCatalog

def columns(fields):
    types = {field.name: field.field_type for field in fields}
    return {name: columns(kind.fields) if kind.is_struct else str(kind) for name, kind in types.items()}

def plain(value):
    ms, rest = divmod(value - datetime(1970, 1, 1, tzinfo=timezone.utc), timedelta(milliseconds=1))
    return ms if not rest else str(value)

catalog, warehouse, name, target = sys.argv[1:]
table = SqlCatalog("iceberg", uri=f"sqlite:///{catalog}", warehouse=warehouse).load_table(name)
rows = table.scan().to_arrow().to_pylist()
partitions = [f"{field.transform}({table.schema().find_column_name(field.source_id)})" for field in table.spec().fields]
summary = {"columns": columns(table.schema().fields), "partitions": partitions, "rows": rows}
with open(target, "w") as file:
    json.dump(summary, file, default=plain)
"""


class TableContent(NamedTuple):
    """The content of a table.

    Attributes:
        columns: The types by name of the column; a struct is a dict of its fields. A type has Iceberg's text.
        partitions: The partition fields, such as `day(event_time)`.
        rows: The rows in no order. A timestamp is an integer in Unix ms.
    """

    columns: dict[str, Any]
    partitions: list[str]
    rows: list[dict[str, Any]]


class LakeTable:
    """The table `name` (`namespace.table`) in a catalog of the type `jdbc` in the SQLite file `catalog`."""

    def __init__(self, catalog: Path, warehouse: Path, name: str) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._name = name

    def count(self) -> int:
        """Return the number of rows in the current snapshot; 0 if there is no snapshot."""
        if not self._catalog.is_file():
            return 0
        namespace, _, table = self._name.rpartition(".")
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
        with closing(sqlite3.connect(f"file:{self._catalog}?mode=ro", uri=True, timeout=30)) as connection:
            try:
                row = connection.execute(query, (namespace, table)).fetchone()
            except sqlite3.OperationalError:  # the connector has not created the catalog's tables yet
                return 0
        if row is None:
            return 0
        metadata = json.loads(Path(row[0].removeprefix("file:")).read_text())
        current = metadata.get("current-snapshot-id")
        snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots", ())}
        return int(snapshots[current]["summary"]["total-records"]) if current in snapshots else 0

    def read(self, folder: Path) -> TableContent:
        """Read the table with pyiceberg. Raises RuntimeError if it cannot be read.

        Args:
            folder: An existing folder for the intermediate file.
        """
        target = folder / "table.json"
        run_pyiceberg(READ, str(self._catalog), str(self._warehouse), self._name, str(target))
        return TableContent(**json.loads(target.read_text()))


def run_pyiceberg(script: str, *arguments: str) -> str:
    """Run a Python script in an environment with pyiceberg and return its output. Raises RuntimeError if the script fails."""
    command = [str(pinned_python("pyiceberg", PINNED)), "-c", script, *arguments]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise RuntimeError(f"a script with {PINNED} failed:\n{completed.stderr}")
    return completed.stdout
