"""The partitions of tables of joined fields over all running scorers, from their status records. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scorer.console.scorer_fold import ScorerState
from scorer.observability.status_record import RUNNING

READY = "ready"
RESTORING = "restoring"
NOT_READ = "not read"


@dataclass(frozen=True, slots=True)
class TablePartition:
    """One partition of a table, summarized over all running scorers that hold its rows.

    If the values of several scorers differ, a figure is the smallest or the largest of them, as stated below.

    Attributes:
        table: The name of the table.
        partition: The number of the partition; None if no running scorer reports the table.
        scorers: The running scorers that hold the rows: one scorer, or every scorer if the table has `scope: all`.
        rows: The number of rows in one scorer (the smallest).
        bytes: The memory of the rows in one scorer (the largest).
        position: The next offset that a scorer reads (the smallest).
        lag_seconds: The time since the position last equalled the end of the topic (the largest).
        state: READY; RESTORING while a scorer still reads the records that existed when the partition was assigned; or
            NOT_READ if no running scorer reports the table.
    """

    table: str
    partition: int | None
    scorers: list[str]
    rows: int = 0
    bytes: int = 0
    position: int = 0
    lag_seconds: float = 0.0
    state: str = NOT_READ


def summarize(scorers: Iterable[ScorerState], now: float, names: Sequence[str] | None = None) -> list[TablePartition]:
    """Return the partitions of tables over the running scorers, by table and number.

    Shadows are omitted, because they hold separate rows.

    Args:
        scorers: the scorers.
        now: the current time, in Unix seconds.
        names: the names of the tables, in the order of the result; None for all tables that running scorers report. A table
            that no running scorer reports has one entry without a partition.
    """
    running = [each.status for each in scorers if each.state(now) == RUNNING and not each.status.shadow]
    reported = sorted({table.table for status in running for table in status.tables})
    partitions = []
    for name in reported if names is None else names:
        reports = [(status.scorer, table) for status in running for table in status.tables if table.table == name]
        numbers = sorted({table.partition for _, table in reports})
        for number in numbers:
            holders = {scorer: table for scorer, table in reports if table.partition == number}
            partitions.append(
                TablePartition(
                    name,
                    number,
                    sorted(holders),
                    min(table.rows for table in holders.values()),
                    max(table.bytes for table in holders.values()),
                    min(table.position for table in holders.values()),
                    max(table.lag_seconds for table in holders.values()),
                    READY if all(table.restored for table in holders.values()) else RESTORING,
                )
            )
        if not numbers:
            partitions.append(TablePartition(name, None, []))
    return partitions
