"""`scorer bench` for people: the cost curve as a table and, beside its figures, as a picture."""

import math

from rich import box
from rich.bar import Bar
from rich.console import Group
from rich.table import Table

from scorer.commands.bench import Report

WIDTH = 16  # columns of the longest bar


def shown(report: Report) -> Group:
    """The curve, then what follows from it. Times are drawn by their logarithm, throughput as it is."""
    table = Table(title=f"{report.version} on {report.device}", box=box.SIMPLE_HEAD, title_justify="left")
    for column in ("batch", "T(B) ms", "loop ms"):
        table.add_column(column, justify="right", no_wrap=True, min_width=7)
    table.add_column("", no_wrap=True, min_width=WIDTH)
    table.add_column("events/s", justify="right", no_wrap=True, min_width=8)
    table.add_column("", no_wrap=True, min_width=WIDTH)
    shortest = min(point.loop for point in report.points) / 2
    longest = max(point.loop for point in report.points)
    for point in report.points:
        height = math.log(point.loop / shortest) / math.log(longest / shortest)
        table.add_row(
            f"{point.size:,}",
            f"{point.model * 1e3:,.3f}",
            f"{point.loop * 1e3:,.3f}",
            Bar(1.0, 0.0, height, width=WIDTH, color="cyan"),
            f"{point.events_per_second:,.0f}",
            Bar(report.events_per_second, 0.0, point.events_per_second, width=WIDTH, color="green"),
        )
    return Group(table, *_lines(report))


def _lines(report: Report) -> list[str]:
    """In words."""
    own = (
        f"The model runs in buckets of {_list(report.buckets)}"
        if report.buckets
        else "The model runs each batch at its own size"
    )
    target = report.latency_target * 1e3
    return [
        f"With the loop a batch takes {report.fixed * 1e3:.3f} ms + {report.per_event * 1e6:.2f} us an event.",
        f"{own}; worth their padding are {_list(report.worthwhile)}.",
        f"Batches of up to {report.batch:,} meet the latency target of {target:g} ms.",
        f"One process reaches {report.events_per_second:,.0f} events/s, the time of Kafka's clients not counted.",
    ]


def _list(sizes: tuple[int, ...]) -> str:
    return ", ".join(f"{size:,}" for size in sizes)
