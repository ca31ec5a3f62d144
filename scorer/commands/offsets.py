"""`scorer offsets`: shows where the consumer group stands, and moves it on purpose."""

from dataclasses import asdict, dataclass, fields
from typing import Annotated

import typer
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from publisher.errors import REFUSED, USAGE, Fatal
from publisher.kafka import rights
from publisher.kafka.connection import connect
from publisher.kafka.error_codes import REFUSED_CODES
from publisher.kafka.rights import DESCRIBE, READ, Right
from publisher.process.command_line import Config, Json, Set, print_data, table
from publisher.session import fencing
from scorer import topics
from scorer.settings import Settings, load

SECONDS = 10.0
EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class Standing:
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
    as_json: Json = False,
) -> None:
    """Show where the consumer group stands, or move it on purpose."""
    settings = load(path, flags or []).settings
    rows = [asdict(row) for row in (move(settings, to, topic, partition) if to else standing(settings))]
    columns = [field.name for field in fields(Standing)]
    print_data(as_json, {"offsets": rows}, lambda: table(columns, [list(row.values()) for row in rows]))


def standing(settings: Settings) -> list[Standing]:
    """Every input partition. Raises Fatal where the broker does not tell."""
    admin = connect(settings.kafka, f"{settings.name}.offsets")
    found = topics.describe(admin, settings.kafka, topics.seen(*settings.input.topics))
    partitions = [TopicPartition(t.name, p) for t in found.values() for p in range(t.partitions)]
    try:
        wanted = [ConsumerGroupTopicPartitions(settings.name, partitions)]
        answer = admin.list_consumer_group_offsets(wanted, request_timeout=SECONDS)[settings.name].result()
        committed = {(p.topic, p.partition): p.offset for p in answer.topic_partitions or []}
        lows = admin.list_offsets(dict.fromkeys(partitions, EARLIEST), request_timeout=SECONDS)
        highs = admin.list_offsets(dict.fromkeys(partitions, LATEST), request_timeout=SECONDS)
        return [
            Standing(
                p.topic,
                p.partition,
                offset if (offset := committed.get((p.topic, p.partition), -1)) >= 0 else None,
                lows[p].result().offset,
                highs[p].result().offset,
            )
            for p in partitions
        ]
    except KafkaException as error:
        if error.args[0].code() in REFUSED_CODES:
            raise rights.refused(settings.kafka, [Right(DESCRIBE, rights.GROUP, settings.name)]) from None
        raise Fatal(f"the offsets cannot be read: {error.args[0].str()}", "check the broker") from error


def move(settings: Settings, to: str, topic: str | None, partition: int | None) -> list[Standing]:
    """Move the group to `earliest`, `latest` or an offset; where it stands then. Raises Fatal.

    The group must have no members: a running scorer would go on from where it is and overwrite the move.
    """
    admin = connect(settings.kafka, f"{settings.name}.offsets")
    fencing.may_join(admin, settings.kafka, settings.name)
    topics.describe(admin, settings.kafka, topics.read(*settings.input.topics))
    if live := fencing.live_clients(admin, settings.name):
        raise Fatal(f"the group {settings.name} has members: {', '.join(sorted(live))}", "stop the scorers first", REFUSED)
    chosen = [
        s for s in standing(settings) if (topic is None or s.topic == topic) and (partition is None or s.partition == partition)
    ]
    if not chosen:
        raise Fatal(f"no input partition matches topic {topic}, partition {partition}", "see scorer offsets CONFIG", USAGE)
    offsets = [TopicPartition(s.topic, s.partition, _target(s, to)) for s in chosen]
    request = ConsumerGroupTopicPartitions(settings.name, offsets)
    try:
        admin.alter_consumer_group_offsets([request], request_timeout=SECONDS)[settings.name].result()
    except KafkaException as error:
        if error.args[0].code() in REFUSED_CODES:
            inputs = [Right(READ, rights.TOPIC, name) for name in settings.input.topics]
            raise rights.refused(settings.kafka, [Right(READ, rights.GROUP, settings.name), *inputs]) from None
        raise Fatal(f"the group was not moved: {error.args[0].str()}", "see the broker's log", REFUSED) from error
    return standing(settings)


def _target(at: Standing, to: str) -> int:
    if to in ("earliest", "latest"):
        return at.low if to == "earliest" else at.high
    if not to.isdigit() or not at.low <= int(to) <= at.high:
        raise Fatal(
            f"--to {to}: {at.topic}[{at.partition}] holds offsets {at.low} to {at.high}",
            "write earliest, latest or an offset",
            USAGE,
        )
    return int(to)
