"""`publisher status`: how far each partition is copied, from the checkpoints at the destination and the ends at the source.

It needs no relay that runs. Where the source does not answer, what it holds is unknown, and said so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from publisher.checkpoint import Registration
from publisher.clusters import Bounds
from publisher.errors import Retriable
from publisher.settings import RelaySettings
from publisher.takeover import log_of, source_of
from publisher.topic_reader import Partition


@dataclass(frozen=True)
class Standing:
    """One partition. `next` is the next source offset to copy, `end` where the source's log ends (None: it did not answer);
    lag in records and in seconds (age of the last copied record while more wait); `age_seconds` of the checkpoint."""

    topic: str
    partition: int
    lane: int
    next: int
    end: int | None
    lag_records: int | None
    lag_seconds: float | None
    age_seconds: float


@dataclass(frozen=True)
class Status:
    """A relay as seen from outside."""

    name: str
    last: Registration | None
    source_answers: bool
    partitions: Sequence[Standing]


def status(settings: RelaySettings, now_ms: int) -> Status:
    """Read the checkpoints and ask the source. Raises Fatal where the destination does not answer."""
    checkpoints = log_of(settings)
    checkpoints.refresh()
    own = checkpoints.of_relay(settings.name)
    wanted: list[Partition] = [(place.topic, place.partition) for place in own]
    ends: dict[Partition, Bounds] = {}
    answers = True
    try:
        ends = source_of(settings).bounds(wanted)
    except Retriable:
        answers = False
    rows = []
    for place, found in sorted(own.items()):
        bounds = ends.get((place.topic, place.partition))
        lag = None if bounds is None else max(0, bounds.high - found.next)
        seconds = None if lag is None else 0.0 if not lag else max(0, now_ms - max(found.timestamp_ms, 0)) / 1_000
        if lag and found.timestamp_ms < 0:
            seconds = None
        rows.append(
            Standing(
                place.topic,
                place.partition,
                settings.lane(place.topic, place.partition),
                found.next,
                None if bounds is None else bounds.high,
                lag,
                seconds,
                max(0, now_ms - found.at_ms) / 1_000,
            )
        )
    return Status(settings.name, checkpoints.registrations.get(settings.name), answers, rows)


def table(found: Status) -> Table:
    """For people."""
    last = found.last
    title = f"relay {found.name}"
    if last is not None:
        title += f": {last.what} on {last.host} (pid {last.pid}), {last.lanes} lanes"
    shown = Table("partition", "lane", "next", "end", "lag", "lag s", "checkpoint s ago", title=title)
    for row in found.partitions:
        shown.add_row(
            f"{row.topic}[{row.partition}]",
            str(row.lane),
            f"{row.next:,}",
            _or_unknown(row.end),
            _or_unknown(row.lag_records),
            _or_unknown(row.lag_seconds),
            f"{row.age_seconds:,.1f}",
            style="bold" if row.lag_records else "",
        )
    return shown


def _or_unknown(value: float | None) -> str:
    return "?" if value is None else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
