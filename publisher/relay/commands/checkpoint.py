"""`publisher checkpoint`: positions that a person sets. Every writer of the relay is fenced first, so a relay that runs ends
(exit code 3) and goes on from the new positions when it is started again.
"""

import threading
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from confluent_kafka import Producer

from publisher.errors import UNREACHABLE, USAGE, Fatal, Retriable
from publisher.kafka.topics import Bounds
from publisher.process.command_line import Config, Json, Set, print_data, table
from publisher.relay import checkpoints as checkpoint
from publisher.relay.checkpoints import Place, Registration
from publisher.relay.commands.status import status
from publisher.relay.copy import Route
from publisher.relay.settings import RelaySettings, load
from publisher.relay.takeover import destination_of, encoded, fence, log_of, registration, source_of, write
from publisher.relay.topic_pairs import Pair, pairs

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
    try:
        source, destination = source_of(settings), destination_of(settings)
        clusters = source.id(), destination.id()
        found = source.topics([topic])
        if not found:
            raise Fatal(f"topic {topic} does not exist in {settings.source.region}", "see source.topics", USAGE)
        pair = pairs(settings, source, destination, found, create=False)[0]
        numbers = _numbers(pair, partition)
        bounds = source.bounds((topic, number) for number in numbers)
        targets = {number: offset(to, bounds[topic, number], f"{topic}[{number}]") for number in numbers}
        checkpoints = log_of(settings)
        told = registration(settings, uuid.uuid4().hex, "publisher checkpoint set")
        control = fence(settings, checkpoints, told, threading.Event())
        checkpoints.refresh()
        own = checkpoints.of_relay(settings.name)
        copied = destination.bounds((pair.destination_name, number) for number in numbers)
    except Retriable as error:
        raise Fatal(str(error), "check bootstrap_servers", UNREACHABLE) from error
    places = {number: Place(settings.name, settings.source.region, topic, number) for number in numbers}
    moves = [Move(topic, n, own[places[n]].next if places[n] in own else None, targets[n]) for n in numbers]
    routes = [Route(settings.source.region, topic, n, pair.destination_name, targets[n]) for n in numbers]
    for route in routes:
        if before := own.get(places[route.partition]):
            same = before.topic_id == pair.source.id
            route.copies_from = before.copies_from if same else copied[pair.destination_name, route.partition].high
    records: list[tuple[bytes, bytes | None]] = [encoded(settings, clusters, pair, route) for route in routes]
    _write(settings, control, records, told)
    return moves


def forget(settings: RelaySettings, topic: str | None) -> list[Move]:
    """Remove the positions of a topic, or all: the relay then begins as if it had never run. Raises Fatal as `move` does."""
    checkpoints = log_of(settings)
    told = registration(settings, uuid.uuid4().hex, "publisher checkpoint reset")
    try:
        control = fence(settings, checkpoints, told, threading.Event())
    except Retriable as error:
        raise Fatal(str(error), "check destination.bootstrap_servers", UNREACHABLE) from error
    checkpoints.refresh()
    own = {p: found for p, found in checkpoints.of_relay(settings.name).items() if topic in (None, p.topic)}
    _write(settings, control, [(checkpoint.key(place), None) for place in own], told)
    return [Move(place.topic, place.partition, found.next, None) for place, found in sorted(own.items())]


def offset(to: str, bounds: Bounds, where: str) -> int:
    """The offset that `to` names. Pure. Raises Fatal (2)."""
    if to in ("earliest", "latest"):
        return bounds.low if to == "earliest" else bounds.high
    if not to.isdigit() or not bounds.low <= int(to) <= bounds.high:
        raise Fatal(
            f"{to!r} is no offset of {where}, which holds {bounds.low} to {bounds.high}", "or: --to earliest|latest", USAGE
        )
    return int(to)


def _numbers(pair: Pair, partition: int | None) -> Sequence[int]:
    if partition is None:
        return range(pair.source.partitions)
    if partition >= pair.source.partitions:
        raise Fatal(f"{pair.name} has no partition {partition}", f"it has 0 to {pair.source.partitions - 1}", USAGE)
    return [partition]


def _write(settings: RelaySettings, control: Producer, records: list[tuple[bytes, bytes | None]], told: Registration) -> None:
    records.append((checkpoint.registration_key(settings.name), checkpoint.encode(told)))
    write(control, settings.checkpoint_topic, records)


def _show(moves: Sequence[Move], as_json: bool) -> None:
    columns = ["partition", "before", "after"]
    rows = [(f"{move.topic}[{move.partition}]", move.before, move.after) for move in moves]
    print_data(as_json, {"positions": [asdict(move) for move in moves]}, lambda: table(columns, rows))
