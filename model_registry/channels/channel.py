"""Channels: tags that move between versions by promotion only, and whose every move stands in a history that only grows.

The *revision* of a channel is the number of its newest history entry. It rises with every move, a move back included, so that
"newer" always means a higher revision, never a higher version.

Registries know no compare-and-swap: two people who move one channel at the same time may overwrite each other. The history
entry is written before the tag and both are read back, so that a lost race is found and said; one writer a channel (one
pipeline, one person at a time) is the rule that keeps it from happening.
"""

import contextlib
import io
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from model_registry.channels import roles
from model_registry.channels.history import EVIDENCE_TYPE, ChannelMove, encode, rollback_target, sign
from model_registry.channels.move_target import MoveTarget, canary_target, check_complete, require_complete, shadow_target
from model_registry.channels.roles import Role
from model_registry.channels.state import ChannelState, read_move, read_state
from model_registry.errors import BadReference, Conflict, Corrupt, Denied, NotFound, Refused, RegistryError
from model_registry.oci import digests, manifest, tags
from model_registry.oci.manifest import Descriptor
from model_registry.signing import bundle
from model_registry.signing.keys import PrivateKey
from model_registry.stores import resolve_index
from model_registry.stores.base import Store

log = logging.getLogger(__name__)

MAX_TEXT = 4096  # characters of an actor or a reason
_OVER = object()
MAX_TRIES = 200  # of planning a move again because somebody else moved the channel in between


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a tag names: a version's manifest digest, the version in it, and the channel's revision (0 where it is no channel).

    Where a channel names several versions by role, it is the champion; `roles` has them all, the champion first.
    """

    digest: str
    version: str
    revision: int
    roles: tuple[Role, ...] = ()

    @property
    def identity(self) -> str:
        """A version under one revision of a channel: promoted again, it is another."""
        return f"{self.digest}@{self.revision}"


@dataclass(frozen=True, slots=True)
class Expected:
    """What must hold for a move: the digest of the version, and the revision that the channel is at. None: anything."""

    digest: str | None = None
    revision: int | None = None


def resolve(store: Store, tag: str) -> Resolution:
    """Look once at a tag, or at the manifest with this digest. Raises NotFound, Corrupt, Unreachable; Refused where a channel
    was moved without its history."""
    pinned = digests.is_digest(tag)
    digest = tag if pinned else store.resolve(tag).digest
    parts = roles.parse(store.manifest(digest))
    champion = parts[0].digest if parts else digest
    revisions = tags.revisions(store.tags(), tag)
    for revision in revisions:
        move = read_move(store, tag, revision)
        if move.to_digest == digest:
            return Resolution(champion, move.to_version, revision, parts)
    version = resolve_index.describe_version(store, champion, version="" if pinned else tag).version
    if revisions:
        hint = f"model-registry promote {store.repository} --to {version} --channel {tag}"
        raise Refused(f"the channel {tag!r} names {digest}, to which no entry of its history moved it", hint)
    return Resolution(champion, version, 0, parts)


def promote(
    store: Store,
    channel: str,
    version: str,
    *,
    actor: str,
    reason: str,
    now: datetime,
    expected: Expected = Expected(),
    canary: int | None = None,
    shadow: str | None = None,
    pairs: int = 0,
    evidence: bytes | None = None,
    key: PrivateKey | None = None,
) -> ChannelMove:
    """Move a channel to a version, and write the history entry before it. Several at once take turns. With `canary`, in
    percent, the version answers that share of the keys, and the champion stays; with `shadow`, that version scores unseen
    beside it. Without them, a canary or a shadow that there was is over. `pairs` is the percent of the keys that both versions
    are to score, 0: as whoever runs the shadow has set it. `evidence` is a JSON document that is kept with the history entry.
    `key` signs the move.

    Raises BadReference; NotFound where the version, or some of its content, is not there; Refused where `channel` is a version
    or things are not as `expected`; Conflict where somebody else moved the channel at the same time and the move was lost.
    """
    if expected.digest is not None and not digests.is_digest(expected.digest):
        raise BadReference(f"{expected.digest!r} is no digest", "a digest is sha256: and 64 hexadecimal digits")

    def target(standing: ChannelState) -> MoveTarget:
        found = require_complete(store, standing.there, version)
        if expected.digest not in (None, found.digest):
            message = f"version {version} of {store.repository} is {found.digest}, not {expected.digest} as expected"
            raise Refused(message, "somebody pushed other content under this version; look at model-registry inspect")
        if canary is not None:
            return canary_target(store, channel, standing, version, found, canary, pairs)
        if shadow is not None:
            return shadow_target(store, version, found, shadow, require_complete(store, standing.there, shadow), pairs)
        return MoveTarget(found, version, {version: found.digest})

    return _move(store, channel, target, actor=actor, reason=reason, now=now, expected=expected, evidence=evidence, key=key)


def rollback(
    store: Store,
    channel: str,
    *,
    actor: str,
    reason: str,
    now: datetime,
    to_revision: int | None = None,
    expected: Expected = Expected(),
    evidence: bytes | None = None,
    key: PrivateKey | None = None,
) -> ChannelMove:
    """Move a channel back to the champion of a revision, by default of the one before the current: a new, higher revision.

    Raises as `promote` does; NotFound for a revision that is not in the history, Refused where there is none to go back to.
    """

    def target(standing: ChannelState) -> MoveTarget:
        iter_completed = history(store, channel)
        at = next((move for move in iter_completed if move.revision == to_revision), None)
        if to_revision is None:
            at = rollback_target(iter_completed, standing.digest)
        if at is None:
            known = ", ".join(str(move.revision) for move in iter_completed) or "none"
            raise NotFound(f"the channel {channel!r} has no revision {to_revision}", f"the revisions there are: {known}")
        check_complete(store, at.champion)
        return MoveTarget(manifest.describe_manifest(store.manifest(at.champion)), at.to_version, {}, at.revision)

    return _move(store, channel, target, actor=actor, reason=reason, now=now, expected=expected, evidence=evidence, key=key)


def history(store: Store, channel: str, after: int = 0) -> list[ChannelMove]:
    """The moves of a channel behind revision `after`, oldest first; empty where the tag is no channel."""
    revisions = tags.revisions(store.tags(), channel)
    return [read_move(store, channel, revision) for revision in reversed(revisions) if revision > after]


def iter_completed(store: Store, channel: str, rollback_target: int | None = None) -> Iterator[ChannelMove]:
    """The moves before a revision (default: all) that took place, newest first, each read when it is asked for.

    A move that was interrupted before the tag was moved did not take place. An entry that cannot be read is left out. Raises
    what the store raises for its tags, and Unreachable.
    """
    follows: ChannelMove | None = None  # the next newer move that took place, where it could be read
    for revision in tags.revisions(store.tags(), channel):
        try:
            move = read_move(store, channel, revision)
        except (Corrupt, NotFound) as error:
            log.warning("revision %d of the channel %r is left out: %s", revision, channel, error)
            follows = None
            continue
        if rollback_target is not None and revision > rollback_target:
            continue
        if follows is not None and move.to_digest != follows.from_digest:
            continue
        follows = move
        if revision != rollback_target:
            yield move


def _move(
    store: Store,
    channel: str,
    choose: Callable[[ChannelState], MoveTarget],
    *,
    actor: str,
    reason: str,
    now: datetime,
    expected: Expected,
    evidence: bytes | None,
    key: PrivateKey | None,
) -> ChannelMove:
    """Plan and write, until nobody else has moved the channel in between."""
    tags.check_channel(channel)
    _check_texts(actor=actor, reason=reason)
    at = now.astimezone(UTC).replace(microsecond=now.microsecond // 1_000 * 1_000)  # as the history has it
    document = manifest.EMPTY if evidence is None else evidence
    told = manifest.describe_content(manifest.EMPTY_TYPE if evidence is None else EVIDENCE_TYPE, document)
    pauses = store.settle()
    for _ in range(MAX_TRIES):
        standing = read_state(store, channel)
        if expected.revision is not None and standing.revision < expected.revision and next(pauses, _OVER) is not _OVER:
            continue  # the caller has seen a move that the store does not show yet
        if expected.revision not in (None, standing.revision):
            message = f"the channel {channel!r} is at revision {standing.revision}, not {expected.revision} as expected"
            raise Refused(message, f"somebody moved it: model-registry history {store.repository} --channel {channel}")
        try:
            to = choose(standing)
        except (NotFound, Refused):
            if next(pauses, _OVER) is _OVER:
                raise
            continue  # the version, or the last move, may not be shown yet
        move = ChannelMove(
            channel, standing.revision + 1, actor, reason, at, standing.digest, standing.version,
            to.descriptor.digest, to.version, to.roles, restores=to.restores,
            evidence=None if evidence is None else told.digest,
        )  # fmt: skip
        store.push_blob(told, io.BytesIO(document))
        signature = None
        if key is not None:
            statement = sign(move, store.repository, key)
            signature = manifest.describe_content(bundle.MEDIA_TYPE, statement)
            store.push_blob(signature, io.BytesIO(statement))
            move = replace(move, signature=signature.digest)
        entry = store.push_manifest(encode(move, told, to.descriptor, signature))
        tag = tags.history_tag(channel, move.revision)
        try:
            expect = {tag: None, channel: standing.digest, **to.tags}
            store.move_tags({tag: entry, channel: to.descriptor}, expect=expect)
        except Conflict:
            if not _names(store, tag, entry.digest):
                next(pauses, None)
                continue  # nothing of ours was written: plan again from where the channel is now
        except (Refused, Denied):
            _withdraw(store, tag, entry)
            raise
        _read_back(store, move, entry)
        return move
    raise Conflict(f"the channel {channel!r} is moved by others all the time", "one writer a channel; then repeat")


def _check_texts(**texts: str) -> None:
    for what, text in texts.items():
        if len(text) > MAX_TEXT:
            raise BadReference(f"a {what} of {len(text)} characters", f"write at most {MAX_TEXT}")


def _names(store: Store, tag: str, digest: str) -> bool:
    try:
        return store.resolve(tag).digest == digest
    except NotFound:
        return False


def _withdraw(store: Store, tag: str, entry: Descriptor) -> None:
    """Delete the history entry of a move that the store refused (a tag that must not move, say): it was not made.

    A store that deletes nothing keeps the entry; `history.made` recognises it by the channel, which did not follow.
    """
    for _ in store.settle():
        with contextlib.suppress(RegistryError):  # not every replica may show the entry, or all tags as they are
            if _names(store, tag, entry.digest):
                named = {each: store.resolve(each).digest for each in store.tags()}
                store.delete([entry.digest], expect=named, grace_seconds=math.inf)
                return


def _read_back(store: Store, move: ChannelMove, entry: Descriptor) -> None:
    """Wait until the store shows the move, or a later one that was made after it. Raises Conflict where it does not."""
    tag, listed = tags.history_tag(move.channel, move.revision), False
    for _ in store.settle():
        revisions = tags.revisions(store.tags(), move.channel)
        later = max(revisions, default=0) > move.revision
        if _names(store, tag, entry.digest) and (later or _names(store, move.channel, move.to_digest)):
            listed = True
            if move.revision in revisions:  # the next command plans by this list
                return
    if listed:
        return
    hint = f"model-registry history {store.repository} --channel {move.channel} shows who; one writer a channel is the rule"
    raise Conflict(f"somebody else moved {move.channel!r} at the same time: the move to {move.to_version} is lost", hint)


def watch(store: Store, name: str, after: int, pause: Callable[[RegistryError | None], None]) -> Iterator[ChannelMove]:
    """Every move behind revision `after`, for ever. A round without one costs one question to the store, for its tags: the
    channel's own may be moved and moved back between two looks.

    `pause` is called between two looks, with the error where the store did not answer. A channel that is not there yet may
    come. Raises what is not `transient`.
    """
    while True:
        failed: RegistryError | None = None
        try:
            for move in history(store, name, after):
                after = move.revision
                yield move
        except NotFound:
            pass
        except RegistryError as error:
            if not error.transient:
                raise
            failed = error
        pause(failed)
