"""Ends a move that was broken off: its history entry is written before the tag is moved, and whoever moves may die in between.

A folder does both in one step; a registry over HTTP does not.
"""

from model_registry.channels import channel
from model_registry.channels.history import ChannelMove
from model_registry.errors import Conflict, NotFound
from model_registry.oci import manifest, tags
from model_registry.stores.base import Store


def is_completed(store: Store, move: ChannelMove) -> bool:
    """Whether a move of the history was made to its end, as far as can be known: the channel names what it was moved to, or was
    moved on from there. Raises Unreachable, Corrupt."""
    later = channel.history(store, move.channel, after=move.revision)
    return _named(store, move.channel) == move.to_digest or any(each.from_digest == move.to_digest for each in later)


def complete(store: Store, move: ChannelMove) -> None:
    """Point the channel at what the newest entry of its history says. Raises Conflict where the channel is no longer where that
    move began, or has been moved since; NotFound where what it was moved to is gone."""
    if tags.revisions(store.tags(), move.channel)[:1] != [move.revision]:
        raise Conflict(f"the channel {move.channel!r} was moved after revision {move.revision}", "look again and repeat")
    target = manifest.describe_manifest(store.manifest(move.to_digest))
    expect = {move.channel: move.from_digest, tags.history_tag(move.channel, move.revision + 1): None}
    store.move_tags({move.channel: target}, expect=expect)


def _named(store: Store, name: str) -> str | None:
    try:
        return store.resolve(name).digest
    except NotFound:
        return None
