"""Which topics are copied, and the topics at the destination that take them: found, made like the source, or refused."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from publisher.errors import Fatal
from publisher.kafka.acls import READ, WRITE, Operations
from publisher.kafka.clients import LARGEST_BATCH
from publisher.kafka.topics import Topic, Topics, copied_config
from publisher.relay import checkpoints as checkpoint
from publisher.relay.checkpoints import Checkpoint
from publisher.relay.settings import RelaySettings
from publisher.relay.start_position import Refused
from publisher.relay.transform import ROOM, Route

CREATE_HINT = "publisher check CONFIG --create makes it like the source's; or set destination.create_topics"
REFUSAL_CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1"}


class Pair(NamedTuple):
    """A source topic and where it goes."""

    name: str
    source: Topic
    destination_name: str
    destination: Topic

    def checkpoint(self, route: Route, clusters: tuple[str, str], now_ms: int) -> Checkpoint:
        """That of a route as it is; `clusters` are the ids of source and destination."""
        return Checkpoint(
            next=route.next,
            cluster=clusters[0],
            topic_id=self.source.id,
            destination_cluster=clusters[1],
            destination_topic=self.destination_name,
            destination_topic_id=self.destination.id,
            copied=route.copied,
            epoch=route.epoch,
            timestamp_ms=route.timestamp_ms,
            at_ms=now_ms,
            copies_from=route.copies_from,
        )


def selected(settings: RelaySettings, names: list[str]) -> list[str]:
    """The topics that the settings name, whether they exist or not, and those of `names` that a pattern matches. Pure."""
    patterns = [re.compile(entry) for entry in settings.source.topics if entry.startswith("^")]
    named = [entry for entry in settings.source.topics if not entry.startswith("^")]
    matched = [name for name in names if any(pattern.match(name) for pattern in patterns)]
    return list(dict.fromkeys([*named, *sorted(matched)]))


def has_patterns(settings: RelaySettings) -> bool:
    return any(entry.startswith("^") for entry in settings.source.topics)


def clashes(settings: RelaySettings, names: list[str]) -> list[str]:
    """What is wrong with the names of the destination topics, a line each. Pure."""
    lines = []
    taken: dict[str, str] = {}
    for name in names:
        target = settings.destination_topic(name)
        if target in (settings.checkpoint_topic, settings.refusal_topic):
            kind = "checkpoint" if target == settings.checkpoint_topic else "refusal"
            lines.append(f"source topic {name} would be copied into the {kind} topic {target}")
        if target in taken:
            lines.append(f"source topics {taken[target]} and {name} would both be copied into {target}")
        taken[target] = name
    return lines


def pairs(
    settings: RelaySettings, source: Topics, destination: Topics, found: Mapping[str, Topic], *, create: bool
) -> list[Pair]:
    """The destination topics of the source topics `found`; where `create`, missing ones and missing partitions are made.

    Raises Retriable; Fatal (2): one is missing; NotAllowed: it may not be written; Refused: it has fewer partitions.
    """
    if wrong := clashes(settings, list(found)):
        raise Fatal("; ".join(wrong), "write {topic} in destination.topic, or choose other names", 2)
    targets = {name: settings.destination_topic(name) for name in found}
    if create and _made(source, destination, found, targets):
        source_of = {target: found[name].partitions for name, target in targets.items()}
        destination.led(source_of)
    there = destination.allowed(dict.fromkeys(targets.values(), frozenset({WRITE})))
    for name, target in targets.items():
        if target not in there:
            raise Fatal(
                f"topic {target} does not exist at the destination",
                destination.hint(target, CREATE_HINT, [*targets.values()]),
                2,
            )
        if there[target].partitions < found[name].partitions:
            raise Refused(
                f"source topic {name} has {found[name].partitions} partitions, destination topic {target} has "
                f"{there[target].partitions}",
                "publisher check CONFIG --create adds them; or set destination.create_topics",
            )
    return [Pair(name, topic, targets[name], there[targets[name]]) for name, topic in found.items()]


def smallest_limit(destination: Topics, copied: Iterable[Pair]) -> int:
    """What every destination topic takes in one batch, in bytes."""
    configs = destination.configs(pair.destination_name for pair in copied)
    limits = [int(config["max.message.bytes"]) for config in configs.values() if "max.message.bytes" in config]
    return min([LARGEST_BATCH, *limits])


def ensure_own_topics(settings: RelaySettings, destination: Topics, *, create: bool) -> None:
    """See that positions can be kept, and records that cannot be carried. Raises Fatal (2) where they cannot."""
    name, refusals = settings.checkpoint_topic, settings.refusal_topic
    _ensure(destination, "checkpoint", name, frozenset({READ, WRITE}), checkpoint.TOPIC_CONFIG, create)
    if refusals:
        _ensure(destination, "refusal", refusals, frozenset({WRITE}), REFUSAL_CONFIG, create)
    config = destination.configs([name])[name]
    if "compact" not in config.get("cleanup.policy", "compact") or "delete" in config.get("cleanup.policy", "compact"):
        raise Fatal(
            f"the checkpoint topic {name} has cleanup.policy {config['cleanup.policy']}: positions would be deleted",
            "set its cleanup.policy to compact",
            2,
        )


def _ensure(destination: Topics, kind: str, name: str, rights: Operations, config: Mapping[str, str], create: bool) -> None:
    if name in destination.allowed({name: rights}):
        return
    if not create:
        raise Fatal(
            f"the {kind} topic {name} does not exist at the destination",
            destination.hint(name, "publisher check CONFIG --create makes it; or set destination.create_topics"),
            2,
        )
    destination.create(name, 1, config)
    destination.led({name: 1})


def _made(source: Topics, destination: Topics, found: Mapping[str, Topic], targets: Mapping[str, str]) -> bool:
    """Make what is missing; whether anything was."""
    there = destination.topics(targets.values())
    missing = [name for name, target in targets.items() if target not in there]
    configs = source.configs(missing)
    for name in missing:
        destination.create(targets[name], found[name].partitions, copied_config(configs[name], ROOM))
    growing = [n for n, target in targets.items() if target in there and there[target].partitions < found[n].partitions]
    for name in growing:
        destination.grow(targets[name], found[name].partitions)
    return bool(missing or growing)
