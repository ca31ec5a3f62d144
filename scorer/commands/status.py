"""`scorer status`: print the scorers from their status topic."""

import time
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
import typer
from confluent_kafka import KafkaException
from rich.box import SIMPLE_HEAD
from rich.console import Group, JustifyMethod
from rich.table import Table
from rich.text import Text

from model_registry.channels.roles import CHAMPION
from model_registry.oci.digests import short
from publisher.kafka import clients as kafka
from publisher.kafka.groups import GroupMember, described
from publisher.kafka.partitions import Partition, in_ranges
from publisher.runtime.command_line import Config, Json, Set, err_console, print_data
from scorer.console.scorer_fold import ScorerState, last_states
from scorer.observability.foreign_members import HINT, describe_foreign, select_foreign
from scorer.observability.read_output_topics import read_to_end
from scorer.observability.status_record import RUNNING, WAITING
from scorer.settings import Settings, load

FIRST = ("scorer", "state", "partitions", "lag", "version")
COLUMNS = (*FIRST, "dead", "refused", "last seen", "region", "digest", "revision", "events", "assigned", "refusal")
FOLDED = {"scorer", "state", "version"}  # columns whose texts may take several lines on a narrow terminal
MIN_SCORER = 8  # the least width of the column
SHORT_VERSION = 14  # characters; a line has room for a role and a version of this length
NUMBERS = {"partitions", "lag", "dead", "revision", "events"}


def status(
    path: Config,
    flags: Set = None,
    wide: Annotated[bool, typer.Option("--wide", help="Print all columns, and do not wrap long lines.")] = False,
    as_json: Json = False,
) -> None:
    """Print the scorers: state, partitions, lag and version, and why a scorer waits or does not serve a version."""
    settings = load(path, flags or []).settings
    now = time.time()
    scorers = last_states(read_to_end(settings, settings.status_topic), now)
    foreign = foreign_members(settings)
    rows = [msgspec.to_builtins(each.status) | {"state": each.state(now)} for each in scorers]
    value = {
        "scorers": rows,
        "totals": totals(scorers, now)._asdict(),
        "foreign_members": None if foreign is None else [member._asdict() for member in foreign],
    }
    print_data(as_json, value, lambda: report(settings.name, scorers, now, wide=wide), wide=wide)
    if foreign:
        err_console.print(f"warning: {describe_foreign(foreign, settings.name)}", markup=False)
        err_console.print(f"hint: {HINT}", markup=False)


def foreign_members(settings: Settings) -> list[GroupMember] | None:
    """Return the members of the consumer group that are not scorers; None if this client may not list them."""
    try:
        return select_foreign(described(kafka.admin(settings.kafka, f"{settings.name}.status"), settings.name), settings.name)
    except KafkaException:
        return None


class Totals(NamedTuple):
    """The number of running scorers, the number of partitions that they own, and their lag in records."""

    running: int
    partitions: int
    lag: int


def totals(scorers: Sequence[ScorerState], now: float) -> Totals:
    """Return the totals over the running scorers, without shadows."""
    # Scorers that have stopped do not count, because other scorers own their partitions now. Shadows do not count, because they
    # read the same partitions in a group of their own. If two scorers report a partition that has just moved, it counts once,
    # with the lag in the newer report.
    running = [each for each in scorers if each.state(now) == RUNNING and not each.status.shadow]
    lags: dict[Partition, int] = {}
    for each in sorted(running, key=lambda scorer: scorer.last_seen):
        lags |= {(p.topic, p.partition): p.lag for p in each.status.partitions}
    return Totals(len(running), len(lags), sum(lags.values()))


def report(name: str, scorers: Sequence[ScorerState], now: float, *, wide: bool = False) -> Group:
    """Return what `scorer status` prints: the table, and below it why scorers wait, and why versions are not served."""
    lines = reasons(name, scorers, now)
    return Group(table(name, scorers, now, wide=wide), *(Text(line) for line in (["", *lines] if lines else [])))


def reasons(name: str, scorers: Sequence[ScorerState], now: float) -> list[str]:
    """Return one line for each reason why scorers wait, refuse a version, or cannot load a version yet.

    A line names all scorers with the same reason. Scorers that have stopped or died are omitted.
    """
    by_reason: dict[tuple[str, str], list[str]] = {}
    for each in scorers:
        if each.state(now) not in (RUNNING, WAITING):
            continue
        status = each.status
        replica = status.scorer.removeprefix(f"{name}.")
        if status.waiting:
            by_reason.setdefault(("waiting", status.waiting), []).append(replica)
        for version, reason in status.refused.items():
            by_reason.setdefault((f"version {version} is refused", reason), []).append(replica)
        for version, reason in status.delayed.items():
            by_reason.setdefault((f"version {version} is not loaded yet", reason), []).append(replica)
    return [f"{', '.join(replicas)}: {problem}: {reason}" for (problem, reason), replicas in by_reason.items()]


def table(name: str, scorers: Sequence[ScorerState], now: float, *, wide: bool = False) -> Table:
    """Return a table of the scorers, which fits in 80 columns unless `wide` is true. `now` is in Unix seconds."""
    # A scorer of the group `name` is listed by its replica id, without the name of the group. In the narrow table, a candidate
    # is on a line of its own below the champion. The column `dead` counts the dead letters since the scorer started. The last
    # row has the totals, if there are several scorers.
    scorer_table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    relevant = {*FIRST, *(("dead",) if any(_dead_letters(each) for each in scorers) else ())}
    columns = [column for column in COLUMNS if wide or column in relevant]
    longest = max((len(version.version) for each in scorers for version in each.status.versions.values()), default=0)
    for column in columns:
        justify: JustifyMethod = "right" if column in NUMBERS else "left"
        folds = column in FOLDED and not wide
        width = longest if folds and column == "version" and longest > SHORT_VERSION else None
        least = MIN_SCORER if column == "scorer" else None
        scorer_table.add_column(column, overflow="fold", no_wrap=not folds, width=width, min_width=least, justify=justify)
    for each in scorers:
        row = dict(zip(COLUMNS, _row(name, each, now, separator=", " if wide else "\n"), strict=True))
        scorer_table.add_row(*(Text(row[column]) for column in columns))
    if len(scorers) > 1:
        counts = totals(scorers, now)
        scorer_table.add_section()
        row = {"scorer": "total", "state": f"{counts.running} running", "partitions": f"{counts.partitions:,}"}
        scorer_table.add_row(*(Text((row | {"lag": f"{counts.lag:,}"}).get(column, "")) for column in columns))
    return scorer_table


def _row(name: str, scorer: ScorerState, now: float, *, separator: str) -> tuple[str, ...]:
    status = scorer.status
    champion = scorer.champion
    state = scorer.state(now)
    is_departed = state not in (RUNNING, WAITING)
    age = _short(int(max(0.0, now - scorer.last_seen)))
    if is_departed:
        state = f"{state} {age}"
    elif status.waiting:
        state = WAITING
    return (
        status.scorer.removeprefix(f"{name}."),
        state,
        "-" if is_departed else str(len(status.partitions)),
        "-" if is_departed else f"{scorer.lag:,}",
        _versions(scorer, separator),
        f"{_dead_letters(scorer):,}",
        " ".join([*status.refused, *status.delayed]),
        f"{age} ago",
        status.region,
        short(champion.digest) or "-",
        str(champion.revision) if champion.version else "-",
        f"{status.counters.get('events', 0):,}",
        in_ranges((p.topic, p.partition) for p in status.partitions),
        "; ".join(f"{version}: {reason}" for version, reason in [*status.refused.items(), *status.delayed.items()]),
    )


def _versions(scorer: ScorerState, separator: str) -> str:
    """Return the champion's version, followed by the other roles with their versions, such as `canary 2.0.0`."""
    others = [f"{role} {version.version}" for role, version in scorer.status.versions.items() if role != CHAMPION]
    return separator.join([scorer.champion.version or "-", *others])


def _dead_letters(scorer: ScorerState) -> int:
    return scorer.status.counters.get("dead_letters", 0)


def _short(seconds: int) -> str:
    """Format a duration as `42 s`, `7 min`, `30 h` or `12 d`."""
    for limit, size, unit in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{seconds // size} {unit}"
    return f"{seconds // 86_400} d"
