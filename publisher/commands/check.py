"""`publisher check`: says what is wrong before anything is copied, and with `create` makes what is missing."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from publisher.errors import Fatal, NotAllowed, Retriable
from publisher.kafka import acls
from publisher.kafka.acls import READ, WRITE
from publisher.kafka.topics import Topics
from publisher.relay.clients import near_writer
from publisher.relay.clusters import ANSWER_SECONDS, reach, topics_of
from publisher.relay.settings import RelaySettings, load
from publisher.relay.topic_mapping import Pair, ensure_own_topics, has_patterns, pairs, selected
from publisher.relay.transform import ROOM
from publisher.runtime.command_line import Config, Finding, Json, Set, print_findings
from publisher.transactions.exactly_once import TransactionSession

NOT_REACHED = "check bootstrap_servers and security of that side"


def check(
    path: Config,
    flags: Set = None,
    create: Annotated[bool, typer.Option("--create", help="Make what is missing at the destination.")] = False,
    as_json: Json = False,
) -> None:
    """Say what is wrong before anything is copied: clusters, topics, checkpoints."""
    print_findings(findings(load(path, flags or []).settings, create=create), as_json)


def findings(settings: RelaySettings, *, create: bool = False) -> Iterator[Finding]:
    """Look at both clusters, the rights, the topics, and the checkpoint topic. Ends where no further check makes sense."""
    try:
        reach(settings)
        source, destination = topics_of(settings)
        ids = source.id(), destination.id()
    except (Retriable, Fatal) as error:
        yield Finding("cluster", False, str(error), getattr(error, "hint", "") or NOT_REACHED)
        return
    for cluster, name in zip((source, destination), ids, strict=True):
        yield Finding("cluster", True, f"{cluster.name} is cluster {name}")
    if ids[0] == ids[1]:
        yield Finding("cluster", False, f"source and destination are one cluster, {ids[0]}", "check bootstrap_servers")
    try:
        lacking = list(_lacking(settings, source, destination))
        yield from lacking or [Finding("rights", True, "topics and transactional ids may be used")]
        if not lacking:
            yield from _topics(settings, source, destination, create=create and ids[0] != ids[1])
    except NotAllowed as error:
        yield Finding("rights", False, str(error), error.hint)
    except Fatal as error:
        yield Finding("topic", False, str(error), error.hint)
    except Retriable as error:
        yield Finding("cluster", False, str(error), NOT_REACHED)


def _lacking(settings: RelaySettings, source: Topics, destination: Topics) -> Iterator[Finding]:
    """Find every missing right, of those that copying needs, and transactions that the destination does not begin."""
    names = selected(settings, source.names() if has_patterns(settings) else [])
    refusals = [settings.refusal_topic] if settings.refusal_topic else []
    written = dict.fromkeys([*map(settings.destination_topic, names), *refusals], frozenset({WRITE}))
    name = f"{settings.transactional_prefix}check"
    checked = TransactionSession(
        partial(near_writer, settings), [name], transaction_seconds=ANSWER_SECONDS, producer_wait_seconds=ANSWER_SECONDS
    )
    for check, attempt in (
        ("cluster", lambda: source.allowed(acls.to_read(*names))),
        ("cluster", lambda: destination.allowed({**written, settings.checkpoint_topic: frozenset({READ, WRITE})})),
        ("transactions", checked.open),
    ):
        try:
            attempt()
        except Fatal as error:
            yield Finding("rights" if isinstance(error, NotAllowed) else check, False, str(error), error.hint)
    checked.close()


def _topics(settings: RelaySettings, source: Topics, destination: Topics, *, create: bool) -> Iterator[Finding]:
    ensure_own_topics(settings, destination, create=create)
    yield Finding("checkpoints", True, f"topic {settings.checkpoint_topic} keeps the positions")
    names = selected(settings, source.names() if has_patterns(settings) else [])
    found = source.topics(names)
    for name in (name for name in names if name not in found):
        hint = source.hint(name, "make it, or correct source.topics", names)
        yield Finding("topic", False, f"topic {name} does not exist in {source.name}", hint)
    for pair in pairs(settings, source, destination, found, create=create):
        detail = f"{pair.name}, {pair.source.partitions} partitions, goes to {pair.destination_name}"
        yield Finding("topic", True, detail)
        yield from _unlike(pair, source, destination)


def _unlike(pair: Pair, source: Topics, destination: Topics) -> Iterator[Finding]:
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
