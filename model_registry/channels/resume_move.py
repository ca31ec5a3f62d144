"""Completes an interrupted move: the history entry is written before the tag, and the writer may stop in between.

A folder writes both in one step; a registry over HTTP does not.
"""

from model_registry.channels import channel
from model_registry.channels.history import ChannelMove
from model_registry.errors import Conflict, NotFound
from model_registry.oci import manifest, tags
from model_registry.stores.base import Store


def is_completed(store: Store, move: ChannelMove) -> bool:
    """Return whether the channel names the target of a move, or moved on from it.

    Raises:
        Unreachable, Corrupt: The store does not answer, or its history is damaged.
    """
    if _resolve(store, move.channel) == move.to_digest:
        return True
    return any(later.from_digest == move.to_digest for later in channel.history(store, move.channel, after=move.revision))


def complete(store: Store, move: ChannelMove) -> None:
    """Point the channel at the target of its newest history entry.

    Raises:
        Conflict: The channel is no longer where the move began, or a newer entry exists.
        NotFound: The target was deleted.
    """
    if tags.revisions(store.tags(), move.channel)[:1] != [move.revision]:
        raise Conflict(
            f"the channel {move.channel!r} was moved after revision {move.revision}", "read its history, then repeat"
        )
    target = manifest.describe_manifest(store.manifest(move.to_digest))
    expect = {move.channel: move.from_digest, tags.history_tag(move.channel, move.revision + 1): None}
    store.move_tags({move.channel: target}, expect=expect)


def _resolve(store: Store, tag: str) -> str | None:
    try:
        return store.resolve(tag).digest
    except NotFound:
        return None
