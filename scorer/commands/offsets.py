"""`scorer offsets`: print or move the committed offsets of the scorers' consumer group, or of the shadow's group."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer
from confluent_kafka.admin import AdminClient

from model_registry import suggestions
from publisher.errors import REFUSED, USAGE, Fatal, retriable_as_fatal
from publisher.kafka import acls
from publisher.kafka.connection import connect
from publisher.kafka.groups import ConsumerGroups, GroupPosition, check_right_to_join
from publisher.kafka.topics import Bounds, Topics
from publisher.runtime.command_line import Config, Json, Set, print_data, table
from scorer import topics
from scorer.settings import Settings, load
from scorer.settings.shadow_worker import ShadowWorkerSettings

SECONDS = 10.0


class PartitionOffsets(NamedTuple):
    """The committed offset of a partition, and the offsets that the partition holds.

    Attributes:
        committed: the committed offset of the group; None if there is none.
        low: the first retained offset.
        high: the end offset.
    """

    topic: str
    partition: int
    committed: int | None
    low: int
    high: int


def offsets(
    path: Config,
    flags: Set = None,
    to: Annotated[
        str | None,
        typer.Option(help="Move the consumer group to earliest, latest or an offset. All its scorers must be stopped."),
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Show or move only this input topic.")] = None,
    partition: Annotated[int | None, typer.Option(help="Show or move only this partition.", min=0)] = None,
    shadow: Annotated[bool, typer.Option("--shadow", help="Show or move the consumer group of `scorer run --shadow`.")] = False,
    as_json: Json = False,
) -> None:
    """Print the committed offsets of the consumer group, or move them."""
    settings = load(path, flags or []).settings
    if shadow:
        settings = ShadowWorkerSettings.from_scorer(settings)
    admin = connect(settings.kafka, f"{settings.name}.offsets")
    rows = move(settings, admin, to, topic, partition) if to else read_offsets(settings, admin)
    print_data(as_json, {"offsets": [row._asdict() for row in rows]}, lambda: table(PartitionOffsets._fields, rows))


def read_offsets(settings: Settings, admin: AdminClient) -> list[PartitionOffsets]:
    """Return the offsets of every partition of the input topics. Raises Fatal if the broker does not return them."""
    described = topics.describe(admin, settings.kafka, acls.to_describe(*settings.input.topics))
    with retriable_as_fatal("check the broker", "the offsets cannot be read: "):
        committed = {(p.topic, p.partition): p.next for p in _groups(settings, admin).positions(settings.name)}
        partitions = [(topic.name, number) for topic in described.values() for number in range(topic.partitions)]
        bounds = Topics(settings.kafka, f"{settings.name}.offsets", "the broker", SECONDS, admin).bounds(partitions)
    return [PartitionOffsets(*each, committed.get(each), *bounds[each]) for each in partitions]


def move(settings: Settings, admin: AdminClient, to: str, topic: str | None, partition: int | None) -> list[PartitionOffsets]:
    """Move the group to `earliest`, `latest` or an offset, and return the new offsets.

    `topic` and `partition` limit the partitions that are moved; None for all.

    Raises:
        Fatal: The group has members, no partition matches, or the broker rejects the move.
    """
    # A running scorer would continue from its position and overwrite the move.
    groups = _groups(settings, admin)
    check_right_to_join(admin, settings.kafka, settings.name)
    topics.describe(admin, settings.kafka, acls.to_read(*settings.input.topics))
    with retriable_as_fatal("see the broker's log", "the group was not moved: "):
        if live := groups.members(settings.name):
            running = "scorer run --shadow" if isinstance(settings, ShadowWorkerSettings) else "the scorers"
            raise Fatal(f"the group {settings.name} has members: {', '.join(live)}", f"stop {running} first", REFUSED)
        chosen = select(read_offsets(settings, admin), topic, partition, f"see {settings.offsets_command}")
        targets = [Bounds(s.low, s.high).offset(to, f"{s.topic}[{s.partition}]") for s in chosen]
        groups.move(settings.name, [GroupPosition(s.topic, s.partition, at) for s, at in zip(chosen, targets, strict=True)])
    return read_offsets(settings, admin)


def select(rows: Sequence[PartitionOffsets], topic: str | None, partition: int | None, hint: str) -> list[PartitionOffsets]:
    """Return the rows of a topic and of a partition number; None selects all. Pure.

    Raises:
        Fatal: No row matches. The error's hint suggests an input topic similar to `topic`, or else is `hint`.
    """
    chosen = [row for row in rows if topic in (None, row.topic) and partition in (None, row.partition)]
    if chosen:
        return chosen
    valid = {row.topic for row in rows}
    question = suggestions.question(topic, sorted(valid)) if topic is not None and topic not in valid else ""
    raise Fatal(f"no input partition matches topic {topic}, partition {partition}", question or hint, USAGE)


def _groups(settings: Settings, admin: AdminClient) -> ConsumerGroups:
    return ConsumerGroups(admin, settings.kafka, "the broker", SECONDS)
