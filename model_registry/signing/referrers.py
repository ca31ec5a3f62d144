"""Reads and stores referrers: artifacts whose manifests name another manifest as their *subject*, such as signatures.

A registry with the referrers API lists the referrers of a subject. In other stores the list is an OCI index under the fallback
tag `sha256-<hex>` (distribution-spec 1.1, "Referrers Tag Schema").
"""

# Any list may contain wrong entries: an entry is a referrer only if its manifest names the subject.

import io
import itertools
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from model_registry.errors import Conflict, Corrupt, NotFound, Refused, Unreachable
from model_registry.oci import digests, manifest
from model_registry.oci.manifest import Descriptor, Manifest
from model_registry.stores.base import Store

MAX_READ = 256  # most referrers that are read: any writer to the store can add entries to the list
ATTEMPTS = 20
OVERWRITTEN = 3  # how often the list is written if the new referrer is missing in it afterwards
REMEDY = "keep signed versions in a registry with the referrers API, or with tags that may move (OCI distribution-spec 1.1)"
EMPTY = manifest.describe_content(manifest.EMPTY_TYPE, manifest.EMPTY)


def listed(store: Store, digest: str, *, all_tags: Collection[str] | None = None) -> list[Descriptor]:
    """Return the descriptors of all listed referrers of a manifest, unverified.

    Args:
        store: The store.
        digest: The digest of the manifest.
        all_tags: The tags of the store, if they are known. A fallback tag that is not among them is not requested.

    Raises:
        Unreachable: The store does not answer.
        Corrupt: A list is unreadable.
    """
    if all_tags is not None and fallback_tag(digest) not in all_tags:
        return store.referrers(digest) or []
    entries_by_digest = {entry.digest: entry for entries in _iter_referrer_lists(store, digest) for entry in entries}
    return list(entries_by_digest.values())


def _iter_referrer_lists(store: Store, digest: str) -> Iterator[list[Descriptor]]:
    """Yield the list of the referrers API, if the store has that API, then the list under the fallback tag."""
    # Entries under the tag may date from before the registry had the API.
    answer = store.referrers(digest)
    if answer is not None:
        yield answer
    yield _tagged(store, digest)


def _tagged(store: Store, digest: str) -> list[Descriptor]:
    """Return the list under the fallback tag of a manifest; an empty list if there is none."""
    # Some registries resolve the tag `sha256-<hex>` as the digest and return the manifest itself, which is no list.
    try:
        index = store.resolve(fallback_tag(digest)).digest
    except NotFound:
        return []
    return [] if index == digest else list(manifest.parse_index(store.manifest(index)).manifests)


def read(store: Store, digest: str, artifact_type: str) -> Iterator[tuple[Descriptor, Manifest | Corrupt | NotFound]]:
    """Yield each referrer of one artifact type: its descriptor, and its manifest or the error of reading it.

    At most MAX_READ manifests are read. Raises the same errors as `listed`.
    """
    # An entry that states another type is not read. An entry without a type is read to learn the type. So is an entry with the
    # media type of an empty config, because some registries list the type of the config instead of the artifact type.
    for number, entry in enumerate(_candidates(store, digest, artifact_type)):
        if number == MAX_READ:
            message = f"more than {MAX_READ} referrers of {digest} are listed; only {MAX_READ} were read"
            yield entry, Corrupt(message)
            return
        try:
            parsed = manifest.parse(store.manifest(entry.digest))
        except (Corrupt, NotFound) as error:
            yield entry, error
            continue
        if (parsed.artifact_type or parsed.config.media_type) != artifact_type:
            continue
        if parsed.subject is None or parsed.subject.digest != digest:
            yield entry, Corrupt(f"{entry.digest} is listed as a referrer of {digest}, but does not name it as its subject")
            continue
        yield entry, parsed


def _candidates(store: Store, digest: str, artifact_type: str) -> Iterator[Descriptor]:
    """For each list of referrers, yield the entries of this artifact type, then the entries without a type."""
    # The next list is requested only after all entries of the previous list were yielded.
    yielded: set[str] = set()
    for entries in _iter_referrer_lists(store, digest):
        new_entries = [entry for entry in entries if entry.digest not in yielded]
        typed = [entry for entry in new_entries if entry.artifact_type == artifact_type]
        typed += [entry for entry in new_entries if entry.artifact_type in (None, "", manifest.EMPTY_TYPE)]
        yield from typed
        yielded |= {entry.digest for entry in typed}  # a later list may have the right type of an entry


def attach(store: Store, digest: str, artifact_type: str, content: bytes, annotations: dict[str, str]) -> Descriptor:
    """Store `content` as an artifact of one layer that refers to the manifest `digest`.

    Raises:
        NotFound: There is no such manifest.
        Refused, Conflict: In the same cases as `refer`.
        Unreachable: The store does not answer.
    """
    layer = manifest.describe_content(artifact_type, content)
    document = build(store, digest, artifact_type, (layer,), annotations)
    store.push_blob(layer, io.BytesIO(content))
    return refer(store, document)


def build(store: Store, digest: str, artifact_type: str, layers: tuple[Descriptor, ...], annotations: dict[str, str]) -> bytes:
    """Build the manifest of an artifact whose subject is the manifest `digest`. Raises NotFound, Unreachable."""
    subject_bytes = store.manifest(digest)
    subject = manifest.describe_content(manifest.describe_manifest(subject_bytes).media_type, subject_bytes)
    return manifest.build(artifact_type, EMPTY, layers, annotations, subject)


def refer(store: Store, document: bytes) -> Descriptor:
    """Store a referrer's manifest, and make sure that the store lists it as a referrer of its subject.

    The referrer's layers must already be stored.

    Raises:
        NotFound: A layer or the subject is missing.
        Refused: The store has no referrers API and accepts no list under the fallback tag.
        Conflict: Other writers changed or overwrote the list at every attempt.
        Unreachable: The store does not answer.
    """
    # If the store does not confirm that its referrers API lists the manifest, the manifest is added to the list under the
    # fallback tag (distribution-spec 1.1, "Pushing Manifests with Subject").
    store.push_blob(EMPTY, io.BytesIO(manifest.EMPTY))
    pushed, confirmed = store.push_referrer(document)
    parsed = manifest.parse(document)
    if parsed.subject is None:
        return pushed
    subject = parsed.subject.digest
    artifact_type = parsed.artifact_type or parsed.config.media_type
    if confirmed and _is_listed(store, subject, pushed, artifact_type):
        return pushed
    for _ in range(OVERWRITTEN):
        _list_under_tag(store, subject, pushed, parsed.annotations)
        if _is_listed(store, subject, pushed, artifact_type):
            return pushed
    message = f"{store.repository} stored {pushed.digest} and does not list it with {subject}: other writers overwrote its list"
    raise Conflict(message, f"let only one process write at a time, or {REMEDY}")


def _list_under_tag(store: Store, subject: str, pushed: Descriptor, annotations: dict[str, str]) -> None:
    """Add a referrer to the list under the fallback tag. Raises Refused if the store accepts no list under that tag."""
    try:
        _list(store, subject, pushed, annotations)
    except (Refused, Unreachable) as error:
        if isinstance(error, Unreachable) and not _is_hidden(store, subject):
            raise
        message = f"{store.repository} has no referrers API, and accepts no list under {fallback_tag(subject)}: {error}"
        raise Refused(message, REMEDY) from None


def _is_listed(store: Store, subject: str, pushed: Descriptor, artifact_type: str) -> bool:
    """Return whether `read` would find a referrer; wait for a store that shows writes late."""
    for _ in store.visibility_attempts():
        candidates = itertools.islice(_candidates(store, subject, artifact_type), MAX_READ)
        if any(entry.digest == pushed.digest for entry in candidates):
            return True
    return False


def _is_hidden(store: Store, subject: str) -> bool:
    """Return whether the store resolves the fallback tag to the subject itself.

    Such a store reads the tag `sha256-<hex>` as a digest, so it cannot keep a list of referrers under this tag.
    """
    try:
        return store.resolve(fallback_tag(subject)).digest == subject
    except NotFound:
        return False


def fallback_tag(digest: str) -> str:
    """Return the tag under which the referrers of a manifest are listed in stores without the referrers API."""
    return f"sha256-{digests.hex_digits(digest)}"


def _list(store: Store, digest: str, added: Descriptor, annotations: dict[str, str]) -> None:
    """Add one entry to the list under the fallback tag; repeat if another writer changes the list meanwhile."""
    tag = fallback_tag(digest)
    entry = msgspec.to_builtins(msgspec.structs.replace(added, annotations=annotations))
    empty = {"schemaVersion": 2, "mediaType": manifest.INDEX_TYPE, "manifests": []}
    pauses = store.visibility_attempts()
    for attempt in range(ATTEMPTS):
        try:
            current = store.resolve(tag).digest
            data = manifest.encode(empty) if current == digest else store.manifest(current)
            if any(listed_entry.digest == added.digest for listed_entry in manifest.parse_index(data).manifests):
                return
            index = manifest.decode(data, dict[str, Any], "the list of referrers")
        except NotFound:
            current = None
            index = empty
        pushed = store.push_manifest(manifest.encode(index | {"manifests": [*index["manifests"], entry]}))
        try:
            store.move_tags({tag: pushed}, expect={tag: current})
            return
        except Conflict:  # another writer added an entry meanwhile
            if attempt == ATTEMPTS - 1:
                raise
            next(pauses, None)
