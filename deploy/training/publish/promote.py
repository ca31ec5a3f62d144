"""Move a channel to the version of a run, once, if the champion is still the one that the version was compared with."""

import contextlib
from dataclasses import dataclass
from datetime import datetime

from model_registry.channels import channel as channels
from model_registry.channels import resume_move
from model_registry.channels.channel import Resolution
from model_registry.channels.history import ChannelMove
from model_registry.channels.move_request import MoveRequest
from model_registry.errors import Conflict, NotFound, Refused
from model_registry.oci import tags
from model_registry.signing.keys import PrivateKey
from model_registry.stores.base import Store

ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ComparedChampion:
    """The champion that a version was compared with, and the channel's revision at that time.

    Without a champion, the champion is None and the revision is 0.
    """

    digest: str | None = None
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Promoted:
    """The completed channel move of this run.

    `from_history` is true if an earlier attempt of the run requested the move, so that the channel's history already had it.
    """

    move: ChannelMove
    from_history: bool = False


@dataclass(frozen=True, slots=True)
class Overtaken:
    """The result if another actor moved the channel: the version must be compared with the new champion.

    `by` is the new target of the channel, or None if the channel does not exist.
    """

    by: Resolution | None


def standing(store: Store, channel: str) -> Resolution | None:
    """Return the current target of a channel, or None if the channel does not exist yet.

    Raises:
        Refused: `channel` is the name of a version, or the channel's history has no move to the current target.
        Unreachable: The store is unreachable, or its folder does not exist yet.
    """
    try:
        resolution = channels.resolve(store, channel)
    except NotFound:
        return None
    if not resolution.revision:
        hint = "name a channel: publish.channel, or the scorer's model.tag"
        raise Refused(f"{channel!r} of {store.repository} is the tag of a version, not a channel", hint)
    return resolution


def judged_by(serves: Resolution | None) -> ComparedChampion:
    """Return the target of the channel (`serves`) as the champion to compare a new version with."""
    return ComparedChampion() if serves is None else ComparedChampion(serves.digest, serves.revision)


def reason_of(run: str) -> str:
    """Return the reason that the channel's history records for a move by this training run."""
    return f"run {run}"


def promote_once(
    store: Store,
    channel: str,
    version: str,
    digest: str,
    judged: ComparedChampion,
    run: str,
    actor: str,
    now: datetime,
    key: PrivateKey | None = None,
) -> Promoted | Overtaken:
    """Move a channel to a version, unless the champion has changed since the comparison; sign the move if a key is given.

    `judged` is the champion of the comparison. If an earlier attempt of this run has already written a move to the channel's
    history, that move is completed, and no new move is written.

    Returns:
        The move, or `Overtaken` if the channel was moved since the comparison.

    Raises:
        Refused: `version` does not have the digest `digest`, or `channel` is the name of a version.
        NotFound: The version is incomplete or missing.
        Conflict: Other actors moved the channel at each attempt.
        Unreachable: The store is unreachable.
    """
    for _ in range(ATTEMPTS):
        with contextlib.suppress(Conflict):
            if (own_move := _find_own_move(store, channel, digest, run)) is not None:
                return Promoted(own_move, from_history=True)
            serves = standing(store, channel)
            if judged_by(serves) != judged:
                return Overtaken(serves)
            newest = _newest(store, channel)  # interrupted moves of other processes have revisions too
            request = MoveRequest(actor, reason_of(run), now, digest, newest, key=key)
            try:
                return Promoted(channels.promote(store, channel, version, request))
            except Refused:
                if _newest(store, channel) == newest:
                    raise
    hint = "let one process move a channel, and run again"
    raise Conflict(f"the channel {channel!r} is continually moved by other processes", hint)


def _newest(store: Store, channel: str) -> int:
    """Return the revision of the last move of the channel, completed or not; 0 before the first."""
    return max(tags.revisions(store.tags(), channel), default=0)


def _find_own_move(store: Store, channel: str, digest: str, run: str) -> ChannelMove | None:
    """Return the move of this run from the channel's history, or None if no move of this run took effect.

    If the move was interrupted and is the last entry of the history, this function completes it first. If it was interrupted
    and another move followed, it can no longer take effect. Raises Conflict if the move cannot be completed.
    """
    moves = channels.history(store, channel)
    own_moves = [move for move in moves if move.reason == reason_of(run) and move.champion == digest and move.restores is None]
    for move in own_moves:
        if resume_move.is_completed(store, move):
            return move
    if not own_moves or own_moves[-1] != moves[-1]:
        return None  # the move had no effect, and another move followed
    resume_move.complete(store, own_moves[-1])
    return own_moves[-1]
