"""Reads the current state of a channel from its tag and its history."""

from collections.abc import Sequence
from dataclasses import dataclass

from model_registry.channels import roles
from model_registry.channels.history import ChannelMove, decode
from model_registry.errors import NotFound, Refused
from model_registry.oci import tags
from model_registry.stores import resolve_index
from model_registry.stores.base import Store


@dataclass(frozen=True, slots=True)
class ChannelState:
    """The state of a channel before a move.

    Attributes:
        tags: All tags of the repository.
        revision: The newest revision; 0 before the first move.
        digest: The manifest that the channel names; None before the first move.
        version: The version of the champion.
        champion: The manifest digest of the champion.
    """

    tags: Sequence[str]
    revision: int
    digest: str | None
    version: str | None
    champion: str | None = None


def read_state(store: Store, channel: str) -> ChannelState:
    """Read a channel's state once. Raises Refused if `channel` is the tag of a version."""
    all_tags = store.tags()
    if channel in tags.versions(all_tags):
        raise Refused(f"{channel!r} is a version, which never moves", "choose another name for the channel")
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


def read_move(store: Store, channel: str, revision: int) -> ChannelMove:
    """Read a history entry that the store lists.

    Raises:
        Corrupt: The history tag names something else.
        NotFound: The entry was deleted.
    """
    tag = tags.history_tag(channel, revision)
    data = store.manifest(_resolve_listed(store, tag))
    return decode(data, channel, revision, f"the history tag {tag} of {store.repository}")


def _resolve_listed(store: Store, tag: str) -> str:
    """Return the digest of a listed tag. Another replica may show the tag later than the list, so retry."""
    missing = NotFound("")
    for _ in store.settle():
        try:
            return store.resolve(tag).digest
        except NotFound as error:
            missing = error
    raise missing
