"""Which versions and history entries of a repository are removed, and which stay.

These stay: versions that a channel names, versions that the newest history entries of a channel name (for rollbacks),
versions that were never promoted, and the signatures and attestations of all of these. `plan_removal` is pure.
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
    """`revisions`: history entries kept for each channel. `patterns`: versions kept anyway (shell patterns). `unpromoted`:
    whether versions that no channel has ever named go too."""

    revisions: int = 10
    patterns: Sequence[str] = ()
    unpromoted: bool = False


@dataclass(frozen=True, slots=True)
class RepositorySnapshot:
    """A repository: its tags by digest, the moves of each channel (oldest first), and the roles of the channels' indexes."""

    tags: Mapping[str, str]
    moves: Mapping[str, Sequence[ChannelMove]]
    members: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Removal:
    """Versions and history entries to remove, by tag; `documents` are manifests (indexes of roles) that have no tag."""

    versions: Mapping[str, str]
    history: Mapping[str, str]
    documents: Sequence[str]
    kept: frozenset[str]


def read_repository(store: Store) -> RepositorySnapshot:
    """Look at everything once. Raises NotFound where a tag went meanwhile, Corrupt, Unreachable."""
    named = {tag: store.resolve(tag).digest for tag in store.tags()}
    names = tags.channels(named)
    members = {
        named[name]: [role.digest for role in roles.parse(store.manifest(named[name]))] for name in names if name in named
    }
    return RepositorySnapshot(named, {name: channel.history(store, name) for name in names}, members)


def plan_removal(found: RepositorySnapshot, rules: RetentionRules) -> Removal:
    """What to remove. A manifest with several tags stays as long as one of them stays."""
    needed: set[str] = set()
    dropped: dict[str, ChannelMove] = {}
    for name, moves in found.moves.items():
        kept = _window(moves, found.tags.get(name), rules.revisions)
        needed |= {digest for move in kept for digest in _named(move)}
        dropped |= {tags.history_tag(name, move.revision): move for move in moves if move not in kept}
        if name in found.tags:
            needed |= {found.tags[name], *found.members.get(found.tags[name], ())}
    promoted = {digest for moves in found.moves.values() for move in moves for digest in _named(move)}
    gone = {
        tag: found.tags[tag]
        for tag in tags.versions(found.tags)
        if found.tags[tag] not in needed
        and (rules.unpromoted or found.tags[tag] in promoted)
        and not any(fnmatchcase(tag, pattern) for pattern in rules.patterns)
    }
    history = {tag: found.tags[tag] for tag in dropped}
    staying = (tag for tag in found.tags if tag not in gone and tag not in history and not tags.is_referrers(tag))
    kept_digests = needed | {found.tags[tag] for tag in staying}
    documents = {move.to_digest for move in dropped.values() if move.roles}
    return Removal(
        {tag: digest for tag, digest in gone.items() if digest not in kept_digests},
        history,
        sorted(documents - kept_digests),
        frozenset(kept_digests),
    )


def manifests_to_delete(store: Store, going: Removal) -> list[str]:
    """Every manifest to delete, in an order that may be broken off anywhere: the history, which says what to prune, last."""
    subjects = [*going.versions.values(), *going.documents]
    found = [digest for subject in dict.fromkeys(subjects) for digest in _belonging(store, subject)]
    every = [*found, *subjects, *going.history.values()]
    return [digest for digest in dict.fromkeys(every) if digest not in going.kept]


def _belonging(store: Store, subject: str) -> Iterator[str]:
    """The referrers of a manifest, and the tags that list them."""
    for entry in referrers.listed(store, subject):
        yield entry.digest
    tag = referrers.fallback_tag(subject)
    for name in (tag, f"{tag}.sig", f"{tag}.att"):
        try:
            yield store.resolve(name).digest
        except NotFound:
            continue


def _window(moves: Sequence[ChannelMove], current: str | None, revisions: int) -> list[ChannelMove]:
    """The newest entries; always the one that moved the channel to where it is, and what is newer."""
    first = len(moves) - revisions
    at = max((position for position, move in enumerate(moves) if move.to_digest == current), default=len(moves) - 1)
    return list(moves[max(0, min(first, at)) :])


def _named(move: ChannelMove) -> set[str]:
    return {move.to_digest, *(role.digest for role in move.roles)}


def version_sizes(store: Store, going: Removal) -> dict[str, int]:
    """The bytes of each version that is removed. Content shared with other versions counts too."""
    return {
        tag: sum(blob.size for blob in resolve_index.describe_version(store, at).blobs) for tag, at in going.versions.items()
    }
