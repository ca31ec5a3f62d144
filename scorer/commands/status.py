"""`scorer status`: print the scorers from their status topic."""

import time
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from confluent_kafka import KafkaException
from rich.box import SIMPLE_HEAD
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from model_registry.channels.roles import CHAMPION
from model_registry.oci.digests import short
from publisher.kafka import clients as kafka
from publisher.kafka.groups import GroupMember, described
from publisher.kafka.partitions import in_ranges
from publisher.runtime.command_line import Config, Json, Set, err_console, print_data
from scorer.console.scorer_fold import RUNNING, ScorerState, last_states
from scorer.observability.foreign_members import HINT, describe_foreign, select_foreign
from scorer.observability.read_output_topics import read_to_end
from scorer.settings import Settings, load

FIRST = ("scorer", "state", "partitions", "lag", "version")
COLUMNS = (*FIRST, "dead", "refused", "last seen", "region", "digest", "revision", "events", "assigned", "refusal")
NUMBERS = {"partitions", "lag", "dead", "revision", "events"}


def status(
    path: Config,
    flags: Set = None,
    wide: Annotated[bool, typer.Option("--wide", help="Print all columns, without folding.")] = False,
    as_json: Json = False,
) -> None:
    """Print the scorers: state, partitions, lag and version."""
    settings = load(path, flags or []).settings
    now = time.time()
    scorers = last_states(read_to_end(settings, settings.status_topic), now)
    foreign = foreign_members(settings)
    rows = [msgspec.to_builtins(each.status) | {"state": each.state(now)} for each in scorers]
    value = {"scorers": rows, "foreign_members": None if foreign is None else [member._asdict() for member in foreign]}
    print_data(as_json, value, lambda: table(settings.name, scorers, now, wide=wide), wide=wide)
    if foreign:
        err_console.print(f"warning: {describe_foreign(foreign, settings.name)}", markup=False)
        err_console.print(f"hint: {HINT}", markup=False)


def foreign_members(settings: Settings) -> list[GroupMember] | None:
    """Return the members of the consumer group that are not scorers; None if this client may not list them."""
    try:
        return select_foreign(described(kafka.admin(settings.kafka, f"{settings.name}.status"), settings.name), settings.name)
    except KafkaException:
        return None


def table(name: str, scorers: Sequence[ScorerState], now: float, *, wide: bool = False) -> Table:
    """Return a table with one line of 80 characters per scorer; with `wide` all columns.

    A scorer of the group `name` is listed by its replica id, without the name of the group. The column `dead` counts the dead
    letters since the scorer started. `now` is in Unix seconds.
    """
    scorer_table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    relevant = {
        *FIRST,
        *(("dead",) if any(_dead_letters(each) for each in scorers) else ()),
        *(("refused",) if any(each.status.refused for each in scorers) else ()),
    }
    columns = [column for column in COLUMNS if wide or column in relevant]
    for column in columns:
        justify: JustifyMethod = "right" if column in NUMBERS else "left"
        scorer_table.add_column(column, overflow="fold", no_wrap=column != "scorer", justify=justify)
    for each in scorers:
        row = dict(zip(COLUMNS, _row(name, each, now), strict=True))
        scorer_table.add_row(*(Text(row[column]) for column in columns))
    return scorer_table


def _row(name: str, scorer: ScorerState, now: float) -> tuple[str, ...]:
    status = scorer.status
    champion = scorer.champion
    state = scorer.state(now)
    age = _short(int(max(0.0, now - scorer.last_seen)))
    return (
        status.scorer.removeprefix(f"{name}."),
        state if state == RUNNING else f"{state} {age}",
        str(len(status.partitions)),
        f"{scorer.lag:,}",
        _versions(scorer),
        f"{_dead_letters(scorer):,}",
        " ".join(status.refused),
        f"{age} ago",
        status.region,
        short(champion.digest) or "-",
        str(champion.revision) if champion.version else "-",
        f"{status.counters.get('events', 0):,}",
        in_ranges((p.topic, p.partition) for p in status.partitions),
        "; ".join(f"{version}: {reason}" for version, reason in status.refused.items()),
    )


def _versions(scorer: ScorerState) -> str:
    """Return the champion's version, followed by the versions of other roles."""
    others = [f", {role} {version.version}" for role, version in scorer.status.versions.items() if role != CHAMPION]
    return (scorer.champion.version or "-") + "".join(others)


def _dead_letters(scorer: ScorerState) -> int:
    return scorer.status.counters.get("dead_letters", 0)


def _short(seconds: int) -> str:
    """Format a duration as `42 s`, `7 min`, `30 h` or `12 d`."""
    for limit, size, unit in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{seconds // size} {unit}"
    return f"{seconds // 86_400} d"
