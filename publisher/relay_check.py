"""`publisher check`: says what is wrong before anything is copied, and with `create` makes what is missing."""

from collections.abc import Iterator
from dataclasses import dataclass

from publisher.clusters import Cluster, Topic
from publisher.copying import ROOM
from publisher.errors import Fatal, Retriable
from publisher.settings import RelaySettings
from publisher.takeover import destination_of, source_of
from publisher.topic_pairs import Pair, ensure_checkpoint_topic, has_patterns, pairs, selected

NOT_REACHED = "check bootstrap_servers and security of that side"


@dataclass(frozen=True)
class Finding:
    """One check: its name, whether all is well, what was found, and the way out."""

    check: str
    ok: bool
    detail: str
    hint: str = ""


def check(settings: RelaySettings, *, create: bool = False) -> Iterator[Finding]:
    """Look at both clusters, the topics, and the checkpoint topic, in this order; ends where there is no use going on."""
    source, destination = source_of(settings), destination_of(settings)
    ids = []
    for cluster in (source, destination):
        try:
            ids.append(cluster.id())
        except (Retriable, Fatal) as error:
            yield Finding("cluster", False, str(error), NOT_REACHED)
            return
        yield Finding("cluster", True, f"{cluster.name} is cluster {ids[-1]}")
    if ids[0] == ids[1]:
        yield Finding("cluster", False, f"source and destination are one cluster, {ids[0]}", "check bootstrap_servers")
        return
    try:
        ensure_checkpoint_topic(settings, destination, create=create)
        yield Finding("checkpoints", True, f"topic {settings.checkpoint_topic} keeps the positions")
        found, missing = _found(settings, source)
        for name in missing:
            yield Finding("topic", False, f"topic {name} does not exist in {source.name}", "make it, or correct source.topics")
        for pair in pairs(settings, source, destination, found, create=create):
            detail = f"{pair.name}, {pair.source.partitions} partitions, goes to {pair.destination_name}"
            yield Finding("topic", True, detail)
            yield from _unlike(pair, source, destination)
    except Fatal as error:
        yield Finding("topic", False, str(error), error.hint)
    except Retriable as error:
        yield Finding("cluster", False, str(error), NOT_REACHED)


def _found(settings: RelaySettings, source: Cluster) -> tuple[dict[str, Topic], list[str]]:
    names = selected(settings, source.names() if has_patterns(settings) else [])
    found = source.topics(names)
    return found, [name for name in names if name not in found]


def _unlike(pair: Pair, source: Cluster, destination: Cluster) -> Iterator[Finding]:
    """What a copy in this topic would not keep."""
    here = source.configs([pair.name])[pair.name]
    there = destination.configs([pair.destination_name])[pair.destination_name]
    limits = [int(config.get("max.message.bytes", 0)) for config in (here, there)]
    if all(limits) and limits[1] < limits[0] + ROOM:
        yield Finding(
            "topic",
            False,
            f"{pair.destination_name} takes records up to {limits[1]} bytes, {pair.name} up to {limits[0]}: with its headers a "
            "copy might not fit",
            f"set max.message.bytes of {pair.destination_name} to {limits[0] + ROOM}",
        )
    if there.get("message.timestamp.type") == "LogAppendTime":
        yield Finding(
            "topic",
            False,
            f"{pair.destination_name} has message.timestamp.type LogAppendTime: the records' own timestamps would be lost",
            "set it to CreateTime",
        )
