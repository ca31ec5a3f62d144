"""The commands `scorer promote` and `scorer rollback`: move the channel that a configuration follows, tell its scorers at once,
and wait until they have flipped or refused. `model-registry promote` moves the tag alone."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from model_registry.channels import channel
from model_registry.channels.history import ChannelMove
from model_registry.channels.move_request import MoveRequest
from model_registry.commands import output
from model_registry.commands.channels import (
    Canary,
    ExpectDigest,
    ExpectRevision,
    Shadow,
    To,
    ToRevision,
    canary_share,
    move_request,
)
from model_registry.commands.options import MoveKey, PasswordFile, Reason
from model_registry.stores.base import Store
from publisher.errors import FINDING, REFUSED, Fatal
from publisher.kafka.partitions import in_ranges
from publisher.runtime.command_line import Config, Json, Set
from scorer.models.registry_access import move_key, open_source
from scorer.rollout import fleet_status
from scorer.rollout.fleet_status import FLIPPED, WAITING, MoveProgress
from scorer.rollout.status_topic import StatusTopic, notify
from scorer.settings import load

Wait = Annotated[bool, typer.Option("--wait", help="Until every scorer has flipped; exit code 3 refused, 1 not in time.")]
WaitSeconds = Annotated[float, typer.Option(help="How long --wait waits.", min=0.1)]


def promote(
    config: Config,
    to: To,
    settings: Set = None,
    reason: Reason = "",
    canary: Canary = None,
    shadow: Shadow = None,
    expect_digest: ExpectDigest = None,
    expect_revision: ExpectRevision = None,
    key: MoveKey = None,
    password_file: PasswordFile = None,
    wait: Wait = False,
    wait_seconds: WaitSeconds = 120.0,
    json: Json = False,
) -> None:
    """Move the channel that the scorers follow (model.tag) to a version, or add it as a canary, and tell them at once."""
    share = canary_share(canary, shadow)
    request = move_request(reason, key, password_file, expect_digest, expect_revision)

    def move(store: Store, tag: str, request: MoveRequest) -> ChannelMove:
        return channel.promote(store, tag, to, request, canary=share, shadow=shadow)

    _carry_out(config, settings, move, request, wait_seconds if wait else None, json)


def rollback(
    config: Config,
    settings: Set = None,
    to_revision: ToRevision = None,
    reason: Reason = "",
    expect_revision: ExpectRevision = None,
    key: MoveKey = None,
    password_file: PasswordFile = None,
    wait: Wait = False,
    wait_seconds: WaitSeconds = 120.0,
    json: Json = False,
) -> None:
    """Move the channel that the scorers follow (model.tag) back to what it served before, and tell them at once."""
    request = move_request(reason, key, password_file, expect_revision=expect_revision)
    _carry_out(
        config, settings, partial(channel.rollback, to_revision=to_revision), request, wait_seconds if wait else None, json
    )


def _carry_out(
    config: Path,
    flags: list[str] | None,
    move: Callable[[Store, str, MoveRequest], ChannelMove],
    request: MoveRequest,
    wait_seconds: float | None,
    json: bool,
) -> None:
    """Make a move, tell the scorers, wait for them and print it all. Ends with 1 (not in time) or 3 (refused)."""
    settings = load(config, flags or []).settings
    if request.key is None:
        request = replace(request, key=move_key(settings))
    store = open_source(settings)
    with contextlib.closing(StatusTopic(settings)) as topic:  # before the move: a broker that does not answer moves nothing
        made = move(store, settings.model.tag, replace(request, time=datetime.now(UTC)))
        if not json:
            typer.echo(output.move_line(made))
        began = time.monotonic()
        try:
            notify(settings, made, store.repository)
        except Fatal as error:  # the move is made: a notice that is lost costs the scorers one poll
            output.talk(f"warning: {error}; the scorers see the move at their next poll")
        verdict = None if wait_seconds is None else topic.follow(made, wait_seconds, _told())
    value = output.move(made)
    if verdict is None:
        if json:
            output.show(json, value, "")
        return
    seconds = round(time.monotonic() - began, 3)
    summary = verdict.outcome if verdict.outcome != WAITING else "timed out"
    rollout = {
        "outcome": summary,
        "seconds": seconds,
        "scorers": [asdict(standing) for standing in verdict.scorers],
        "missing_partitions": [{"topic": topic, "partition": number} for topic, number in verdict.missing],
    }
    output.show(json, value | {"rollout": rollout}, _line(verdict, seconds))
    if verdict.outcome != FLIPPED:
        raise typer.Exit(REFUSED if _refusals(verdict) else FINDING)


def _told() -> Callable[[MoveProgress], None]:
    """Says on stderr, once for each scorer, that it has flipped or refused."""
    told: set[tuple[str, str]] = set()

    def changed(verdict: MoveProgress) -> None:
        for standing in verdict.scorers:
            if (standing.scorer, standing.outcome) not in told and standing.outcome != WAITING:
                told.add((standing.scorer, standing.outcome))
                reason = f": {standing.reason}" if standing.reason else f", {standing.partitions} partitions"
                output.talk(f"{standing.scorer} has {standing.outcome}{reason}")

    return changed


def _refusals(verdict: MoveProgress) -> list[str]:
    return [f"{s.scorer}: {s.reason}" for s in verdict.scorers if s.outcome == fleet_status.REFUSED]


def _line(verdict: MoveProgress, seconds: float) -> str:
    scorers = len(verdict.scorers)
    if verdict.outcome == FLIPPED:
        partitions = sum(standing.partitions for standing in verdict.scorers)
        return f"flipped: {scorers} scorers, {partitions} partitions, after {seconds:.2f} s"
    if refusals := _refusals(verdict):
        return output.plain(f"refused after {seconds:.2f} s by {'; '.join(refusals)}")
    if not scorers:
        return f"timed out after {seconds:.0f} s: no live scorer follows this channel"
    late = [standing.scorer for standing in verdict.scorers if standing.outcome == WAITING]
    orphans = in_ranges(verdict.missing)
    return output.plain(f"timed out after {seconds:.0f} s, waiting for {', '.join([*late, *filter(None, [orphans])])}")
