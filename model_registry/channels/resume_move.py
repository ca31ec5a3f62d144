"""Completes an interrupted move of a channel.

A move writes its history entry before the channel's tag, and the process may stop in between. Only moves in a registry over
HTTP can be interrupted, because a store in a folder writes both in one step.
"""

from model_registry.channels import channel
from model_registry.channels.history import ChannelMove
from model_registry.errors import Conflict, NotFound
from model_registry.oci import manifest, tags
from model_registry.stores.base import Store


def is_completed(store: Store, move: ChannelMove) -> bool:
    """Return whether the channel names the manifest of a move, or whether a later move started from this manifest.

    Raises:
        Unreachable, Corrupt: The store does not answer, or its history is damaged.
    """
    if _resolve(store, move.channel) == move.to_digest:
        return True
    return any(later.from_digest == move.to_digest for later in channel.history(store, move.channel, after=move.revision))


def complete(store: Store, move: ChannelMove) -> None:
    """Move the channel's tag to the new manifest of `move`, which must be the channel's newest move.

    Raises:
        Conflict: The channel no longer names the manifest from which the move starts, or a newer history entry exists.
        NotFound: The new manifest was deleted.
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
