"""Moves a channel to the version of a run, once, if its champion is still the one that the version was judged against."""

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
class Judged:
    """The champion that a version was judged against, and the channel's revision then: None and 0 where there was none."""

    digest: str | None = None
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Promoted:
    """The move of this run: made now, or found in the history."""

    move: ChannelMove
    found: bool = False


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Somebody else has moved the channel since. The version has to be judged again, against what serves now."""

    by: Resolution | None


def standing(store: Store, channel: str) -> Resolution | None:
    """What a channel serves now; None where it serves nothing yet. Raises Refused: it is a version, or was moved without its
    history; Unreachable, also for a folder that is not there yet."""
    try:
        found = channels.resolve(store, channel)
    except NotFound:
        return None
    if not found.revision:
        hint = "name a channel: publish.channel, or the scorer's model.tag"
        raise Refused(f"{channel!r} of {store.repository} is a version, which never moves", hint)
    return found


def judged_by(serves: Resolution | None) -> Judged:
    """What a version has to be judged against, where the channel serves that."""
    return Judged() if serves is None else Judged(serves.digest, serves.revision)


def reason_of(run: str) -> str:
    """What the history says of a move of this run."""
    return f"run {run}"


def promote_once(
    store: Store,
    channel: str,
    version: str,
    digest: str,
    judged: Judged,
    run: str,
    actor: str,
    now: datetime,
    key: PrivateKey | None = None,
) -> Promoted | Overtaken:
    """Move a channel to a version, and sign the move with a key.

    A move of this run that stands in the history is brought to its end, and not made again.

    Raises Refused where the version is not that digest, or the channel is no channel; NotFound where the version is not there
    as a whole; Conflict where others move the channel all the time; Unreachable.
    """
    for _ in range(ATTEMPTS):
        with contextlib.suppress(Conflict):
            if (own := _own(store, channel, digest, run)) is not None:
                return Promoted(own, found=True)
            serves = standing(store, channel)
            if judged_by(serves) != judged:
                return Overtaken(serves)
            newest = _newest(store, channel)  # moves that others broke off have numbers too, and nothing else
            request = MoveRequest(actor, reason_of(run), now, digest, newest, key=key)
            try:
                return Promoted(channels.promote(store, channel, version, request))
            except Refused:
                if _newest(store, channel) == newest:
                    raise
    hint = "one writer a channel is the rule; run again"
    raise Conflict(f"the channel {channel!r} is moved by others all the time", hint)


def _newest(store: Store, channel: str) -> int:
    """The revision of the channel's last move, whether it was made to its end or not; 0 before the first."""
    return max(tags.revisions(store.tags(), channel), default=0)


def _own(store: Store, channel: str, digest: str, run: str) -> ChannelMove | None:
    """The move of this run, brought to its end. Raises Conflict where that was not possible just now."""
    moves = channels.history(store, channel)
    own = [move for move in moves if move.reason == reason_of(run) and move.champion == digest and move.restores is None]
    for move in own:
        if resume_move.is_completed(store, move):
            return move
    if not own or own[-1] != moves[-1]:
        return None  # nothing of it ever took place: others have moved since
    resume_move.complete(store, own[-1])
    return own[-1]
