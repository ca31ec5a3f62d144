"""`publisher check`: report every problem of a relay before it copies anything, and create missing topics with `--create`.

Nothing else is changed: the check writes no record, and initialises only a transactional id that the relay itself never uses.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from publisher.errors import Fatal, NotAllowed, Retriable
from publisher.kafka import acls
from publisher.kafka.acls import READ, WRITE
from publisher.kafka.groups import ConsumerGroups
from publisher.kafka.topics import Topics
from publisher.relay.clients import create_destination_producer
from publisher.relay.clusters import ANSWER_SECONDS, check_reachable, open_topics
from publisher.relay.settings import RelaySettings, load
from publisher.relay.topic_mapping import TopicPair, ensure_relay_topics, has_patterns, pairs, selected
from publisher.relay.transform import HEADER_BYTES
from publisher.runtime.command_line import Config, Finding, Json, Set, print_findings
from publisher.transactions.exactly_once import TransactionSession

NOT_REACHED = "check bootstrap_servers and security of the named cluster"


def check(
    path: Config,
    flags: Set = None,
    create: Annotated[bool, typer.Option("--create", help="Create missing topics and partitions at the destination.")] = False,
    as_json: Json = False,
) -> None:
    """Report every problem of a relay before it copies anything: clusters, rights, topics, checkpoints."""
    print_findings(findings(load(path, flags or []).settings, create=create), as_json)


def findings(settings: RelaySettings, *, create: bool = False) -> Iterator[Finding]:
    """Yield the results of the checks of both clusters: rights, topics and checkpoints.

    The checks end early if the remaining ones depend on a check that has failed.
    """
    try:
        check_reachable(settings)
        source, destination = open_topics(settings)
        ids = source.id(), destination.id()
    except (Retriable, Fatal) as error:
        yield Finding("cluster", False, str(error), getattr(error, "hint", "") or NOT_REACHED)
        return
    for cluster, name in zip((source, destination), ids, strict=True):
        yield Finding("cluster", True, f"{cluster.name} has the cluster id {name}")
    if ids[0] == ids[1]:
        hint = "check source.bootstrap_servers and destination.bootstrap_servers"
        yield Finding("cluster", False, f"source and destination are the same Kafka cluster, {ids[0]}", hint)
    try:
        problems = list(_missing_rights(settings, source, destination))
        yield from problems or [Finding("rights", True, "all required rights on topics and transactional ids are granted")]
        if not problems:
            yield from _topics(settings, source, destination, create=create and ids[0] != ids[1])
    except NotAllowed as error:
        yield Finding("rights", False, str(error), error.hint)
    except Fatal as error:
        yield Finding("topic", False, str(error), error.hint)
    except Retriable as error:
        yield Finding("cluster", False, str(error), NOT_REACHED)


def _missing_rights(settings: RelaySettings, source: Topics, destination: Topics) -> Iterator[Finding]:
    """Yield a finding for each missing right, and one if the destination rejects a transactional producer."""
    names = selected(settings, source.names() if has_patterns(settings) else [])
    refusals = [settings.refusal_topic] if settings.refusal_topic else []
    written = dict.fromkeys([*map(settings.destination_topic, names), *refusals], frozenset({WRITE}))
    name = f"{settings.transactional_prefix}check"
    session = TransactionSession(
        partial(create_destination_producer, settings),
        [name],
        transaction_seconds=ANSWER_SECONDS,
        producer_wait_seconds=ANSWER_SECONDS,
    )
    for check, attempt in (
        ("cluster", lambda: source.allowed(acls.to_read(*names))),
        ("cluster", lambda: destination.allowed({**written, settings.checkpoint_topic: frozenset({READ, WRITE})})),
        ("transactions", session.open),
    ):
        try:
            attempt()
        except Fatal as error:
            yield Finding("rights" if isinstance(error, NotAllowed) else check, False, str(error), error.hint)
    session.close()


def _topics(settings: RelaySettings, source: Topics, destination: Topics, *, create: bool) -> Iterator[Finding]:
    ensure_relay_topics(settings, destination, create=create)
    yield Finding("checkpoints", True, f"topic {settings.checkpoint_topic} stores the positions")
    visible = source.names() if has_patterns(settings) else []
    names = selected(settings, visible)
    yield from _groups(settings, source)
    for pattern in (entry for entry in settings.source.topics if entry.startswith("^")):
        if not any(re.match(pattern, name) for name in visible):
            yield Finding("topic", True, f"{pattern} matches no topic of {source.name} that this user may describe")
    topics = source.topics(names)
    for name in (name for name in names if name not in topics):
        hint = source.hint(name, "create the topic, or correct source.topics", names)
        yield Finding("topic", False, f"topic {name} does not exist in {source.name}", hint)
    for pair in pairs(settings, source, destination, topics, create=create):
        detail = f"{pair.name}, {pair.source.partitions} partitions, is copied to {pair.destination_name}"
        yield Finding("topic", True, detail)
        yield from _config_problems(pair, source, destination)


def _groups(settings: RelaySettings, source: Topics) -> Iterator[Finding]:
    """Yield a finding for each consumer group whose positions the relay stores."""
    groups = ConsumerGroups(source.client, settings.source.kafka, source.name, ANSWER_SECONDS)
    for group in settings.source.groups:
        try:
            positions = groups.positions(group)
        except NotAllowed as error:
            yield Finding("group", False, f"consumer group {group} is not visible to this user: {error}", error.hint)
            continue
        if positions:
            yield Finding("group", True, f"consumer group {group} has positions in {len(positions)} partitions")
        else:
            yield Finding("group", True, f"consumer group {group} does not exist in {source.name} yet, or has no positions")


def _config_problems(pair: TopicPair, source: Topics, destination: Topics) -> Iterator[Finding]:
    """Yield a finding for each configuration entry that would make the destination topic reject or alter copies."""
    source_config = source.configs([pair.name])[pair.name]
    destination_config = destination.configs([pair.destination_name])[pair.destination_name]
    source_limit, limit = (int(config.get("max.message.bytes", 0)) for config in (source_config, destination_config))
    if source_limit and limit and limit < source_limit + HEADER_BYTES:
        yield Finding(
            "topic",
            False,
            f"{pair.destination_name} accepts records of up to {limit} bytes, {pair.name} of up to {source_limit}: a copy "
            "with its additional headers may be too large",
            f"set max.message.bytes of {pair.destination_name} to {source_limit + HEADER_BYTES}",
        )
    if destination_config.get("message.timestamp.type") == "LogAppendTime":
        yield Finding(
            "topic",
            False,
            f"{pair.destination_name} has message.timestamp.type LogAppendTime: the timestamps of the records would be lost",
            f"set message.timestamp.type of {pair.destination_name} to CreateTime",
        )
