"""Builds the target of a move: the manifest of one version, or an index of a champion and its canary or shadow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from model_registry.channels import roles
from model_registry.channels.roles import Role
from model_registry.channels.state import ChannelState
from model_registry.errors import NotFound, Refused
from model_registry.oci import manifest, tags
from model_registry.oci.manifest import Descriptor
from model_registry.stores import resolve_index
from model_registry.stores.base import Store


@dataclass(frozen=True, slots=True)
class MoveTarget:
    """The manifest that a channel will name after a move.

    Attributes:
        descriptor: The descriptor of a version's manifest, or of an index of `roles`.
        version: The version; for an index, the champion's version.
        tags: The version tags from which the target was built, with their digests; a move fails if one of the tags changes.
        restores: The revision whose champion a rollback restores; None for a promotion.
        roles: The roles in the index; empty for a single version.
    """

    descriptor: Descriptor
    version: str
    tags: Mapping[str, str]
    restores: int | None = None
    roles: tuple[Role, ...] = ()


def require_complete(store: Store, all_tags: Sequence[str], version: str) -> Descriptor:
    """Return the descriptor of a version's manifest. `all_tags` are the tags of the store.

    Raises NotFound if there is no such version, or if content of the version is missing.
    """
    if version not in tags.versions(all_tags):
        available = ", ".join(tags.versions(all_tags)) or "none"
        raise NotFound(f"{store.repository} has no version {version!r}", f"the available versions are: {available}")
    descriptor = store.resolve(version)
    check_complete(store, descriptor.digest)
    return descriptor


def shadow_target(
    store: Store, version: str, champion: Descriptor, shadow: str, candidate: Descriptor, pairs: int
) -> MoveTarget:
    """Store an index of a champion and a shadow, and return it as the target of a channel move.

    `candidate` is the manifest of the version `shadow`. For `pairs` see `channel.promote`. Raises Refused if the champion and
    the shadow are the same manifest.
    """
    if champion.digest == candidate.digest:
        raise Refused(f"version {shadow} cannot shadow itself", "name two versions: --to CHAMPION --shadow CANDIDATE")
    document = roles.with_shadow((version, champion), (shadow, candidate), pairs)
    used_tags = {version: champion.digest, shadow: candidate.digest}
    return MoveTarget(store.push_manifest(document), version, used_tags, roles=roles.parse(document))


def canary_target(
    store: Store, channel: str, state: ChannelState, version: str, canary: Descriptor, percent: int, pairs: int
) -> MoveTarget:
    """Store an index of the current champion and a canary, and return it as the target of a channel move.

    For `percent` and `pairs` see the arguments `canary` and `pairs` of `channel.promote`.

    Raises Refused if there is no champion, or if the canary and the champion are the same manifest.
    """
    if state.champion is None or state.version is None:
        hint = f"promote a champion first: model-registry promote {store.repository} --to VERSION"
        raise Refused(f"the channel {channel!r} has no champion, so {version} cannot be its canary", hint)
    if state.champion == canary.digest:
        hint = f"choose another version as the canary: model-registry status {store.repository}"
        raise Refused(f"version {version} is the champion of {channel!r} already; it cannot be its canary", hint)
    champion = manifest.describe_manifest(store.manifest(state.champion))
    document = roles.with_canary((state.version, champion), (version, canary), percent, pairs)
    return MoveTarget(store.push_manifest(document), state.version, {version: canary.digest}, roles=roles.parse(document))


def check_complete(store: Store, digest: str) -> None:
    """Raise NotFound if a blob of a version is missing from the store."""
    version = resolve_index.describe_version(store, digest)
    if missing := [content.digest for content in version.blobs if not store.has_blob(content.digest)]:
        raise NotFound(f"version {version.version} lacks the content {missing[0]}", "push the version again")
