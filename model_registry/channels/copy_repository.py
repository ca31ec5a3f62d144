"""Copies a repository into another store: versions, signatures and attestations, and channels with their history.

`plan_copy` only reads, and `copy` writes. All digests, revisions, signatures and times are the same in the copy. A repeated
copy transfers only new content. The source may be in use during a copy.
"""

# `copy` writes in an order in which an interruption leaves no channel without its version: blobs, manifests, version tags,
# referrers, history entries, channels.

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import BinaryIO, TypeVar, cast

from model_registry.channels import history
from model_registry.channels.history import HISTORY_TYPE, ChannelMove
from model_registry.channels.state import history_id
from model_registry.errors import Conflict, Corrupt, Denied, NotFound, Refused
from model_registry.oci import manifest, tags
from model_registry.oci.manifest import Descriptor
from model_registry.signing import bundle, referrers
from model_registry.stores import parallel_transfer
from model_registry.stores.base import Store
from model_registry.stores.blob_stream import BlobStream
from model_registry.stores.oci_layout import LayoutStore

THREADS = 8  # requests at a time while the plan is made
TAGS_AT_ONCE = 100  # tags that are written in one step
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class ChannelCopy:
    """A channel whose tag is written at the destination.

    Attributes:
        name: The channel's name.
        revision: The revision of the channel in the source.
        version: The version of the champion.
        target: The descriptor of the manifest that the channel names.
        replaced: The digest that the destination's channel names now; None if the destination has no such channel.
        newest: The revision of the channel's newest history entry. After an interrupted move it is greater than `revision`.
    """

    name: str
    revision: int
    version: str
    target: Descriptor
    replaced: str | None
    newest: int


@dataclass(slots=True)
class CopyPlan:
    """The content of the source that the destination lacks.

    Attributes:
        blobs: The blobs, by digest.
        manifests: The manifests of versions, channels and history entries, by digest. Each follows the manifests that it names.
        versions: The version tags, with the manifests that they name.
        signature_tags: The tags of signatures in the older format of cosign (`sha256-<hex>.sig`), which may move.
        replaced: For each of `signature_tags` that exists at the destination, the digest that it names there now.
        referrers: The manifests of signatures and other referrers, by digest.
        history: The history tags, oldest first within a channel, with their entries.
        channels: The channels whose tags are written.
        skipped: Messages about signatures and other referrers that are not copied.
        signed: Whether the source has signatures. They are valid in the copy only if the model has the same name there.
    """

    blobs: dict[str, Descriptor] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    versions: dict[str, Descriptor] = field(default_factory=dict)
    signature_tags: dict[str, Descriptor] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    referrers: dict[str, bytes] = field(default_factory=dict)
    history: dict[str, Descriptor] = field(default_factory=dict)
    channels: list[ChannelCopy] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    signed: bool = False

    @property
    def size(self) -> int:
        """The size of the blobs in bytes."""
        return sum(content.size for content in self.blobs.values())

    @property
    def is_empty(self) -> bool:
        """Whether nothing must be copied, because the destination has all content of the source."""
        return not (self.versions or self.signature_tags or self.referrers or self.history or self.channels)


@dataclass(frozen=True, slots=True)
class _Tags:
    """The tags of a repository; `by_tag` has the descriptor of the manifest that each tag names."""

    all: Sequence[str]
    by_tag: Mapping[str, Descriptor]

    def entries(self, channel: str) -> dict[int, str]:
        """Return the digests of a channel's history entries by revision, oldest first."""
        revisions = reversed(tags.revisions(self.by_tag, channel))
        return {revision: self.by_tag[tags.history_tag(channel, revision)].digest for revision in revisions}


def _map(call: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    with ThreadPoolExecutor(THREADS, thread_name_prefix="copy") as pool:
        return list(pool.map(call, items))


def _read_tags(store: Store) -> _Tags:
    """Read all tags of a repository."""
    # The tags of channels are read before the list of history entries: a move writes its history entry before the channel's
    # tag, so the list has the entry of every move that the tags show.
    listed = store.tags()
    channels = [name for name in tags.channels(listed) if name in listed]
    resolved = dict(zip(channels, _map(store.resolve, channels), strict=True))
    all_tags = store.tags()
    others = [tag for tag in all_tags if tag not in resolved and tag not in tags.channels(all_tags)]
    resolved |= zip(others, _map(store.resolve, others), strict=True)
    return _Tags(all_tags, resolved)


def _read_present_tags(destination: Store) -> _Tags | None:
    """Return the tags of the destination; None if the repository does not exist yet or access is denied."""
    # Some registries deny access to a repository that does not exist. Without any access, the first write of the copy fails.
    if isinstance(destination, LayoutStore) and not destination.exists:
        return None
    try:
        return _read_tags(destination)
    except Denied:
        return None


def plan_copy(source: Store, destination: Store) -> CopyPlan:
    """Return the content that a copy transfers. Nothing is written.

    Raises:
        Refused: The destination has other content under a version's tag, or another or a newer history of a channel.
        NotFound: The source is empty, or content that a manifest names is missing.
        Conflict: The source was changed meanwhile.
        Corrupt, Unreachable: Errors of the stores.
    """
    origin = _read_tags(source)
    if not origin.by_tag:
        raise NotFound(f"{source.repository} has no content", "check the name of the source")
    planner = _Planner(source, destination, _read_present_tags(destination))
    planner.add_versions(origin)
    for name in tags.channels(origin.all):
        planner.add_channel(name, origin)
    planner.add_referrers(origin)
    return planner.plan


class _Planner:
    """Collects the plan of a copy.

    `origin` has the tags of the source. `present` has the tags of the destination; None if the destination does not exist yet.
    """

    def __init__(self, source: Store, destination: Store, present: _Tags | None) -> None:
        self.plan = CopyPlan()
        self._source = source
        self._destination = destination
        self._is_new = present is None
        self._present = present or _Tags((), {})
        self._subjects: dict[str, None] = {}  # the digests of manifests that may have referrers, in order
        self._stored: set[str] = set()  # the digests of blobs that the destination has

    def add_versions(self, origin: _Tags) -> None:
        """Add the versions and the tags of signatures. Raises Refused if a version has other content at the destination."""
        for tag in tags.versions(origin.all):
            target = origin.by_tag[tag]
            existing = self._present.by_tag.get(tag)
            if tag in tags.channels(self._present.all):
                raise Refused(
                    f"{tag!r} is a version in {self._source.repository} and a channel in {self._destination.repository}",
                    "choose another destination",
                )
            if existing is not None and existing.digest != target.digest:
                message = f"version {tag} has the digest {target.digest} in {self._source.repository}, and {existing.digest} in"
                hint = "a version never changes: choose an empty destination, or push the other content under another version"
                raise Refused(f"{message} {self._destination.repository}", hint)
            self._add_manifest(target.digest, is_stored=existing is not None)
            if existing is None:
                self.plan.versions[tag] = target
        for tag in origin.by_tag:
            if tags.is_referrers(tag) and "." in tag:
                self._add_signature_tag(tag, origin.by_tag[tag])

    def _add_signature_tag(self, tag: str, target: Descriptor) -> None:
        self.plan.signed = True
        existing = self._present.by_tag.get(tag)
        if existing is not None and (existing.digest == target.digest or self._has_more(tag, existing, target)):
            return
        self._add_manifest(target.digest)
        self.plan.signature_tags[tag] = target
        if existing is not None:
            self.plan.replaced[tag] = existing.digest

    def _has_more(self, tag: str, existing: Descriptor, target: Descriptor) -> bool:
        """Return whether `existing`, the destination's manifest, has a signature that `target`, the source's manifest, lacks.

        If it has one, a message is added to the plan, because the copy would remove this signature.
        """
        present = _layers(self._destination.manifest(existing.digest))
        if not present - _layers(self._source.manifest(target.digest)):
            return False
        self.plan.skipped.append(
            f"{tag} is not copied: it has a signature in {self._destination.repository} that {self._source.repository} lacks; "
            "sign the version again there with cosign if a signature of the source is missing"
        )
        return True

    def _add_manifest(self, digest: str, *, is_stored: bool = False) -> None:
        """Add a manifest and all content that it names, unless the destination has the manifest.

        `is_stored` states that the destination has this manifest, because the destination has an index that lists it.
        """
        # A registry accepts a manifest only if it has all content that the manifest names, so that content need not be checked.
        if digest in self._subjects:
            return
        self._subjects[digest] = None
        data = self._source.manifest(digest)
        is_stored = is_stored or self._has_blob(digest)
        if manifest.is_index(data):
            for entry in manifest.parse_index(data).manifests:
                self._add_manifest(entry.digest, is_stored=is_stored)
        elif not is_stored:
            self._add_blobs(data)
        if not is_stored:
            self.plan.manifests[digest] = data

    def _has_blob(self, digest: str) -> bool:
        return not self._is_new and self._destination.has_blob(digest)

    def _add_blobs(self, data: bytes) -> None:
        contents = {content.digest: content for content in manifest.contents(data)}
        unknown = [digest for digest in contents if digest not in self.plan.blobs and digest not in self._stored]
        for digest, is_stored in zip(unknown, _map(self._has_blob, unknown), strict=True):
            if is_stored:
                self._stored.add(digest)
            else:
                self.plan.blobs[digest] = contents[digest]

    def add_channel(self, name: str, origin: _Tags) -> None:
        """Add a channel with its history. Raises Refused if the destination has another or a newer history."""
        self._check_channel(name, origin)
        moves: list[ChannelMove] = []
        entries = origin.entries(name)
        for (revision, digest), data in zip(entries.items(), _map(self._source.manifest, entries.values()), strict=True):
            tag = tags.history_tag(name, revision)
            move = history.decode(data, name, revision, f"the history tag {tag} of {self._source.repository}")
            moves.append(move)
            self.plan.signed = self.plan.signed or move.signature is not None
            if tag not in self._present.by_tag:
                self._add_target(move)
                self._add_blobs(data)
                self.plan.manifests[digest] = data
                self.plan.history[tag] = origin.by_tag[tag]
        if (target := origin.by_tag.get(name)) is None:
            return
        move_now = next((move for move in reversed(moves) if move.to_digest == target.digest), None)
        if move_now is None:
            hint = f"move the channel, then repeat: model-registry promote {self._source.repository} --channel {name}"
            raise Refused(f"the channel {name!r} names {target.digest}, but no history entry records a move to it", hint)
        existing = self._present.by_tag.get(name)
        if existing is not None:
            self._check_forward(name, existing.digest, move_now, moves)
        self._add_manifest(target.digest)
        if existing is None or existing.digest != target.digest:
            replaced = existing.digest if existing else None
            copied = ChannelCopy(name, move_now.revision, move_now.to_version, target, replaced, newest=max(entries))
            self.plan.channels.append(copied)

    def _add_target(self, move: ChannelMove) -> None:
        """Add the OCI index of a champion and a canary or shadow to which an earlier move pointed the channel.

        Nothing is added if the target is a single version, or if a version of the index was deleted from the source.
        """
        if not move.roles or any(role.digest not in self._subjects for role in move.roles):
            return
        try:
            self._add_manifest(move.to_digest)
        except NotFound:
            self._subjects.pop(move.to_digest, None)

    def _check_channel(self, name: str, origin: _Tags) -> None:
        ours = origin.entries(name)
        theirs = self._present.entries(name)
        destination = self._destination.repository
        if not theirs:
            if name in self._present.all:
                message = f"{name!r} is a channel in {self._source.repository} and the tag of a version in {destination}"
                raise Refused(message, "choose another destination")
            return
        differing = [revision for revision in theirs if revision in ours and theirs[revision] != ours[revision]]
        if differing or not (theirs.keys() & ours.keys() or self._have_same_history(name, ours, theirs)):
            revision = differing[0] if differing else max(theirs)
            message = f"the channel {name!r} has another history in {destination}: see its revision {revision}"
            raise Refused(
                message,
                f"compare both repositories with `model-registry history`; choose a destination without the channel {name!r}",
            )
        if max(theirs) > max(ours):
            message = f"the channel {name!r} is newer in {destination}: revision {max(theirs)} instead of {max(ours)}"
            hint = "it was moved there after the last copy: use that repository from now on, or copy in the other direction"
            raise Refused(message, hint)

    def _check_forward(self, name: str, digest: str, move_now: ChannelMove, moves: Sequence[ChannelMove]) -> None:
        """Raise Refused if the channel at the destination is newer than in the source.

        `digest` is the manifest that the destination's channel names. `moves` are all moves in the source; `move_now` is the
        move to the source's current manifest.
        """
        # The histories can be equal: a move writes its history entry before the channel, and the source may have been copied,
        # or its move interrupted, in between.
        copied = self._present.entries(name)
        theirs = max((move.revision for move in moves if move.to_digest == digest and move.revision in copied), default=0)
        if theirs > move_now.revision and digest != move_now.to_digest:
            message = f"the channel {name!r} is newer in {self._destination.repository}: revision {theirs} instead of "
            hint = "the last move in the source was interrupted: repeat it there, or copy in the other direction"
            raise Refused(f"{message}{move_now.revision}", hint)

    def _have_same_history(self, name: str, ours: Mapping[int, str], theirs: Mapping[int, str]) -> bool:
        """Return whether the channel has the same history in the source (`ours`) and in the destination (`theirs`)."""
        # The ids of the histories are compared, and not the entries: after a `prune` the two may have no entry in common.
        histories = (
            history_id(store, name, sorted(entries, reverse=True))
            for store, entries in ((self._source, ours), (self._destination, theirs))
        )
        first, second = histories
        return first is not None and first == second

    def add_referrers(self, origin: _Tags) -> None:
        """Add the referrers of all manifests in the plan, and the referrers of these referrers."""
        for tag in origin.by_tag:
            if tags.is_referrers(tag) and "." not in tag:
                self._subjects[f"sha256:{tag.removeprefix('sha256-')}"] = None
        pending = list(self._subjects)
        seen = set(pending)
        while pending:
            lists = _map(partial(referrers.listed, self._source, all_tags=origin.all), pending)
            copied: list[str] = []
            for subject, entries in zip(pending, lists, strict=True):
                copied += self._add_referrers_of(subject, [entry.digest for entry in entries])
            pending = [digest for digest in dict.fromkeys(copied) if digest not in seen]
            seen |= set(pending)

    def _add_referrers_of(self, subject: str, listed: Sequence[str]) -> list[str]:
        """Add the referrers of a manifest that are missing at the destination; return the digests of all its referrers.

        `listed` are the digests of the referrers that the source lists. A message is added to the plan for each unreadable
        referrer.
        """
        if not listed:
            return []
        copied: list[str] = []
        present: set[str] = set()
        if not self._is_new:
            present |= {entry.digest for entry in referrers.listed(self._destination, subject, all_tags=self._present.all)}
        for digest in listed:
            try:
                data = self._source.manifest(digest)
                parsed = manifest.parse(data)
            except (NotFound, Corrupt) as error:
                self.plan.skipped.append(f"{digest}, which is listed as a referrer of {subject}, is not copied: {error}")
                continue
            if parsed.subject is None or parsed.subject.digest != subject or parsed.artifact_type == HISTORY_TYPE:
                continue
            copied.append(digest)
            self.plan.signed = self.plan.signed or parsed.artifact_type == bundle.MEDIA_TYPE
            if digest not in present:
                self._add_blobs(data)
                self.plan.referrers[digest] = data
        return copied


def copy(source: Store, destination: Store, plan: CopyPlan, report: Callable[[str], None] = lambda _: None) -> None:
    """Write the content of a plan to the destination. To finish an interrupted copy, make a new plan and copy again.

    Args:
        source: The repository to copy.
        destination: The repository that receives the copy.
        plan: The result of `plan_copy` for this source and this destination.
        report: Called with a line of text for the user when a part of the copy begins, such as the manifests.

    Raises:
        Refused: The destination does not allow a tag to move, or accepts no referrers.
        Conflict: Another client changed the source or the destination meanwhile.
        Corrupt, NotFound, Unreachable: Errors of the stores.
    """
    report(f"copying {len(plan.blobs)} files with {plan.size} bytes")
    mounted = _map(destination.mount_blob, plan.blobs.values())
    missing = [content for content, is_mounted in zip(plan.blobs.values(), mounted, strict=True) if not is_mounted]
    parallel_transfer.upload(destination, [(content, partial(_open, source, content)) for content in missing])
    report(f"writing {len(plan.manifests)} manifests and {len(plan.versions)} version tags")
    for data in plan.manifests.values():
        destination.push_manifest(data)
    _write_tags(destination, plan.versions, {})
    _write_tags(destination, plan.signature_tags, plan.replaced)
    report(f"writing {len(plan.referrers) + len(plan.signature_tags)} signatures and attestations")
    for data in plan.referrers.values():
        referrers.refer(destination, data)
    report(f"writing {len(plan.history)} history entries and {len(plan.channels)} channels")
    _write_tags(destination, plan.history, {})
    for channel in plan.channels:
        _check_unmoved(destination, channel)
        destination.move_tags({channel.name: channel.target}, expect={channel.name: channel.replaced})


def _open(source: Store, content: Descriptor) -> BinaryIO:
    return cast("BinaryIO", BlobStream(source, content))


def _write_tags(destination: Store, targets: Mapping[str, Descriptor], replaced: Mapping[str, str]) -> None:
    items = iter(targets.items())
    while batch := dict(islice(items, TAGS_AT_ONCE)):
        expect = {tag: replaced.get(tag) for tag in batch}
        try:
            destination.move_tags(batch, expect=expect)
        except Conflict:  # for example if the plan was made from an old state of a registry that shows writes late
            missing = {tag: target for tag, target in batch.items() if not _names(destination, tag, target.digest)}
            if len(missing) == len(batch):
                raise
            destination.move_tags(missing, expect={tag: expect[tag] for tag in missing})


def _layers(data: bytes) -> set[str]:
    """Return the digests of a manifest's layers; for an index, the digests of the manifests that it lists."""
    return {content.digest for content in manifest.contents(data)[0 if manifest.is_index(data) else 1 :]}


def _names(store: Store, tag: str, digest: str) -> bool:
    try:
        return store.resolve(tag).digest == digest
    except NotFound:
        return False


def _check_unmoved(destination: Store, channel: ChannelCopy) -> None:
    """Raise Conflict if another client has moved the channel at the destination since the plan was made."""
    newest = max(tags.revisions(destination.tags(), channel.name), default=0)
    if newest > channel.newest:
        message = f"the channel {channel.name!r} was moved to revision {newest} in {destination.repository} during the copy"
        raise Conflict(message, "use one of the two repositories at a time for promotions")
