"""The commands for channels.

`promote` and `rollback` move a channel, `history`, `watch` and `status` show channels, and `prune` deletes unused versions.
"""

import sys
import time
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from model_registry.cli_common import (
    Canary,
    Channel,
    ExpectDigest,
    ExpectRevision,
    Json,
    Keys,
    MoveKey,
    PasswordFile,
    Reason,
    Repo,
    Shadow,
    To,
    ToRevision,
    canary_share,
    format_move,
    format_table,
    move_document,
    move_request,
    open_repository,
    print_message,
    print_result,
    print_result_line,
    trusted_keys,
)
from model_registry.errors import BadReference, Corrupt, NotFound, Refused, RegistryError
from model_registry.oci import digests, tags
from model_registry.untrusted_input.terminal_text import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from model_registry.channels.history import ChannelMove
    from model_registry.channels.retention import Removal
    from model_registry.stores.base import Store

Since = Annotated[
    int | None,
    typer.Option(metavar="N", help="Print the moves after this revision. Default: only moves made from now on.", min=0),
]
KeepRevisions = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="The number of newest moves to keep for each channel; the versions that these moves name are kept too.",
        min=1,
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Keep the versions whose names match this pattern, such as '2.*'; repeatable."),
]
Grace = Annotated[
    float,
    typer.Option(
        help="In an OCI layout, keep content that was written within this number of minutes: a push may be in progress.",
        min=0,
    ),
]


def promote(
    ctx: typer.Context,
    repo: Repo,
    to: To,
    channel: Channel = "prod",
    reason: Reason = "",
    canary: Canary = None,
    shadow: Shadow = None,
    expect_digest: ExpectDigest = None,
    expect_revision: ExpectRevision = None,
    key: MoveKey = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Point a channel at a version, or add the version as a canary.

    The move ends an earlier canary or shadow, and gets the channel's next revision number. `scorer promote` also notifies the
    scorers of the move.
    """
    from model_registry.channels import channel as channels

    share = canary_share(canary, shadow)
    request = move_request(reason, key, password_file, expect_digest, expect_revision)
    store, _ = open_repository(ctx, repo)
    _show_move(json, channels.promote(store, channel, to, request, canary=share, shadow=shadow))


def rollback(
    ctx: typer.Context,
    repo: Repo,
    channel: Channel = "prod",
    to_revision: ToRevision = None,
    reason: Reason = "",
    expect_revision: ExpectRevision = None,
    key: MoveKey = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Point a channel at the version that the channel named before.

    The move is a new revision and ends a canary or shadow. A second rollback returns to the version before the restored one.
    """
    from model_registry.channels import channel as channels

    request = move_request(reason, key, password_file, expect_revision=expect_revision)
    store, _ = open_repository(ctx, repo)
    _show_move(json, channels.rollback(store, channel, request, to_revision=to_revision))


def _show_move(json: bool, move: "ChannelMove") -> None:
    print_result(json, move_document(move), format_move(move))


def history(ctx: typer.Context, repo: Repo, channel: Channel = "prod", key: Keys = None, json: Json = False) -> None:
    """Show every move of a channel, the newest last, and the trusted key that signed it."""
    from model_registry.channels import channel as channels
    from model_registry.channels import roles
    from model_registry.channels.history import completed_moves

    store, _ = open_repository(ctx, repo)
    moves = channels.history(store, channel)
    if not moves:
        raise NotFound(
            f"{store.repository} has no channel {channel!r}", f"model-registry promote {repo} --to VERSION creates it"
        )
    rows = []
    values = []
    signed = _signed(store, key)
    followed = {move.revision for move in completed_moves(moves, _names(store, channel))}
    for m in moves:
        note = f"{m.reason} (back to revision {m.restores})".strip() if m.restores else m.reason
        if m.revision not in followed:
            note = f"{note} (not completed: the channel does not name it)".strip()
        to = roles.format_roles(m.roles) or m.to_version
        by = signed(m)
        rows.append([m.revision, f"{m.at:%Y-%m-%d %H:%M:%S}Z", m.from_version or "-", to, m.actor, _shown(m, by), note])
        values.append(move_document(m) | {"signed_by": by, "made": m.revision in followed})
    table = format_table(["revision", "at", "from", "to", "actor", "signed", "reason"], rows)
    print_result(json, {"channel": channel, "moves": values}, table)


def _signed(store: "Store", paths: list[Path] | None) -> "Callable[[ChannelMove], str | None]":
    """Return a function that returns the id of the key that signed a move, or None if none of the keys did.

    `paths` are the files of the public keys.
    """
    from model_registry.channels import signed_move

    keys = trusted_keys(paths)

    def signer(move: "ChannelMove") -> str | None:
        if not keys or move.signature is None:
            return None
        try:
            return signed_move.verify(store, move.channel, move.revision, keys, datetime.now(UTC)).key_id
        except (Refused, NotFound, Corrupt):
            return None

    return signer


def _shown(move: "ChannelMove", signed_by: str | None) -> str:
    return signed_by or ("no" if move.signature is None else "unverified")


def _names(store: "Store", channel: str) -> str | None:
    """Return the digest of the manifest that a channel names; None if the channel's tag was deleted."""
    try:
        return store.resolve(channel).digest
    except NotFound:
        return None


def watch(
    ctx: typer.Context,
    repo: Repo,
    channel: Channel = "prod",
    since: Since = None,
    count: Annotated[int | None, typer.Option(help="Exit after printing this number of moves.", min=1)] = None,
    interval: Annotated[float, typer.Option(help="The number of seconds between two polls of the channel.", min=0.05)] = 2.0,
    json: Json = False,
) -> None:
    """Print the moves of a channel as they happen, until Ctrl-C; with --json one document a line."""
    from model_registry.channels import channel as channels

    store, _ = open_repository(ctx, repo)
    after = max(tags.revisions(store.tags(), channel), default=0) if since is None else since
    print_message(f"watching {channel!r} of {store.repository} after revision {after}")

    def pause(failed: RegistryError | None) -> None:
        if failed is not None:
            print_message(f"warning: {failed}; retrying")
        time.sleep(interval)

    for move in islice(channels.watch(store, channel, after, pause), count):
        line = f"{move.at:%Y-%m-%d %H:%M:%S}Z {format_move(move)} by {move.actor} {move.reason}"
        print_result_line(json, move_document(move), line.rstrip())


def status(ctx: typer.Context, repo: Repo, key: Keys = None, json: Json = False) -> None:
    """Show the channels, the versions that they name, and their last moves with actor and signing key.

    `scorer status` shows the version that each scorer serves.
    """
    store, _ = open_repository(ctx, repo)
    channels = _channels(store, _signed(store, key))
    columns = ["channel", "revision", "serves", "moved", "by", "signed", "reason"]
    keys = ["channel", "revision", "serves", "at", "by", "signed", "reason"]
    text = format_table(columns, [[c[key] for key in keys] for c in channels])
    print_result(json, {"repository": store.repository, "channels": channels}, text)


def _channels(store: "Store", signed: "Callable[[ChannelMove], str | None]") -> list[dict[str, Any]]:
    from model_registry.channels import channel, roles

    rows: list[dict[str, Any]] = []
    all_tags = store.tags()
    for name in tags.channels(all_tags):
        if name not in all_tags:
            continue
        resolution = channel.resolve(store, name)
        last = channel.history(store, name, after=resolution.revision - 1)[0]
        row = {"channel": name, "revision": resolution.revision, "version": resolution.version, "digest": resolution.digest}
        parts = [{"role": p.role, "version": p.version, "digest": p.digest, "weight": p.weight} for p in resolution.roles]
        row |= {"serves": roles.format_roles(resolution.roles) or resolution.version, "roles": parts}
        rows.append(
            row
            | {
                "at": f"{last.at:%Y-%m-%dT%H:%M:%SZ}",
                "by": last.actor,
                "reason": last.reason,
                "signed": _shown(last, signed(last)),
            }
        )
    return rows


def prune(
    ctx: typer.Context,
    repo: Repo,
    keep_revisions: KeepRevisions = 10,
    keep: Keep = None,
    unpromoted: Annotated[
        bool, typer.Option("--unpromoted", help="Also delete versions that no channel has ever named.")
    ] = False,
    grace_minutes: Grace = 60.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted; delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without confirmation; required in scripts.")] = False,
    json: Json = False,
) -> None:
    """Delete versions that channels no longer use, and their signatures, after a confirmation.

    A channel uses the version that it names, and the versions of its last moves (--keep-revisions). A version that no channel
    has ever named is deleted only with --unpromoted.
    """
    from model_registry.channels import retention as pruning

    store, _ = open_repository(ctx, repo)
    snapshot = pruning.read_repository(store)
    plan = pruning.plan_removal(snapshot, pruning.RetentionRules(keep_revisions, keep or [], unpromoted))
    sizes = pruning.version_sizes(store, plan)
    manifests = pruning.manifests_to_delete(store, plan)
    freed: int | None = 0
    if not dry_run and manifests:
        if not yes:
            _ask(_text(plan, sizes, True, None))
        freed = store.delete(manifests, expect=snapshot.tags, grace_seconds=60 * grace_minutes)
    rows = [{"version": tag, "digest": digest, "size": sizes[tag]} for tag, digest in sorted(plan.versions.items())]
    value = {"dry_run": dry_run, "versions": rows, "history": sorted(plan.history), "manifests": len(manifests), "freed": freed}
    print_result(json, value, _text(plan, sizes, dry_run, freed))


def _ask(text: str) -> None:
    """Ask the user to confirm. Raises BadReference without a terminal, and Refused if the answer is no."""
    if not sys.stdin.isatty():
        message = "prune deletes versions permanently, and there is no terminal to confirm it on"
        raise BadReference(message, "check the result of --dry-run, then add --yes")
    typer.echo(printable(text, lines=True), err=True)
    if not typer.confirm("Delete these versions permanently?", err=True):
        raise Refused("nothing was deleted")


def _text(plan: "Removal", sizes: dict[str, int], dry_run: bool, freed: int | None) -> str:
    outcome = "would be deleted" if dry_run else "deleted"
    rows = [[tag, digests.short(digest), sizes[tag]] for tag, digest in sorted(plan.versions.items())]
    text = format_table(["version", "digest", "bytes"], rows) + "\n" if rows else ""
    text += f"{outcome}: {len(plan.versions)} versions, {len(plan.history)} history entries"
    if dry_run:
        return text
    return text + (f"; {freed} bytes freed" if freed is not None else "; the registry's garbage collection frees the space")
