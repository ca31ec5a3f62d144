"""The verbs that move channels, and those that show their moves: `promote`, `rollback`, `history`, `watch`."""

from typing import Annotated

import typer

from model_registry.commands.options import Access, Channel, Json, Kafka, KafkaConfig, Reason, Repo, StatusTopic

To = Annotated[str, typer.Option("--to", metavar="VERSION", help="The version that is to answer.", show_default=False)]
Canary = Annotated[list[str] | None, typer.Option(metavar="VERSION=PERCENT", help="Refused: no scorer acts on it yet.")]
Shadow = Annotated[list[str] | None, typer.Option(metavar="VERSION", help="Refused: no scorer acts on it yet.")]
ExpectDigest = Annotated[
    str | None, typer.Option(metavar="DIGEST", help="Refuse where the version is another one than was tested.")
]
ExpectRevision = Annotated[
    int | None, typer.Option(metavar="N", help="Refuse where the channel is at another revision: somebody moved it.", min=0)
]
Wait = Annotated[bool, typer.Option("--wait", help="Until every scorer has flipped; exit code 3 refused, 1 not in time.")]
WaitSeconds = Annotated[float, typer.Option(help="How long --wait waits.", min=0.1)]
ToRevision = Annotated[int | None, typer.Option(metavar="N", help="Default: what was served before the current one.", min=1)]
Interval = Annotated[float, typer.Option(help="Seconds between two looks.", min=0.05)]
Count = Annotated[int | None, typer.Option(help="End after so many moves.", min=1)]
Since = Annotated[int | None, typer.Option(metavar="N", help="Begin behind this revision; default: with the next move.", min=0)]

WAIT_SECONDS = 120.0


def promote(
    access: Access,
    repo: Repo,
    to: To,
    channel: Channel = "prod",
    reason: Reason = "",
    canary: Canary = None,
    shadow: Shadow = None,
    expect_digest: ExpectDigest = None,
    expect_revision: ExpectRevision = None,
    wait: Wait = False,
    wait_seconds: WaitSeconds = WAIT_SECONDS,
    kafka: Kafka = None,
    kafka_config: KafkaConfig = None,
    status_topic: StatusTopic = None,
    json: Json = False,
) -> None:
    """Point a channel at a version. Every move has a revision, one higher than the last. --kafka tells the scorers at once."""
    from datetime import UTC, datetime

    from model_registry.channels import channel as channels
    from model_registry.commands import announce, options
    from model_registry.errors import BadReference

    if canary or shadow:
        hint = "leave it out, or promote that version to a channel of its own (--channel canary) for a scorer of its own"
        raise BadReference(f"--{'canary' if canary else 'shadow'}: no scorer acts on roles yet, so nothing was moved", hint)
    store, target = access.open(repo)
    expected = channels.Expected(expect_digest, expect_revision)
    audience = announce.Audience(
        kafka, kafka_config, status_topic or f"{target.name}.status", wait_seconds if wait else None, access.timeout
    )
    announce.carry_out(
        json,
        audience,
        store.repository,
        lambda: channels.promote(
            store, channel, to, actor=options.actor(), reason=reason, now=datetime.now(UTC), expected=expected
        ),
    )


def rollback(
    access: Access,
    repo: Repo,
    channel: Channel = "prod",
    to_revision: ToRevision = None,
    reason: Reason = "",
    expect_revision: ExpectRevision = None,
    wait: Wait = False,
    wait_seconds: WaitSeconds = WAIT_SECONDS,
    kafka: Kafka = None,
    kafka_config: KafkaConfig = None,
    status_topic: StatusTopic = None,
    json: Json = False,
) -> None:
    """Point a channel at what it served before, as a new revision. A second rollback goes one step further back."""
    from datetime import UTC, datetime

    from model_registry.channels import channel as channels
    from model_registry.commands import announce, options

    store, target = access.open(repo)
    audience = announce.Audience(
        kafka, kafka_config, status_topic or f"{target.name}.status", wait_seconds if wait else None, access.timeout
    )
    announce.carry_out(
        json,
        audience,
        store.repository,
        lambda: channels.rollback(
            store, channel, actor=options.actor(), reason=reason, now=datetime.now(UTC),
            to_revision=to_revision, expected=channels.Expected(revision=expect_revision),
        ),
    )  # fmt: skip


def history(
    access: Access,
    repo: Repo,
    channel: Channel = "prod",
    json: Json = False,
) -> None:
    """Show every move of a channel, the newest last."""
    from model_registry.channels import channel as channels
    from model_registry.channels import roles
    from model_registry.commands import output
    from model_registry.errors import NotFound

    store, _ = access.open(repo)
    moves = channels.history(store, channel)
    if not moves:
        raise NotFound(f"{store.repository} has no channel {channel!r}", f"model-registry promote {repo} --to VERSION makes it")
    rows = []
    for m in moves:
        note = f"{m.reason} (back to revision {m.restores})".strip() if m.restores else m.reason
        to = roles.shown(m.roles) or m.to_version
        rows.append([m.revision, f"{m.at:%Y-%m-%d %H:%M:%S}Z", m.from_version or "-", to, m.actor, note])
    table = output.table(["revision", "at", "from", "to", "actor", "reason"], rows)
    output.show(json, {"channel": channel, "moves": [output.move(move) for move in moves]}, table)


def watch(
    access: Access,
    repo: Repo,
    channel: Channel = "prod",
    since: Since = None,
    count: Count = None,
    interval: Interval = 2.0,
    json: Json = False,
) -> None:
    """Print a channel's moves as they come, with --json one document a line, until Ctrl-C."""
    import time
    from itertools import islice

    from model_registry.channels import watch
    from model_registry.commands import output
    from model_registry.errors import RegistryError
    from model_registry.oci import tags

    store, _ = access.open(repo)
    after = max(tags.revisions(store.tags(), channel), default=0) if since is None else since
    output.talk(f"watching {channel!r} of {store.repository} behind revision {after}")

    def pause(failed: RegistryError | None) -> None:
        if failed is not None:
            output.talk(f"warning: {failed}; going on")
        time.sleep(interval)

    for move in islice(watch.moves(store, channel, after, pause), count):
        if json:
            output.show_line(output.move(move))
        else:
            output.show_text(f"{move.at:%Y-%m-%d %H:%M:%S}Z {output.move_line(move)} by {move.actor} {move.reason}".rstrip())
