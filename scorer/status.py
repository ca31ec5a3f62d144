"""`scorer status`: the fleet, from what the scorers tell on the bus."""

from collections.abc import Iterable

import msgspec
from rich.table import Table

from model_registry import rollout
from scorer.observe.status import STALE_SECONDS, ScorerStatus
from scorer.settings import Settings
from scorer.tail import read_to_end


def fleet(settings: Settings) -> list[ScorerStatus]:
    """The last word of every scorer, by name. Raises Fatal where the topic cannot be read."""
    latest: dict[bytes, bytes] = {}
    for message in read_to_end(settings, settings.status_topic):
        key, value = message.key(), message.value()
        if key is not None and value is not None and not key.startswith(rollout.NOTICE.encode()):
            latest[key] = value
    return [msgspec.json.decode(record, type=ScorerStatus) for _, record in sorted(latest.items())]


def state(scorer: ScorerStatus, now_ms: int) -> str:
    """`running`, `stopped`, or `silent` where a running one has not been heard of for long. Pure."""
    silent = scorer.state == "running" and now_ms - scorer.heartbeat_ms > STALE_SECONDS * 1_000
    return "silent" if silent else scorer.state


def table(scorers: Iterable[ScorerStatus], now_ms: int) -> Table:
    """For people."""
    shown = Table()
    for column in ("scorer", "region", "state", "heard", "partitions", "lag", "version", "revision", "events", "refused"):
        shown.add_column(column, overflow="fold")
    for scorer in scorers:
        champion = scorer.versions.get("champion")
        partitions: dict[str, list[int]] = {}
        for p in scorer.partitions:
            partitions.setdefault(p.topic, []).append(p.partition)
        shown.add_row(
            scorer.scorer,
            scorer.region,
            state(scorer, now_ms),
            f"{max(0, now_ms - scorer.heartbeat_ms) / 1_000:.0f} s ago",
            " ".join(f"{topic}[{','.join(map(str, numbers))}]" for topic, numbers in partitions.items()),
            str(sum(p.lag for p in scorer.partitions)),
            f"{champion.version} {champion.digest[:19]}" if champion else "-",
            str(champion.revision) if champion else "-",
            str(scorer.counters.get("events", 0)),
            "; ".join(f"{version}: {reason}" for version, reason in scorer.refused.items()),
        )
    return shown
