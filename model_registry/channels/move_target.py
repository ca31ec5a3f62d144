"""What a channel is to name: a version, or one with another beside it."""

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
    """What a channel is to name: a version, or a document of `roles`, whose champion `version` is. `tags` are those that it was
    taken from, which must not change meanwhile."""

    descriptor: Descriptor
    version: str
    tags: Mapping[str, str]
    restores: int | None = None
    roles: tuple[Role, ...] = ()


def require_complete(store: Store, there: Sequence[str], version: str) -> Descriptor:
    """A version that is there with all of its content; `there` are all tags. Raises NotFound."""
    if version not in tags.versions(there):
        known = ", ".join(tags.versions(there)) or "none"
        raise NotFound(f"{store.repository} has no version {version!r}", f"the versions there are: {known}")
    found = store.resolve(version)
    check_complete(store, found.digest)
    return found


def shadow_target(store: Store, version: str, found: Descriptor, shadow: str, candidate: Descriptor, pairs: int) -> MoveTarget:
    """A version that another one shadows. Raises Refused where they are one."""
    if found.digest == candidate.digest:
        raise Refused(f"version {shadow} cannot shadow itself", "name another one: --to CHAMPION --shadow CANDIDATE")
    document = roles.with_shadow((version, found), (shadow, candidate), pairs)
    taken = {version: found.digest, shadow: candidate.digest}
    return MoveTarget(store.push_manifest(document), version, taken, roles=roles.parse(document))


def canary_target(
    store: Store, channel: str, standing: ChannelState, version: str, found: Descriptor, percent: int, pairs: int
) -> MoveTarget:
    """A version as the canary beside the champion. Raises Refused where there is no champion, or where it is that version."""
    if standing.champion is None or standing.version is None:
        hint = f"promote one that is to answer everything: model-registry promote {store.repository} --to VERSION"
        raise Refused(f"the channel {channel!r} has no champion that {version} could be a canary beside", hint)
    if standing.champion == found.digest:
        hint = f"the canary is another version: model-registry status {store.repository}"
        raise Refused(f"version {version} is the champion of {channel!r} already; it cannot be its canary", hint)
    champion = manifest.describe_manifest(store.manifest(standing.champion))
    document = roles.with_canary((standing.version, champion), (version, found), percent, pairs)
    return MoveTarget(store.push_manifest(document), standing.version, {version: found.digest}, roles=roles.parse(document))


def check_complete(store: Store, digest: str) -> None:
    """Raises NotFound where some of a version's content is not there."""
    found = resolve_index.describe_version(store, digest)
    if missing := [content.digest for content in found.blobs if not store.has_blob(content.digest)]:
        raise NotFound(f"version {found.version} lacks {missing[0]}", "push the version again")
