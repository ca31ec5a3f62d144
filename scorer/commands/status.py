"""`scorer status`: the fleet, from what the scorers tell on the bus."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from scorer.commands.tail import read_to_end
from scorer.observe import status
from scorer.observe.status import STALE_SECONDS, ScorerStatus
from scorer.settings import Settings

FIRST = ("scorer", "state", "partitions", "lag", "version")
COLUMNS = (*FIRST, "refused", "heard", "region", "digest", "revision", "events", "assigned", "why refused")
NUMBERS = {"partitions", "lag", "revision", "events"}


def fleet(settings: Settings) -> list[ScorerStatus]:
    """The last word of every scorer, by name. Raises Fatal where the topic cannot be read."""
    told = (status.read(message.key(), message.value()) for message in read_to_end(settings, settings.status_topic))
    latest = {record.scorer: record for record in told if record is not None}
    return [record for _, record in sorted(latest.items())]


def state(scorer: ScorerStatus, now_ms: int) -> str:
    """`running`, `stopped`, or `silent` where a running one has not been heard of for long. Pure."""
    silent = scorer.state == "running" and now_ms - scorer.heartbeat_ms > STALE_SECONDS * 1_000
    return "silent" if silent else scorer.state


def table(name: str, scorers: Sequence[ScorerStatus], now_ms: int, *, wide: bool = False) -> Table:
    """For people: the columns that matter first, a scorer a line of 80 columns; with `wide` the others too.

    A scorer of the fleet `name` is called by its replica.
    """
    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    anybody_refuses = any(scorer.refused for scorer in scorers)
    columns = [column for column in COLUMNS if wide or column in FIRST or (column == "refused" and anybody_refuses)]
    for column in columns:
        justify: JustifyMethod = "right" if column in NUMBERS else "left"
        shown.add_column(column, overflow="fold", no_wrap=column != "scorer", justify=justify)
    for scorer in scorers:
        row = dict(zip(COLUMNS, _row(name, scorer, now_ms), strict=True))
        shown.add_row(*(Text(row[column]) for column in columns))
    return shown


def _row(name: str, scorer: ScorerStatus, now_ms: int) -> tuple[str, ...]:
    """A cell for each of COLUMNS."""
    champion = scorer.versions.get("champion")
    partitions: dict[str, list[int]] = {}
    for p in scorer.partitions:
        partitions.setdefault(p.topic, []).append(p.partition)
    is_now, age = state(scorer, now_ms), _short(max(0, now_ms - scorer.heartbeat_ms) // 1_000)
    return (
        scorer.scorer.removeprefix(f"{name}."),
        is_now if is_now == "running" else f"{is_now} {age}",
        str(len(scorer.partitions)),
        f"{sum(p.lag for p in scorer.partitions):,}",
        champion.version if champion else "-",
        " ".join(scorer.refused),
        f"{age} ago",
        scorer.region,
        f"{champion.digest[:19]}" if champion else "-",
        str(champion.revision) if champion else "-",
        f"{scorer.counters.get('events', 0):,}",
        " ".join(f"{topic}[{','.join(map(str, numbers))}]" for topic, numbers in partitions.items()),
        "; ".join(f"{version}: {reason}" for version, reason in scorer.refused.items()),
    )


def _short(seconds: int) -> str:
    """`42 s`, `7 min`, `30 h`, `12 d`: two digits or so."""
    for limit, size, unit in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{seconds // size} {unit}"
    return f"{seconds // 86_400} d"
