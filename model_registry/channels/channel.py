"""Channels: tags that name the version to serve. Only promotions and rollbacks move a channel; each move has a history entry.

The revision of a channel is the number of its newest history entry. It rises with every move, including rollbacks.
"""

# Registries have no compare-and-swap, so two processes that move one channel at the same time may overwrite each other. The
# history entry is written before the tag, and both are read back, so that a lost race is detected and reported. One writer per
# channel prevents such races.

import contextlib
import io
import logging
import math
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from model_registry.channels import roles
from model_registry.channels.history import EVIDENCE_TYPE, ChannelMove, encode, rollback_target, sign
from model_registry.channels.move_request import MoveRequest
from model_registry.channels.move_target import MoveTarget, canary_target, check_complete, require_complete, shadow_target
from model_registry.channels.roles import Role
from model_registry.channels.state import ChannelState, history_id, read_move, read_state
from model_registry.errors import Conflict, Corrupt, Denied, NotFound, Refused, RegistryError, Unreachable
from model_registry.oci import digests, manifest, tags
from model_registry.oci.manifest import Descriptor
from model_registry.signing import bundle
from model_registry.stores import resolve_index
from model_registry.stores.base import Store

log = logging.getLogger(__name__)

MAX_TRIES = 200  # how often a move is planned again because another process moved the channel meanwhile
_EXHAUSTED = object()


@dataclass(frozen=True, slots=True)
class Resolution:
    """The version to which a tag or digest resolves. A channel resolves to its champion, the version that answers events.

    Attributes:
        digest: The manifest digest of the version.
        version: The name of the version, such as 1.4.0.
        revision: The revision of the channel; 0 for a tag that is no channel, and for a digest.
        roles: The roles of all versions that the channel names, the champion first; empty if the tag names a single version.
        history: The id of the channel's history; "" if it is unknown. A channel that is created again gets another id, and
            revisions of different histories cannot be compared.
    """

    digest: str
    version: str
    revision: int
    roles: tuple[Role, ...] = ()
    history: str = field(default="", compare=False)

    @property
    def identity(self) -> str:
        """The digest and the revision as one key, which differs between two promotions of the same version."""
        return f"{self.digest}@{self.revision}"


def resolve(store: Store, tag: str) -> Resolution:
    """Return the version that a tag or a manifest digest names now.

    Raises:
        NotFound: There is no such tag or manifest.
        Refused: The channel names a manifest, but no history entry records a move to this manifest.
        Corrupt: Stored content is damaged.
        Unreachable: The store does not answer.
    """
    is_digest = digests.is_digest(tag)
    digest = tag if is_digest else store.resolve(tag).digest
    parts = roles.parse(store.manifest(digest))
    champion = parts[0].digest if parts else digest
    revisions = tags.revisions(store.tags(), tag)
    for revision in revisions:
        move = read_move(store, tag, revision)
        if move.to_digest == digest:
            return Resolution(champion, move.to_version, revision, parts, move.history or "")
    version = resolve_index.describe_version(store, champion, version="" if is_digest else tag).version
    if revisions:
        hint = f"model-registry promote {store.repository} --to {version} --channel {tag}"
        raise Refused(f"the channel {tag!r} names {digest}, but no history entry records a move to it", hint)
    return Resolution(champion, version, 0, parts)


def promote(
    store: Store,
    channel: str,
    version: str,
    request: MoveRequest,
    *,
    canary: int | None = None,
    shadow: str | None = None,
    pairs: int = 0,
) -> ChannelMove:
    """Move a channel to a version, or add the version as a canary. An earlier canary or shadow of the channel ends.

    If another process moves the channel before this move is written, the function starts again from the channel's new state.

    Args:
        store: The repository.
        channel: The channel's name.
        version: The version's tag.
        request: The actor, reason, time and expectations of the move.
        canary: The percentage of record keys that the version answers as a canary beside the current champion; None makes the
            version the champion.
        shadow: The tag of a version that scores the same events as the new champion. Its scores are not published as answers.
        pairs: The percentage of record keys whose events both the champion and the canary or shadow score, so that the scores
            can be compared. With 0, each scorer uses the percentage in its own settings.

    Raises:
        BadReference: An argument is malformed.
        NotFound: The version, or a part of its content, is missing.
        Refused: `channel` is the tag of a version, or the digest or revision is not the one that `request` expects.
        Conflict: Another process moved the channel at the same time and overwrote this move.
    """

    def choose(state: ChannelState) -> MoveTarget:
        promoted = require_complete(store, state.tags, version)
        if request.expected_digest not in (None, promoted.digest):
            message = f"version {version} of {store.repository} is {promoted.digest}, not {request.expected_digest} as expected"
            raise Refused(message, "other content was pushed under this version; check it with `model-registry inspect`")
        if canary is not None:
            return canary_target(store, channel, state, version, promoted, canary, pairs)
        if shadow is not None:
            candidate = require_complete(store, state.tags, shadow)
            return shadow_target(store, version, promoted, shadow, candidate, pairs)
        return MoveTarget(promoted, version, {version: promoted.digest})

    return _move(store, channel, choose, request)


def rollback(store: Store, channel: str, request: MoveRequest, *, to_revision: int | None = None) -> ChannelMove:
    """Move a channel back to the champion of an earlier revision. The move is a new revision.

    Args:
        store: The repository.
        channel: The channel's name.
        request: The actor, reason, time and expectations of the move.
        to_revision: The revision whose champion is restored; by default the revision that `history.rollback_target` chooses.

    Raises:
        NotFound: The history has no such revision, or content of its version is missing.
        Refused: The channel has had no other champion, or the channel's revision is not the one that `request` expects.
        BadReference, Conflict: In the same cases as `promote`.
    """

    def choose(state: ChannelState) -> MoveTarget:
        moves = history(store, channel)
        restored = rollback_target(moves, state.digest) if to_revision is None else _find_revision(moves, to_revision)
        check_complete(store, restored.champion)
        descriptor = manifest.describe_manifest(store.manifest(restored.champion))
        return MoveTarget(descriptor, restored.to_version, {}, restored.revision)

    return _move(store, channel, choose, request)


def _find_revision(moves: list[ChannelMove], revision: int) -> ChannelMove:
    for move in moves:
        if move.revision == revision:
            return move
    available = ", ".join(str(move.revision) for move in moves) or "none"
    raise NotFound(f"the channel has no revision {revision}", f"the available revisions are: {available}")


def history(store: Store, channel: str, after: int = 0) -> list[ChannelMove]:
    """Return the moves of a channel with a revision above `after`, oldest first; an empty list if there is no such channel."""
    revisions = tags.revisions(store.tags(), channel)
    return [read_move(store, channel, revision) for revision in reversed(revisions) if revision > after]


def iter_completed(store: Store, channel: str, before: int | None = None) -> Iterator[ChannelMove]:
    """Yield the completed moves of a channel, newest first. Each history entry is read when the iterator reaches it.

    A move is completed if it moved the channel's tag to the new manifest. An interrupted move has only a history entry.
    Unreadable entries are skipped with a warning.

    Args:
        store: The repository.
        channel: The channel's name.
        before: Yield only moves with a lower revision than this; None yields all moves.

    Raises:
        Unreachable: The store does not answer.
    """
    newer: ChannelMove | None = None  # the next newer completed move, if it could be read
    for revision in tags.revisions(store.tags(), channel):
        try:
            move = read_move(store, channel, revision)
        except (Corrupt, NotFound) as error:
            log.warning("skipping revision %d of the channel %r: %s", revision, channel, error)
            newer = None
            continue
        if before is not None and revision > before:
            continue
        if newer is not None and move.to_digest != newer.from_digest:
            continue
        newer = move
        if revision != before:
            yield move


def _move(store: Store, channel: str, choose: Callable[[ChannelState], MoveTarget], request: MoveRequest) -> ChannelMove:
    """Write a move of a channel to the target that `choose` returns for the channel's current state.

    If another process moves the channel before this move is written, start again from the new state.
    """
    tags.check_channel(channel)
    request.check()
    pauses = store.visibility_attempts()
    for _ in range(MAX_TRIES):
        state = read_state(store, channel)
        expected = request.expected_revision
        if expected is not None and state.revision < expected and next(pauses, _EXHAUSTED) is not _EXHAUSTED:
            continue  # the caller knows of a move that the store does not show yet
        if expected not in (None, state.revision):
            message = f"the channel {channel!r} is at revision {state.revision}, not {expected} as expected"
            raise Refused(
                message, f"the channel was moved meanwhile: model-registry history {store.repository} --channel {channel}"
            )
        try:
            target = choose(state)
        except (NotFound, Refused):
            if next(pauses, _EXHAUSTED) is _EXHAUSTED:
                raise
            continue  # the store may not show the version, or the last move, yet
        move, entry = _write_entry(store, channel, state, target, request)
        if not _write_tags(store, state, move, entry, target):
            next(pauses, None)
            continue  # plan again from the channel's new state
        _read_back(store, move, entry)
        return move
    raise Conflict(f"other processes continually move the channel {channel!r}", "use one writer per channel, then repeat")


def _write_tags(store: Store, state: ChannelState, move: ChannelMove, entry: Descriptor, target: MoveTarget) -> bool:
    """Write the tag of the history entry, then the channel's tag; return False if another process's move came first.

    Raises:
        Refused, Denied: The store does not allow the channel's tag to move; the history entry is deleted again.
        Conflict: Another process moved the channel back at the same time.
        Unreachable: The store does not answer, or still shows the channel's old target.
    """
    tag = tags.history_tag(move.channel, move.revision)
    expect = {tag: None, move.channel: state.digest, **target.tags}
    try:
        store.move_tags({tag: entry, move.channel: target.descriptor}, expect=expect)
    except Conflict:
        return _names(store, tag, entry.digest)
    except Unreachable as error:
        if not _is_overtaken(store, move, entry.digest):
            raise
        message = f"another process moved the channel {move.channel!r} back while this move was written, and this move is lost"
        raise Conflict(message, "use one writer per channel, then repeat") from error
    except (Refused, Denied):
        _withdraw(store, tag, entry)
        raise
    return True


def _write_entry(
    store: Store, channel: str, state: ChannelState, target: MoveTarget, request: MoveRequest
) -> tuple[ChannelMove, Descriptor]:
    """Store the history entry of a move, with its evidence (a JSON document) and signature, but without the history tag."""
    document = manifest.EMPTY if request.evidence is None else request.evidence
    evidence = manifest.describe_content(manifest.EMPTY_TYPE if request.evidence is None else EVIDENCE_TYPE, document)
    move = ChannelMove(
        channel,
        state.revision + 1,
        request.actor,
        request.reason,
        request.recorded_time,
        state.digest,
        state.version,
        target.descriptor.digest,
        target.version,
        target.roles,
        restores=target.restores,
        evidence=None if request.evidence is None else evidence.digest,
        history=history_id(store, channel, tags.revisions(state.tags, channel)) or secrets.token_hex(8),
    )
    store.push_blob(evidence, io.BytesIO(document))
    signature = None
    if request.key is not None:
        statement = sign(move, store.repository, request.key)
        signature = manifest.describe_content(bundle.MEDIA_TYPE, statement)
        store.push_blob(signature, io.BytesIO(statement))
        move = replace(move, signature=signature.digest)
    return move, store.push_manifest(encode(move, evidence, target.descriptor, signature))


def _names(store: Store, tag: str, digest: str) -> bool:
    try:
        return store.resolve(tag).digest == digest
    except NotFound:
        return False


def _is_overtaken(store: Store, move: ChannelMove, digest: str) -> bool:
    """Return whether another process has moved the channel after this move.

    `digest` is the manifest digest of the history entry that the caller wrote.
    """
    # The caller has written the move, but the store still shows the old target. Either another process has moved the channel
    # back (a history entry has the same or a higher revision), or the store does not show the move yet.
    newest = next(iter(tags.revisions(store.tags(), move.channel)), 0)
    if newest == move.revision:
        return not _names(store, tags.history_tag(move.channel, newest), digest)
    return newest > move.revision


def _withdraw(store: Store, tag: str, entry: Descriptor) -> None:
    """Delete the history entry of a move that the store refused, for example because the channel's tag is immutable.

    `tag` is the history tag of the entry.
    """
    # A store without deletion keeps the entry. This does no harm: the channel never named the move's target, so
    # `history.completed_moves` leaves out the move.
    for _ in store.visibility_attempts():
        with contextlib.suppress(RegistryError):  # a replica may not show the entry, or the current tags, yet
            if _names(store, tag, entry.digest):
                named = {tag: store.resolve(tag).digest for tag in store.tags()}
                store.delete([entry.digest], expect=named, grace_seconds=math.inf)
                return


def _read_back(store: Store, move: ChannelMove, entry: Descriptor) -> None:
    """Wait until the store shows this move or a later one. Raises Conflict if the store shows neither in time."""
    tag = tags.history_tag(move.channel, move.revision)
    listed = False
    for _ in store.visibility_attempts():
        revisions = tags.revisions(store.tags(), move.channel)
        later = max(revisions, default=0) > move.revision
        if _names(store, tag, entry.digest) and (later or _names(store, move.channel, move.to_digest)):
            listed = True
            if move.revision in revisions:  # the next command plans from this list
                return
    if listed:
        return
    hint = f"model-registry history {store.repository} --channel {move.channel} shows it; let one writer move a channel"
    raise Conflict(f"another process moved {move.channel!r} at the same time: the move to {move.to_version} is lost", hint)


def watch(store: Store, name: str, after: int, pause: Callable[[RegistryError | None], None]) -> Iterator[ChannelMove]:
    """Yield every move of a channel after a revision, and keep waiting for further moves.

    Each poll lists the history tags, because the channel's own tag may move and move back between two polls. A channel that
    does not exist yet is polled until it exists.

    Args:
        store: The repository.
        name: The channel's name.
        after: Yield moves with a higher revision than this.
        pause: Called between two polls to wait. Its argument is the transient error of the last poll, or None if that poll
            succeeded.

    Raises:
        RegistryError: An error that is not `transient`; transient errors are passed to `pause`.
    """
    while True:
        failure: RegistryError | None = None
        try:
            for move in history(store, name, after):
                after = move.revision
                yield move
        except NotFound:
            pass
        except RegistryError as error:
            if not error.transient:
                raise
            failure = error
        pause(failure)
