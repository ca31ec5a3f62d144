"""Where a channel stands: what it names, at which revision, as its tag and its history say."""

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
    """`there` are all tags. `digest` is what the channel names, None where it is none yet; `champion` the one that serves."""

    there: Sequence[str]
    revision: int
    digest: str | None
    version: str | None
    champion: str | None = None


def read_state(store: Store, channel: str) -> ChannelState:
    """Look once. Raises Refused where `channel` is a version."""
    there = store.tags()
    if channel in tags.versions(there):
        raise Refused(f"{channel!r} is a version, which never moves", "choose another name for the channel")
    revisions = tags.revisions(there, channel)
    revision = revisions[0] if revisions else 0
    if channel not in there:
        return ChannelState(there, revision, None, None)
    digest = _listed_tag(store, channel)
    parts = roles.parse(store.manifest(digest))
    moved = (read_move(store, channel, number) for number in revisions)
    version = next((move.to_version for move in moved if move.to_digest == digest), None)
    champion = parts[0].digest if parts else digest
    return ChannelState(there, revision, digest, version or resolve_index.describe_version(store, champion).version, champion)


def read_move(store: Store, channel: str, revision: int) -> ChannelMove:
    """One history entry that the store lists. Raises Corrupt where the tag names something else, NotFound where it is gone."""
    tag = tags.history_tag(channel, revision)
    data = store.manifest(_listed_tag(store, tag))
    return decode(data, channel, revision, f"the history tag {tag} of {store.repository}")


def _listed_tag(store: Store, tag: str) -> str:
    """Return what a listed tag names. The list may be newer than what another replica shows: that is waited for."""
    missing = NotFound("")
    for _ in store.settle():
        try:
            return store.resolve(tag).digest
        except NotFound as error:
            missing = error
    raise missing
