"""Select the topics to copy, and find or create their destination topics. Unsuitable destination topics are rejected."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from publisher.errors import USAGE, Fatal
from publisher.kafka.acls import READ, WRITE, Operations
from publisher.kafka.clients import LARGEST_BATCH
from publisher.kafka.topics import Topic, Topics, copied_config
from publisher.relay import checkpoints as checkpoint
from publisher.relay.checkpoints import Checkpoint
from publisher.relay.settings import RelaySettings
from publisher.relay.start_position import CopyRefused
from publisher.relay.transform import HEADER_BYTES, Route

CREATE_HINT = "create the topic with `publisher check CONFIG --create`, or set destination.create_topics: true"
REFUSAL_CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1"}


class TopicPair(NamedTuple):
    """A source topic and its destination topic."""

    name: str
    source: Topic
    destination_name: str
    destination: Topic

    def checkpoint(self, route: Route, clusters: tuple[str, str], now_ms: int) -> Checkpoint:
        """Return the checkpoint of a route of this pair; `clusters` are the ids of the source and destination clusters."""
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
    """Return the topics to copy: all topics that the settings name, and those in `names` that match a pattern. Pure.

    `names` are the existing source topics. A topic that the settings name is returned even if it does not exist.
    """
    patterns = [re.compile(entry) for entry in settings.source.topics if entry.startswith("^")]
    named = [entry for entry in settings.source.topics if not entry.startswith("^")]
    matched = [name for name in names if any(pattern.match(name) for pattern in patterns)]
    return list(dict.fromkeys([*named, *sorted(matched)]))


def has_patterns(settings: RelaySettings) -> bool:
    """Return whether source.topics contains a pattern."""
    return any(entry.startswith("^") for entry in settings.source.topics)


def clashes(settings: RelaySettings, names: list[str]) -> list[str]:
    """Return one line for each conflict of destination topics. Pure.

    Two source topics must not be copied into the same topic, and none into the checkpoint topic or the refusal topic. `names`
    are the source topics.
    """
    conflicts = []
    sources: dict[str, str] = {}
    for name in names:
        target = settings.destination_topic(name)
        if target in (settings.checkpoint_topic, settings.refusal_topic):
            kind = "checkpoint" if target == settings.checkpoint_topic else "refusal"
            conflicts.append(f"source topic {name} would be copied into the {kind} topic {target}")
        if target in sources:
            conflicts.append(f"source topics {sources[target]} and {name} would both be copied into {target}")
        sources[target] = name
    return conflicts


def pairs(
    settings: RelaySettings, source: Topics, destination: Topics, topics: Mapping[str, Topic], *, create: bool
) -> list[TopicPair]:
    """Pair source topics with their destination topics.

    Args:
        settings: the settings of the relay.
        source: the topics of the source cluster.
        destination: the topics of the destination cluster.
        topics: the source topics to pair, by name.
        create: whether to create missing topics and partitions.

    Raises:
        Retriable: if a cluster does not answer.
        NotAllowed: if a destination topic may not be written.
        CopyRefused: if a destination topic has fewer partitions than its source.
        Fatal: with exit code 2 if names conflict or a destination topic is missing.
    """
    if conflicts := clashes(settings, list(topics)):
        raise Fatal("; ".join(conflicts), "include {topic} in destination.topic, or choose other topic names", USAGE)
    targets = {name: settings.destination_topic(name) for name in topics}
    if create and _create_missing(source, destination, topics, targets):
        destination.wait_for_leaders({target: topics[name].partitions for name, target in targets.items()})
    existing = destination.allowed(dict.fromkeys(targets.values(), frozenset({WRITE})))
    for name, target in targets.items():
        if target not in existing:
            raise Fatal(
                f"topic {target} does not exist at the destination",
                destination.hint(target, CREATE_HINT, [*targets.values()]),
                USAGE,
            )
        if existing[target].partitions < topics[name].partitions:
            raise CopyRefused(
                f"source topic {name} has {topics[name].partitions} partitions, but destination topic {target} has "
                f"only {existing[target].partitions}",
                "add the missing partitions with `publisher check CONFIG --create`, or set destination.create_topics: true",
            )
    return [TopicPair(name, topic, targets[name], existing[targets[name]]) for name, topic in topics.items()]


def smallest_limit(destination: Topics, copied: Iterable[TopicPair]) -> int:
    """Return the size (bytes) of the largest batch that every destination topic of the pairs `copied` accepts."""
    configs = destination.configs(pair.destination_name for pair in copied)
    limits = [int(config["max.message.bytes"]) for config in configs.values() if "max.message.bytes" in config]
    return min([LARGEST_BATCH, *limits])


def ensure_relay_topics(settings: RelaySettings, destination: Topics, *, create: bool) -> None:
    """Check that the checkpoint topic and the refusal topic exist and can be used.

    Args:
        settings: the settings of the relay.
        destination: the topics of the destination cluster.
        create: whether to create a missing topic.

    Raises:
        Fatal: with exit code 2 if a topic is missing, or if the checkpoint topic is not compacted.
    """
    name = settings.checkpoint_topic
    _ensure(destination, "checkpoint", name, frozenset({READ, WRITE}), checkpoint.TOPIC_CONFIG, create)
    if settings.refusal_topic:
        _ensure(destination, "refusal", settings.refusal_topic, frozenset({WRITE}), REFUSAL_CONFIG, create)
    config = destination.configs([name])[name]
    if "compact" not in config.get("cleanup.policy", "compact") or "delete" in config.get("cleanup.policy", "compact"):
        raise Fatal(
            f"the checkpoint topic {name} has cleanup.policy {config['cleanup.policy']}: positions would be deleted",
            f"set cleanup.policy of {name} to compact",
            USAGE,
        )


def _ensure(destination: Topics, kind: str, name: str, rights: Operations, config: Mapping[str, str], create: bool) -> None:
    if name in destination.allowed({name: rights}):
        return
    if not create:
        raise Fatal(
            f"the {kind} topic {name} does not exist at the destination",
            destination.hint(name, CREATE_HINT),
            USAGE,
        )
    destination.create(name, 1, config)
    destination.wait_for_leaders({name: 1})


def _create_missing(source: Topics, destination: Topics, topics: Mapping[str, Topic], targets: Mapping[str, str]) -> bool:
    """Create the missing destination topics, and add the missing partitions; return whether any of them were missing.

    `targets` has the destination topic of each source topic.
    """
    existing = destination.topics(targets.values())
    missing = [name for name, target in targets.items() if target not in existing]
    configs = source.configs(missing)
    for name in missing:
        destination.create(targets[name], topics[name].partitions, copied_config(configs[name], HEADER_BYTES))
    growing = [
        name for name, target in targets.items() if target in existing and existing[target].partitions < topics[name].partitions
    ]
    for name in growing:
        destination.grow(targets[name], topics[name].partitions)
    return bool(missing or growing)
