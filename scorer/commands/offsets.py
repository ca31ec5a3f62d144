"""`scorer offsets`: shows where the consumer group of the scorers stands, or that of their shadow, and moves it on purpose."""

from typing import Annotated, NamedTuple

import typer
from confluent_kafka.admin import AdminClient

from publisher.errors import REFUSED, USAGE, Fatal, answered
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
    """One partition: the group's committed offset (None where there is none) within what the topic holds."""

    topic: str
    partition: int
    committed: int | None
    low: int
    high: int


def offsets(
    path: Config,
    flags: Set = None,
    to: Annotated[str | None, typer.Option(help="Move the group: earliest, latest or an offset. No scorer may run.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only this input topic.")] = None,
    partition: Annotated[int | None, typer.Option(help="Only this partition.", min=0)] = None,
    shadow: Annotated[bool, typer.Option("--shadow", help="The group of scorer run --shadow.")] = False,
    as_json: Json = False,
) -> None:
    """Show where the consumer group stands, or move it on purpose."""
    settings = load(path, flags or []).settings
    if shadow:
        settings = ShadowWorkerSettings.from_scorer(settings)
    admin = connect(settings.kafka, f"{settings.name}.offsets")
    found = move(settings, admin, to, topic, partition) if to else standing(settings, admin)
    print_data(as_json, {"offsets": [row._asdict() for row in found]}, lambda: table(PartitionOffsets._fields, found))


def standing(settings: Settings, admin: AdminClient) -> list[PartitionOffsets]:
    """Every input partition. Raises Fatal where the broker does not tell."""
    found = topics.describe(admin, settings.kafka, topics.seen(*settings.input.topics))
    with answered("check the broker", "the offsets cannot be read: "):
        committed = {(p.topic, p.partition): p.next for p in _groups(settings, admin).positions(settings.name)}
        places = [(topic.name, number) for topic in found.values() for number in range(topic.partitions)]
        bounds = Topics(settings.kafka, f"{settings.name}.offsets", "the broker", SECONDS, admin).bounds(places)
    return [PartitionOffsets(*place, committed.get(place), *bounds[place]) for place in places]


def move(settings: Settings, admin: AdminClient, to: str, topic: str | None, partition: int | None) -> list[PartitionOffsets]:
    """Move the group to `earliest`, `latest` or an offset; where it stands then. Raises Fatal. The group must have no members:
    a running scorer would go on from where it is and overwrite the move."""
    groups = _groups(settings, admin)
    check_right_to_join(admin, settings.kafka, settings.name)
    topics.describe(admin, settings.kafka, acls.to_read(*settings.input.topics))
    with answered("see the broker's log", "the group was not moved: "):
        if live := groups.members(settings.name):
            running = "scorer run --shadow" if isinstance(settings, ShadowWorkerSettings) else "the scorers"
            raise Fatal(f"the group {settings.name} has members: {', '.join(live)}", f"stop {running} first", REFUSED)
        chosen = [s for s in standing(settings, admin) if topic in (None, s.topic) and partition in (None, s.partition)]
        if not chosen:
            raise Fatal(
                f"no input partition matches topic {topic}, partition {partition}", f"see {settings.offsets_command}", USAGE
            )
        targets = [Bounds(s.low, s.high).offset(to, f"{s.topic}[{s.partition}]") for s in chosen]
        groups.move(settings.name, [GroupPosition(s.topic, s.partition, at) for s, at in zip(chosen, targets, strict=True)])
    return standing(settings, admin)


def _groups(settings: Settings, admin: AdminClient) -> ConsumerGroups:
    return ConsumerGroups(admin, settings.kafka, "the broker", SECONDS)
