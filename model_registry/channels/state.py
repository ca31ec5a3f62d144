"""Reads the current state of a channel from its tag and its history."""

from collections.abc import Sequence
from dataclasses import dataclass

from model_registry.channels import roles
from model_registry.channels.history import ChannelMove, decode
from model_registry.errors import Corrupt, NotFound, Refused
from model_registry.oci import tags
from model_registry.stores import resolve_index
from model_registry.stores.base import Store


@dataclass(frozen=True, slots=True)
class ChannelState:
    """The current state of a channel, from which its next move starts.

    Attributes:
        tags: All tags of the repository.
        revision: The revision of the newest history entry; 0 if there is none.
        digest: The digest of the manifest that the channel names; None if the channel has no tag.
        version: The version of the champion; None if the channel has no tag.
        champion: The manifest digest of the champion; None if the channel has no tag.
    """

    tags: Sequence[str]
    revision: int
    digest: str | None
    version: str | None
    champion: str | None = None


def read_state(store: Store, channel: str) -> ChannelState:
    """Read the current state of a channel. Raises Refused if `channel` is the tag of a version."""
    all_tags = store.tags()
    if channel in tags.versions(all_tags):
        raise Refused(f"{channel!r} is the tag of a version, not a channel", "choose another name for the channel")
    revisions = tags.revisions(all_tags, channel)
    revision = revisions[0] if revisions else 0
    if channel not in all_tags:
        return ChannelState(all_tags, revision, None, None)
    digest = _resolve_listed(store, channel)
    parts = roles.parse(store.manifest(digest))
    champion = parts[0].digest if parts else digest
    moves = (read_move(store, channel, number) for number in revisions)
    version = next((move.to_version for move in moves if move.to_digest == digest), None)
    if not version:
        version = resolve_index.describe_version(store, champion).version
    return ChannelState(all_tags, revision, digest, version, champion)


def history_id(store: Store, channel: str, revisions: Sequence[int]) -> str | None:
    """Return the id of a channel's history; None if no readable entry has an id.

    `revisions` are the revisions of the history entries, the newest first.
    """
    # The id is read from the newest readable entry that has one. Newer entries may have no id, because an earlier release wrote
    # them.
    for revision in revisions:
        try:
            move = read_move(store, channel, revision)
        except (Corrupt, NotFound):
            continue
        if move.history is not None:
            return move.history
    return None


def read_move(store: Store, channel: str, revision: int) -> ChannelMove:
    """Read the move with this revision. The move's history tag must be in the store's list of tags.

    Raises:
        Corrupt: The history tag names a manifest that is not this history entry.
        NotFound: The history entry was deleted.
    """
    tag = tags.history_tag(channel, revision)
    data = store.manifest(_resolve_listed(store, tag))
    return decode(data, channel, revision, f"the history tag {tag} of {store.repository}")


def _resolve_listed(store: Store, tag: str) -> str:
    """Return the digest that a tag from the store's list of tags names."""
    # If the store does not find the tag, the request is repeated: a replica of a registry may not show a listed tag yet.
    missing = NotFound("")
    for _ in store.visibility_attempts():
        try:
            return store.resolve(tag).digest
        except NotFound as error:
            missing = error
    raise missing
