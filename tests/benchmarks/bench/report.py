"""The figures of a run as tables."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

PARTS = ("decode", "infer", "encode", "score")
COUNTED = (
    "drain",
    "features",
    "tables",
    "tables_paced",
    "tables_streams",
    "formats",
    "headers",
    "held_out",
    "pictures",
    "workers",
    "split",
    "paced",
    "swap",
    "shadow",
    "compare",
    "lineage",
)
"""Groups whose rows have the numbers of missing and duplicate events."""


def tables(figures: Mapping[str, Any]) -> Iterator[Table]:
    if parts := figures.get("components"):
        yield _components(parts)
    for group in ("bus", *COUNTED, "start"):
        if rows := figures.get(group):
            yield _rows(group, [_flat(row) for row in rows])


def faults(figures: Mapping[str, Any]) -> int:
    """Count the events that were missing, answered twice or answered wrongly, over all measurements."""
    rows = [row for group in COUNTED for row in figures.get(group, [])]
    return sum(row["missing"] + row["duplicates"] + row.get("wrong", 0) for row in rows)


def _components(parts: Mapping[str, Any]) -> Table:
    table = Table("batch", "features", *PARTS, title="CPU us an event, this thread: median (lowest-highest)")
    for row in [*parts["by_batch"], *parts["by_features"], *parts["held_out"]]:
        table.add_row(str(row["batch"]), str(row["features"]), *(_cost(row[name]) for name in PARTS))
    table.caption = f"the yardstick is {parts['yardstick_us']:.2f} us"
    return table


def _cost(cost: Mapping[str, float]) -> str:
    return f"{cost['us']:.2f} ({cost['lowest']:.2f}-{cost['highest']:.2f})"


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the cells of a row: nested figures by dotted names, spreads as `median (lowest-highest)`."""
    cells: dict[str, str] = {}
    for name, value in row.items():
        if isinstance(value, Mapping) and "median" in value:
            same = value["lowest"] == value["highest"]
            cells[prefix + name] = f"{value['median']:g}" + ("" if same else f" ({value['lowest']:g}-{value['highest']:g})")
        elif isinstance(value, Mapping):
            cells |= _flat(value, f"{prefix}{name}.")
        else:
            cells[prefix + name] = f"{value:g}" if isinstance(value, float) else str(value)
    return cells


def _rows(title: str, rows: list[dict[str, str]]) -> Table:
    """Return a table with a line per figure and a column per measurement."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = Table("figure", *(str(number + 1) for number in range(len(rows))), title=title)
    for name in names:
        table.add_row(name, *(row.get(name, "") for row in rows))
    return table
