"""Channels: tags that move between versions by promotion only, and whose every move stands in a history that only grows.

The *revision* of a channel is the number of its newest history entry. It rises with every move, a move back included, so that
"newer" always means a higher revision, never a higher version.
"""

import io
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from model_registry import digest as digests
from model_registry import manifest, tags
from model_registry.errors import BadReference, Conflict, Corrupt, NotFound, Refused
from model_registry.manifest import Descriptor
from model_registry.stores import Store

HISTORY_TYPE = "application/vnd.scorestream.promotion.v1+json"
NOTE = "io.scorestream.promotion."
MAX_TEXT = 4096  # characters of an actor or a reason
_EMPTY = b"{}"  # OCI image-spec, "Guidance for an empty descriptor"


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a tag names: a manifest's digest, the version in it, and the channel's revision (0 where the tag is no channel)."""

    digest: str
    version: str
    revision: int


@dataclass(frozen=True, slots=True)
class Move:
    """One move of a channel. `from_*` is None for the first one; `at` is in UTC."""

    channel: str
    revision: int
    actor: str
    reason: str
    at: datetime
    from_digest: str | None
    from_version: str | None
    to_digest: str
    to_version: str


def resolve(store: Store, tag: str) -> Resolution:
    """Look at a tag once. Raises NotFound, Corrupt, Unreachable; Refused where a channel was moved without its history."""
    digest = store.resolve(tag).digest
    version = manifest.parse_version(store.manifest(digest)).version
    revisions = tags.revisions(store.tags(), tag)
    for revision in revisions:
        if _read(store, tag, revision).to_digest == digest:
            return Resolution(digest, version, revision)
    if revisions:
        hint = f"model-registry promote {store.repository} --to {version} --channel {tag}"
        raise Refused(f"the channel {tag!r} names {digest}, to which no entry of its history moved it", hint)
    return Resolution(digest, version, 0)


def promote(store: Store, channel: str, version: str, *, actor: str, reason: str, now: datetime) -> Move:
    """Move a channel to a version, and write the history entry in the same step. Several at once take turns.

    Raises BadReference; NotFound where the version, or some of its content, is not there; Refused where `version` is no
    version, or `channel` is one.
    """
    tags.check_channel(channel)
    for what, text in (("actor", actor), ("reason", reason)):
        if len(text) > MAX_TEXT:
            raise BadReference(f"a {what} of {len(text)} characters", f"write at most {MAX_TEXT}")
    empty = Descriptor(media_type=manifest.EMPTY_TYPE, digest=digests.of_bytes(_EMPTY), size=len(_EMPTY))
    while True:
        target, move, current = _plan(store, channel, version, actor, reason, now)
        store.push_blob(empty, io.BytesIO(_EMPTY))
        entry = store.push_manifest(manifest.build(HISTORY_TYPE, empty, (empty,), _annotations(move), subject=target))
        at = tags.history_tag(channel, move.revision)
        try:
            store.move_tags({at: entry, channel: target}, expect={at: None, channel: current, version: target.digest})
        except Conflict:
            continue  # somebody else moved the channel: plan again from where it is now
        return move


def history(store: Store, channel: str) -> list[Move]:
    """All moves of a channel, oldest first; empty where the tag is no channel."""
    return [_read(store, channel, revision) for revision in reversed(tags.revisions(store.tags(), channel))]


def _plan(
    store: Store, channel: str, version: str, actor: str, reason: str, now: datetime
) -> tuple[Descriptor, Move, str | None]:
    """(the version, the move, the digest that the channel has now)."""
    there = store.tags()
    if version not in tags.versions(there):
        known = ", ".join(tags.versions(there)) or "none"
        raise NotFound(f"{store.repository} has no version {version!r}", f"the versions there are: {known}")
    revisions = tags.revisions(there, channel)
    if channel in tags.versions(there):
        raise Refused(f"{channel!r} is a version, which never moves", "choose another name for the channel")
    target = store.resolve(version)
    found = manifest.parse_version(store.manifest(target.digest))
    if missing := [content.digest for content in found.blobs if not store.has_blob(content.digest)]:
        raise NotFound(f"version {version} lacks {missing[0]}", "push the version again")
    current = store.resolve(channel).digest if channel in there else None
    before = manifest.parse_version(store.manifest(current)).version if current else None
    revision = (revisions[0] if revisions else 0) + 1
    move = Move(channel, revision, actor, reason, now.astimezone(UTC), current, before, target.digest, found.version)
    return target, move, current


def _annotations(move: Move) -> dict[str, str]:
    notes: dict[str, Any] = {
        "channel": move.channel,
        "revision": move.revision,
        "actor": move.actor,
        "reason": move.reason,
        "at": move.at.isoformat(timespec="milliseconds"),
        "from": move.from_digest,
        "from-version": move.from_version,
        "to": move.to_digest,
        "to-version": move.to_version,
    }
    return {NOTE + key: str(value) for key, value in notes.items() if value is not None}


def _read(store: Store, channel: str, revision: int) -> Move:
    """One history entry. Raises Corrupt where the tag names something else."""
    tag = tags.history_tag(channel, revision)
    parsed = manifest.parse(store.manifest(store.resolve(tag).digest))
    note = {key.removeprefix(NOTE): value for key, value in parsed.annotations.items() if key.startswith(NOTE)}
    try:
        move = Move(
            note["channel"],
            int(note["revision"]),
            note["actor"],
            note["reason"],
            datetime.fromisoformat(note["at"]).astimezone(UTC),
            note.get("from"),
            note.get("from-version"),
            note["to"],
            note["to-version"],
        )
    except (KeyError, ValueError) as error:
        raise Corrupt(f"the history tag {tag} of {store.repository} does not read: {error!r}") from None
    if parsed.artifact_type != HISTORY_TYPE or (move.channel, move.revision) != (channel, revision):
        raise Corrupt(f"the history tag {tag} of {store.repository} names another entry")
    return move
