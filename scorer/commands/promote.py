"""`scorer promote` and `scorer rollback`: move the model channel of a configuration and notify its scorers.

With --wait the commands wait until every scorer serves or refuses the version. `model-registry promote` only moves the channel.
"""

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
from model_registry.cli_common import (
    Canary,
    ExpectDigest,
    ExpectRevision,
    MoveKey,
    PasswordFile,
    Reason,
    Shadow,
    To,
    ToRevision,
    canary_share,
    format_move,
    move_document,
    move_request,
    print_message,
    print_result,
)
from model_registry.stores.base import Store
from model_registry.untrusted_input.terminal_text import printable
from publisher.errors import FINDING, REFUSED, Fatal
from publisher.kafka.partitions import in_ranges
from publisher.runtime.command_line import Config, Json, Set
from scorer.models.registry_access import move_key, open_source
from scorer.rollout import fleet_status
from scorer.rollout.fleet_status import FLIPPED, WAITING, MoveProgress
from scorer.rollout.status_topic import StatusTopic, notify
from scorer.settings import load

Wait = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Wait until every scorer serves the version. Exit code 3 if a scorer rejects the version, 1 on a timeout.",
    ),
]
WaitSeconds = Annotated[float, typer.Option(help="The timeout of --wait, in seconds.", min=0.1)]


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
    """Move the scorers' channel (model.tag) to a version, or add it as a canary or shadow, and notify the scorers."""
    share = canary_share(canary, shadow)
    request = move_request(reason, key, password_file, expect_digest, expect_revision)

    def move(store: Store, tag: str, request: MoveRequest) -> ChannelMove:
        return channel.promote(store, tag, to, request, canary=share, shadow=shadow)

    _move(config, settings, move, request, wait_seconds if wait else None, json)


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
    """Move the scorers' channel (model.tag) back to an earlier revision, and notify the scorers."""
    request = move_request(reason, key, password_file, expect_revision=expect_revision)
    _move(config, settings, partial(channel.rollback, to_revision=to_revision), request, wait_seconds if wait else None, json)


def _move(
    config: Path,
    flags: list[str] | None,
    make_move: Callable[[Store, str, MoveRequest], ChannelMove],
    request: MoveRequest,
    wait_seconds: float | None,
    json: bool,
) -> None:
    """Move the channel by `make_move`, notify the scorers, wait for them and print the result.

    There is no wait if `wait_seconds` is None. Raises Exit with code 1 after a timeout, or 3 if a scorer has refused the
    version.
    """
    settings = load(config, flags or []).settings
    if request.key is None:
        request = replace(request, key=move_key(settings))
    store = open_source(settings)
    with contextlib.closing(StatusTopic(settings)) as topic:  # before the move: without a broker nothing is moved
        move = make_move(store, settings.model.tag, replace(request, time=datetime.now(UTC)))
        if not json:
            typer.echo(format_move(move))
        began = time.monotonic()
        try:
            notify(settings, move, store.repository)
        except Fatal as error:  # the channel has moved: without the notice the scorers detect the move at their next poll
            print_message(f"warning: {error}; the scorers see the move at their next poll")
        verdict = None if wait_seconds is None else topic.wait_for_flips(move, wait_seconds, _print_outcomes())
    value = move_document(move)
    if verdict is None:
        if json:
            print_result(json, value, "")
        return
    seconds = round(time.monotonic() - began, 3)
    summary = verdict.outcome if verdict.outcome != WAITING else "timed out"
    rollout = {
        "outcome": summary,
        "seconds": seconds,
        "scorers": [asdict(scorer) for scorer in verdict.scorers],
        "missing_partitions": [{"topic": topic, "partition": number} for topic, number in verdict.missing],
    }
    print_result(json, value | {"rollout": rollout}, _summary(verdict, seconds))
    if verdict.outcome != FLIPPED:
        raise typer.Exit(REFUSED if _refusals(verdict) else FINDING)


def _print_outcomes() -> Callable[[MoveProgress], None]:
    """Return a callback that prints on stderr, once per scorer, whether the scorer serves or refuses the version."""
    printed: set[tuple[str, str]] = set()

    def changed(verdict: MoveProgress) -> None:
        for scorer in verdict.scorers:
            if (scorer.scorer, scorer.outcome) not in printed and scorer.outcome != WAITING:
                printed.add((scorer.scorer, scorer.outcome))
                reason = f": {scorer.reason}" if scorer.reason else f", {scorer.partitions} partitions"
                print_message(f"{scorer.scorer} has {scorer.outcome}{reason}")

    return changed


def _refusals(verdict: MoveProgress) -> list[str]:
    return [f"{s.scorer}: {s.reason}" for s in verdict.scorers if s.outcome == fleet_status.REFUSED]


def _summary(verdict: MoveProgress, seconds: float) -> str:
    scorers = len(verdict.scorers)
    if verdict.outcome == FLIPPED:
        partitions = sum(scorer.partitions for scorer in verdict.scorers)
        return f"flipped: {scorers} scorers, {partitions} partitions, after {seconds:.2f} s"
    if refusals := _refusals(verdict):
        return printable(f"refused after {seconds:.2f} s by {'; '.join(refusals)}")
    if not scorers:
        return f"timed out after {seconds:.0f} s: no live scorer follows this channel"
    late = [scorer.scorer for scorer in verdict.scorers if scorer.outcome == WAITING]
    orphans = in_ranges(verdict.missing)
    return printable(f"timed out after {seconds:.0f} s, waiting for {', '.join([*late, *filter(None, [orphans])])}")
