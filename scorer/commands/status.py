"""`scorer status`: the scorers, by what they tell on the bus."""

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
from model_registry.commands.output import short
from publisher.kafka import clients as kafka
from publisher.kafka.groups import GroupMember, described
from publisher.kafka.partitions import in_ranges
from publisher.runtime.command_line import Config, Json, Set, print_data, talk
from scorer.console.scorer_fold import RUNNING, ScorerState, last_states
from scorer.observability.foreign_members import HINT, foreign, in_words
from scorer.observability.output_topics import read_to_end
from scorer.settings import Settings, load

FIRST = ("scorer", "state", "partitions", "lag", "version")
COLUMNS = (*FIRST, "dead", "refused", "heard", "region", "digest", "revision", "events", "assigned", "why refused")
NUMBERS = {"partitions", "lag", "dead", "revision", "events"}


def status(
    path: Config,
    flags: Set = None,
    wide: Annotated[bool, typer.Option("--wide", help="Every column, on lines as long as they get.")] = False,
    as_json: Json = False,
) -> None:
    """Show the scorers: who runs, which version, how far behind."""
    settings = load(path, flags or []).settings
    now = time.time()
    found = last_states(read_to_end(settings, settings.status_topic), now)
    foreign = foreign_members(settings)
    rows = [msgspec.to_builtins(heard.status) | {"state": heard.state(now)} for heard in found]
    value = {"scorers": rows, "foreign_members": None if foreign is None else [member._asdict() for member in foreign]}
    print_data(as_json, value, lambda: table(settings.name, found, now, wide=wide), wide=wide)
    if foreign:
        talk.print(f"warning: {in_words(foreign, settings.name)}", markup=False)
        talk.print(f"hint: {HINT}", markup=False)


def foreign_members(settings: Settings) -> list[GroupMember] | None:
    """Return the members of the consumer group that are not scorers; None if the broker does not tell them to this client."""
    try:
        return foreign(described(kafka.admin(settings.kafka, f"{settings.name}.status"), settings.name), settings.name)
    except KafkaException:
        return None


def table(name: str, found: Sequence[ScorerState], now: float, *, wide: bool = False) -> Table:
    """For people, at `now` (Unix seconds): the columns that matter, a scorer a line of 80 columns; with `wide` all columns. A
    scorer of the group `name` is called by its replica. `dead` counts the dead letters since a scorer began."""
    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    told = {
        *FIRST,
        *(("dead",) if any(_dead_letters(heard) for heard in found) else ()),
        *(("refused",) if any(heard.status.refused for heard in found) else ()),
    }
    columns = [column for column in COLUMNS if wide or column in told]
    for column in columns:
        justify: JustifyMethod = "right" if column in NUMBERS else "left"
        shown.add_column(column, overflow="fold", no_wrap=column != "scorer", justify=justify)
    for heard in found:
        row = dict(zip(COLUMNS, _row(name, heard, now), strict=True))
        shown.add_row(*(Text(row[column]) for column in columns))
    return shown


def _row(name: str, heard: ScorerState, now: float) -> tuple[str, ...]:
    scorer = heard.status
    champion = heard.champion
    state, age = heard.state(now), _short(int(max(0.0, now - heard.last_seen)))
    return (
        scorer.scorer.removeprefix(f"{name}."),
        state if state == RUNNING else f"{state} {age}",
        str(len(scorer.partitions)),
        f"{heard.lag:,}",
        _versions(heard),
        f"{_dead_letters(heard):,}",
        " ".join(scorer.refused),
        f"{age} ago",
        scorer.region,
        short(champion.digest) or "-",
        str(champion.revision) if champion.version else "-",
        f"{scorer.counters.get('events', 0):,}",
        in_ranges((p.topic, p.partition) for p in scorer.partitions),
        "; ".join(f"{version}: {reason}" for version, reason in scorer.refused.items()),
    )


def _versions(heard: ScorerState) -> str:
    """The champion's version, and the candidate's beside it."""
    beside = [f", {role} {version.version}" for role, version in heard.status.versions.items() if role != CHAMPION]
    return (heard.champion.version or "-") + "".join(beside)


def _dead_letters(heard: ScorerState) -> int:
    return heard.status.counters.get("dead_letters", 0)


def _short(seconds: int) -> str:
    """`42 s`, `7 min`, `30 h`, `12 d`: two digits or so."""
    for limit, size, unit in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{seconds // size} {unit}"
    return f"{seconds // 86_400} d"
