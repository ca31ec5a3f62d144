"""`publisher checkpoint`: show, set and reset the positions of a relay by hand.

Every writer of the relay is fenced before a position is written. A running relay therefore ends with exit code 3, and continues
from the new positions when it is started again.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from publisher.commands.status import status
from publisher.errors import USAGE, Fatal, retriable_as_fatal
from publisher.relay import checkpoints as checkpoint
from publisher.relay.checkpoints import Checkpoint, CheckpointKey
from publisher.relay.clusters import open_checkpoint_log, open_topics
from publisher.relay.fence import control_of, fence, registration, registration_record
from publisher.relay.settings import RelaySettings, load
from publisher.relay.topic_mapping import TopicPair, pairs
from publisher.relay.transform import Route
from publisher.runtime.command_line import Config, Json, Set, print_data, table
from publisher.runtime.context import now_ms

Positions = dict[CheckpointKey, Checkpoint]
Values = Mapping[CheckpointKey, bytes | None]
"""The encoded checkpoint to write for each key; None removes the checkpoint."""
MakeValues = Callable[[Positions, Sequence[CheckpointKey]], Values]
"""Returns the encoded checkpoints to write, from the relay's positions and the keys of its unreadable positions."""
app = typer.Typer(
    help="Show, set or reset the positions of a relay, which are stored at the destination.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command("show")
def show_positions(path: Config, flags: Set = None, as_json: Json = False) -> None:
    """Show the positions of a relay, as `publisher status` does."""
    status(path, flags, as_json=as_json)


@app.command("set")
def set_positions(
    path: Config,
    topic: Annotated[str, typer.Option(help="The source topic whose position is set.", show_default=False)],
    to: Annotated[str, typer.Option(help="The new position: earliest, latest or an offset of the source.", show_default=False)],
    partition: Annotated[
        int | None, typer.Option(help="Set only this partition; default: all partitions of the topic.", min=0)
    ] = None,
    flags: Set = None,
    as_json: Json = False,
) -> None:
    """Set a relay's position in a source topic. A running relay ends, and continues from this position when started again."""
    _show(move(load(path, flags or []).settings, topic, partition, to), as_json)


@app.command("reset")
def reset_positions(
    path: Config,
    topic: Annotated[str | None, typer.Option(help="Reset only this source topic; default: all topics.")] = None,
    flags: Set = None,
    as_json: Json = False,
) -> None:
    """Delete the positions of a relay, which then starts as if it had never run. A running relay ends."""
    _show(forget(load(path, flags or []).settings, topic), as_json)


@dataclass(frozen=True)
class PositionChange:
    """The change of a position: the next source offset `before` and `after` the change; None if there is no position."""

    topic: str
    partition: int
    before: int | None
    after: int | None


def move(settings: RelaySettings, topic: str, partition: int | None, to: str) -> list[PositionChange]:
    """Set the relay's position in one partition of a source topic, or in all its partitions.

    Args:
        settings: the settings of the relay.
        topic: the source topic.
        partition: the partition; None for all.
        to: earliest, latest, or an offset that the log contains.

    Raises:
        Fatal: with exit code 2 for a missing topic, partition or offset, 4 if a cluster does not answer.
    """
    # The checkpoints have the ids of the current topics and clusters, so that the relay accepts them.
    with retriable_as_fatal("check source.bootstrap_servers and destination.bootstrap_servers"):
        source, destination = open_topics(settings)
        clusters = source.id(), destination.id()
        topics = source.topics([topic])
        if not topics:
            hint = source.hint(topic, "name a topic that source.topics contains")
            raise Fatal(f"topic {topic} does not exist in {settings.source.region}", hint, USAGE)
        pair = pairs(settings, source, destination, topics, create=False)[0]
        numbers = _partition_numbers(pair, partition)
        bounds = source.bounds((topic, number) for number in numbers)
        offsets = {number: bounds[topic, number].offset(to, f"{topic}[{number}]") for number in numbers}
    targets = {CheckpointKey(settings.name, settings.source.region, topic, number): at for number, at in offsets.items()}

    def make_values(before: Positions, _: Sequence[CheckpointKey]) -> Values:
        copies = destination.bounds((pair.destination_name, number) for number in numbers)
        values: dict[CheckpointKey, bytes | None] = {}
        for key, target in targets.items():
            route = Route(settings.source.region, topic, key.partition, pair.destination_name, target)
            if old := before.get(key):
                is_same_topic = old.topic_id == pair.source.id
                route.copies_from = old.copies_from if is_same_topic else copies[pair.destination_name, key.partition].high
            values[key] = checkpoint.encode(pair.checkpoint(route, clusters, now_ms()))
        return values

    before, _ = _write(settings, "publisher checkpoint set", make_values)
    return [PositionChange(topic, key.partition, _next_offset(before, key), target) for key, target in targets.items()]


def forget(settings: RelaySettings, topic: str | None) -> list[PositionChange]:
    """Delete the relay's positions in one source topic, or in all source topics if `topic` is None.

    The relay then starts in these topics as if it had never run.

    Raises:
        Fatal: with exit code 4 if the destination does not answer.
    """

    def make_values(before: Positions, unreadable: Sequence[CheckpointKey]) -> Values:
        return {key: None for key in sorted({*before, *unreadable}) if topic in (None, key.topic)}

    before, deleted = _write(settings, "publisher checkpoint reset", make_values)
    return [PositionChange(key.topic, key.partition, _next_offset(before, key), None) for key in deleted]


def _next_offset(positions: Positions, key: CheckpointKey) -> int | None:
    return positions[key].next if key in positions else None


def _partition_numbers(pair: TopicPair, partition: int | None) -> Sequence[int]:
    if partition is None:
        return range(pair.source.partitions)
    if partition >= pair.source.partitions:
        raise Fatal(f"{pair.name} has no partition {partition}", f"the partitions are 0 to {pair.source.partitions - 1}", USAGE)
    return [partition]


def _write(settings: RelaySettings, command: str, make_values: MakeValues) -> tuple[Positions, Values]:
    """Fence the relay, then write the positions that `make_values` returns to the checkpoint topic.

    The registration in the topic then names `command` as the last writer.

    Returns:
        The positions before the change, and the new positions as written to the topic.

    Raises:
        Fatal: with exit code 4 if the destination does not answer.
    """
    checkpoints = open_checkpoint_log(settings, repairing=True)
    registered = registration(settings, uuid.uuid4().hex, command)
    with closing(control_of(settings)) as control:
        with retriable_as_fatal("check destination.bootstrap_servers"):
            fence(settings, control, checkpoints, registered)
            checkpoints.refresh()
            before = checkpoints.checkpoints_of(settings.name)
            values = make_values(before, checkpoints.unreadable_positions())
        topic = settings.checkpoint_topic
        records = [checkpoint.record(topic, checkpoint.encode_key(*key), value) for key, value in values.items()]
        control.publish([*records, registration_record(settings, registered)])
    return before, values


def _show(changes: Sequence[PositionChange], as_json: bool) -> None:
    columns = ["partition", "before", "after"]
    rows = [(f"{change.topic}[{change.partition}]", change.before, change.after) for change in changes]
    print_data(as_json, {"positions": [asdict(change) for change in changes]}, lambda: table(columns, rows))
