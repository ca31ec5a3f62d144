"""`publisher checkpoint`: positions that a person sets. Every writer of the relay is fenced first, so a relay that runs ends
(exit code 3) and goes on from the new positions when it is started again.
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
from publisher.relay.checkpoints import Checkpoint, Place
from publisher.relay.clusters import log_of, topics_of
from publisher.relay.fence import control_of, fence, registration, registration_record
from publisher.relay.settings import RelaySettings, load
from publisher.relay.topic_mapping import Pair, pairs
from publisher.relay.transform import Route
from publisher.runtime.command_line import Config, Json, Set, print_data, table
from publisher.runtime.context import now_ms

Positions = dict[Place, Checkpoint]
Values = Callable[[Positions, Sequence[Place]], Mapping[Place, bytes | None]]
app = typer.Typer(help="Positions at the destination: show, set, reset.", no_args_is_help=True, add_completion=False)


@app.command("show")
def show_positions(path: Config, flags: Set = None, as_json: Json = False) -> None:
    """Show the positions, as `publisher status` does."""
    status(path, flags, as_json=as_json)


@app.command("set")
def set_positions(
    path: Config,
    topic: Annotated[str, typer.Option(help="The source topic.", show_default=False)],
    to: Annotated[str, typer.Option(help="earliest, latest or an offset of the source.", show_default=False)],
    partition: Annotated[int | None, typer.Option(help="Only this partition.", min=0)] = None,
    flags: Set = None,
    as_json: Json = False,
) -> None:
    """Go on from another offset, with the topics as they are now. Ends a relay that runs; start it again."""
    _show(move(load(path, flags or []).settings, topic, partition, to), as_json)


@app.command("reset")
def reset_positions(
    path: Config,
    topic: Annotated[str | None, typer.Option(help="Only this source topic.")] = None,
    flags: Set = None,
    as_json: Json = False,
) -> None:
    """Forget the positions: the relay begins as if it had never run. Ends a relay that runs."""
    _show(forget(load(path, flags or []).settings, topic), as_json)


@dataclass(frozen=True)
class Move:
    """A position that was changed: `before` and `after` are next offsets; None is none."""

    topic: str
    partition: int
    before: int | None
    after: int | None


def move(settings: RelaySettings, topic: str, partition: int | None, to: str) -> list[Move]:
    """Go on from `to` (earliest, latest, or an offset that the log holds) in one partition or all of a topic, with the topics
    and clusters as they are now. Raises Fatal: 2 for what is not there, 4 where a cluster does not answer.
    """
    with retriable_as_fatal("check bootstrap_servers"):
        source, destination = topics_of(settings)
        clusters = source.id(), destination.id()
        found = source.topics([topic])
        if not found:
            hint = source.hint(topic, "see source.topics")
            raise Fatal(f"topic {topic} does not exist in {settings.source.region}", hint, USAGE)
        pair = pairs(settings, source, destination, found, create=False)[0]
        numbers = _numbers(pair, partition)
        bounds = source.bounds((topic, number) for number in numbers)
        targets = {number: bounds[topic, number].offset(to, f"{topic}[{number}]") for number in numbers}
    places = {Place(settings.name, settings.source.region, topic, number): offset for number, offset in targets.items()}

    def values(own: Positions, _: Sequence[Place]) -> dict[Place, bytes | None]:
        copied = destination.bounds((pair.destination_name, number) for number in numbers)
        found: dict[Place, bytes | None] = {}
        for place, target in places.items():
            route = Route(settings.source.region, topic, place.partition, pair.destination_name, target)
            if before := own.get(place):
                same = before.topic_id == pair.source.id
                route.copies_from = before.copies_from if same else copied[pair.destination_name, place.partition].high
            found[place] = checkpoint.encode(pair.checkpoint(route, clusters, now_ms()))
        return found

    own, _ = _write(settings, "publisher checkpoint set", values)
    return [Move(topic, p.partition, own[p].next if p in own else None, target) for p, target in places.items()]


def forget(settings: RelaySettings, topic: str | None) -> list[Move]:
    """Remove the positions of a topic, or all: the relay then begins as if it had never run. Raises Fatal as `move` does."""

    def found(own: Positions, unreadable: Sequence[Place]) -> dict[Place, bytes | None]:
        return {place: None for place in sorted({*own, *unreadable}) if topic in (None, place.topic)}

    own, written = _write(settings, "publisher checkpoint reset", found)
    return [Move(p.topic, p.partition, own[p].next if p in own else None, None) for p in written]


def _numbers(pair: Pair, partition: int | None) -> Sequence[int]:
    if partition is None:
        return range(pair.source.partitions)
    if partition >= pair.source.partitions:
        raise Fatal(f"{pair.name} has no partition {partition}", f"it has 0 to {pair.source.partitions - 1}", USAGE)
    return [partition]


def _write(settings: RelaySettings, what: str, values: Values) -> tuple[Positions, Mapping[Place, bytes | None]]:
    """Fence the relay, then write `values` of its positions and of its unreadable ones; return the positions and the values.

    Raises Fatal: 4 if the destination does not answer.
    """
    checkpoints, told = log_of(settings, repairing=True), registration(settings, uuid.uuid4().hex, what)
    with closing(control_of(settings)) as control:
        with retriable_as_fatal("check destination.bootstrap_servers"):
            fence(settings, control, checkpoints, told)
            checkpoints.refresh()
            own = checkpoints.of_relay(settings.name)
            found = values(own, checkpoints.unreadable_places())
        records = [checkpoint.record(settings.checkpoint_topic, checkpoint.key(*p), value) for p, value in found.items()]
        control.publish([*records, registration_record(settings, told)])
    return own, found


def _show(moves: Sequence[Move], as_json: bool) -> None:
    columns = ["partition", "before", "after"]
    rows = [(f"{move.topic}[{move.partition}]", move.before, move.after) for move in moves]
    print_data(as_json, {"positions": [asdict(move) for move in moves]}, lambda: table(columns, rows))
