"""Decides which versions and history entries of a repository are removed.

A version is kept if a channel names it, or if one of the newest history entries of a channel names it (for rollbacks). By
default a version is also kept if no channel has ever named it. The signatures and attestations of a kept version are kept too.
`plan_removal` is a pure function.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from model_registry.channels import channel, roles
from model_registry.channels.history import ChannelMove
from model_registry.errors import NotFound
from model_registry.oci import tags
from model_registry.signing import referrers
from model_registry.stores import resolve_index
from model_registry.stores.base import Store


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """The rules by which `prune` keeps or removes versions and history entries.

    Attributes:
        revisions: The number of newest history entries to keep for each channel.
        patterns: Shell patterns; a version whose tag matches one of them is kept.
        unpromoted: Whether versions that no channel has ever named are removed too.
    """

    revisions: int = 10
    patterns: Sequence[str] = ()
    unpromoted: bool = False


@dataclass(frozen=True, slots=True)
class RepositorySnapshot:
    """The tags of a repository, the moves of its channels and the versions in the channels' indexes.

    A channel names the manifest of one version, or an index that lists a version for each role, such as champion and canary.

    Attributes:
        tags: The digest of each tag.
        moves: The moves of each channel by its name, oldest first.
        members: The digests of the versions in each index, by the digest of the index. A channel that names one version has an
            entry too, with the digest of the version and an empty sequence.
    """

    tags: Mapping[str, str]
    moves: Mapping[str, Sequence[ChannelMove]]
    members: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Removal:
    """The content to remove from a repository.

    Attributes:
        versions: The digests of the versions to remove, by tag.
        history: The digests of the history entries to remove, by tag.
        documents: The digests of the untagged indexes to remove. An index lists the versions of a channel by role.
        kept: Digests of manifests that must not be deleted, even if they belong to a removed version.
    """

    versions: Mapping[str, str]
    history: Mapping[str, str]
    documents: Sequence[str]
    kept: frozenset[str]


def read_repository(store: Store) -> RepositorySnapshot:
    """Read all tags, the histories of all channels and the indexes that channels name.

    Raises:
        NotFound: A tag was deleted meanwhile.
        Corrupt, Unreachable: The store's content is damaged, or the store does not answer.
    """
    digest_of_tag = {tag: store.resolve(tag).digest for tag in store.tags()}
    channel_names = tags.channels(digest_of_tag)
    members = {
        digest_of_tag[name]: [role.digest for role in roles.parse(store.manifest(digest_of_tag[name]))]
        for name in channel_names
        if name in digest_of_tag
    }
    return RepositorySnapshot(digest_of_tag, {name: channel.history(store, name) for name in channel_names}, members)


def plan_removal(snapshot: RepositorySnapshot, rules: RetentionRules) -> Removal:
    """Return the content to remove under these rules. A manifest with several tags is kept if one of its tags is kept."""
    needed: set[str] = set()
    dropped: dict[str, ChannelMove] = {}
    for name, moves in snapshot.moves.items():
        kept_moves = _window(moves, snapshot.tags.get(name), rules.revisions)
        needed |= {digest for move in kept_moves for digest in _named(move)}
        dropped |= {tags.history_tag(name, move.revision): move for move in moves if move not in kept_moves}
        if name in snapshot.tags:
            needed |= {snapshot.tags[name], *snapshot.members.get(snapshot.tags[name], ())}
    promoted = {digest for moves in snapshot.moves.values() for move in moves for digest in _named(move)}
    removed = {
        tag: snapshot.tags[tag]
        for tag in tags.versions(snapshot.tags)
        if snapshot.tags[tag] not in needed
        and (rules.unpromoted or snapshot.tags[tag] in promoted)
        and not any(fnmatchcase(tag, pattern) for pattern in rules.patterns)
    }
    history = {tag: snapshot.tags[tag] for tag in dropped}
    kept_tags = (tag for tag in snapshot.tags if tag not in removed and tag not in history and not tags.is_referrers(tag))
    kept_digests = needed | {snapshot.tags[tag] for tag in kept_tags}
    documents = {move.to_digest for move in dropped.values() if move.roles}
    return Removal(
        {tag: digest for tag, digest in removed.items() if digest not in kept_digests},
        history,
        sorted(documents - kept_digests),
        frozenset(kept_digests),
    )


def manifests_to_delete(store: Store, removal: Removal) -> list[str]:
    """Return the digests of the manifests to delete, in the order of deletion."""
    # History entries are deleted last, because `prune` derives its plan from them: after an interruption it plans the same
    # removal again.
    subjects = [*removal.versions.values(), *removal.documents]
    belonging = [digest for subject in dict.fromkeys(subjects) for digest in _iter_dependents(store, subject)]
    ordered = [*belonging, *subjects, *removal.history.values()]
    return [digest for digest in dict.fromkeys(ordered) if digest not in removal.kept]


def _iter_dependents(store: Store, subject: str) -> Iterator[str]:
    """Yield the digests of a manifest's referrers, and of the manifests under its tags `sha256-<hex>[.sig|.att]`."""
    for entry in referrers.listed(store, subject):
        yield entry.digest
    tag = referrers.fallback_tag(subject)
    for name in (tag, f"{tag}.sig", f"{tag}.att"):
        try:
            yield store.resolve(name).digest
        except NotFound:
            continue


def _window(moves: Sequence[ChannelMove], current: str | None, revisions: int) -> list[ChannelMove]:
    """Return the moves of a channel whose history entries are kept.

    These are the newest `revisions` moves. If the move to the current target is older, that move and all later moves are
    returned.
    """
    first = len(moves) - revisions
    current_position = max(
        (position for position, move in enumerate(moves) if move.to_digest == current), default=len(moves) - 1
    )
    return list(moves[max(0, min(first, current_position)) :])


def _named(move: ChannelMove) -> set[str]:
    return {move.to_digest, *(role.digest for role in move.roles)}


def version_sizes(store: Store, removal: Removal) -> dict[str, int]:
    """Return the size in bytes of each version to remove, by tag, including blobs that kept versions share."""
    return {
        tag: sum(blob.size for blob in resolve_index.describe_version(store, digest).blobs)
        for tag, digest in removal.versions.items()
    }
