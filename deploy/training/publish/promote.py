"""Move a channel (a named pointer to a version) to the version of a run, at most once.

The channel is moved only if the champion has not changed since the comparison.
"""

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

    If there was no champion, `digest` is None and `revision` is 0.
    """

    digest: str | None = None
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Promoted:
    """The completed channel move of this run.

    `from_history` is true if an earlier attempt of the run had already written the move to the channel's history.
    """

    move: ChannelMove
    from_history: bool = False


@dataclass(frozen=True, slots=True)
class Overtaken:
    """The result if another actor has moved the channel since the comparison.

    `by` is the new target of the channel, or None if the channel does not exist. The version must be compared with this target.
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
    """Return the target of a channel as the champion of a comparison; None stands for a channel without a target."""
    return ComparedChampion() if serves is None else ComparedChampion(serves.digest, serves.revision)


def reason_of(run: str) -> str:
    """Return the reason to record in the channel's history for a move by this training run."""
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
    """Move a channel to a version, unless the champion has changed since the comparison.

    If an earlier attempt of this run has written the move to the channel's history, that move is completed, and no new move is
    written.

    Args:
        store: The repository of the model.
        channel: The channel to move.
        version: The tag of the version.
        digest: The digest that the version must have.
        judged: The champion with which the run compared the version.
        run: The id of the run, which is recorded as the reason of the move.
        actor: The actor to record in the channel's history.
        now: The time to record in the channel's history.
        key: The key that signs the move; None for an unsigned move.

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
    """Return the revision of the channel's last move, even if the move is not completed; 0 if there is none."""
    return max(tags.revisions(store.tags(), channel), default=0)


def _find_own_move(store: Store, channel: str, digest: str, run: str) -> ChannelMove | None:
    """Return the move that an earlier attempt of this run made, or None if it made none.

    An interrupted move is completed first, unless another move followed it. Raises Conflict if it cannot be completed.
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
