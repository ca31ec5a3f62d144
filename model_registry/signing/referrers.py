"""Referrers: artifacts that belong to a manifest, in any store.

In a store without a referrers API they are listed in an OCI index under the tag `sha256-<hex>` of their manifest
(distribution-spec 1.1, "Referrers Tag Schema"). A list is only a hint: each manifest itself must name the subject.
"""

import io
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from model_registry.errors import Conflict, Corrupt, NotFound, Refused, Unreachable
from model_registry.oci import digests, manifest
from model_registry.oci.manifest import Descriptor, Manifest
from model_registry.stores.base import Store

MAX_READ = 256  # referrers that are read: a writer to the store can list any number
ATTEMPTS = 20
OVERWRITTEN = 3  # attempts to write the list if it lacks the referrer afterwards
REMEDY = "keep signed versions in a registry with the referrers API, or with tags that may move (OCI distribution-spec 1.1)"
EMPTY = manifest.describe_content(manifest.EMPTY_TYPE, manifest.EMPTY)


def listed(store: Store, digest: str) -> list[Descriptor]:
    """Return the listed referrers of a manifest, unverified. Raises Unreachable; Corrupt for an unreadable list."""
    entries_by_digest = {entry.digest: entry for entries in _lists(store, digest) for entry in entries}
    return list(entries_by_digest.values())


def _lists(store: Store, digest: str) -> Iterator[list[Descriptor]]:
    """Yield the list of the referrers API, if the store has one, then the list under the fallback tag.

    A registry can have both: its API may be newer than an entry, or answer without knowing the subject.
    """
    answer = store.referrers(digest)
    if answer is not None:
        yield answer
    yield _tagged(store, digest)


def _tagged(store: Store, digest: str) -> list[Descriptor]:
    """Return the list under the fallback tag.

    Some registries read the tag `sha256-<hex>` as the digest and answer with the manifest itself, which is no list.
    """
    try:
        index = store.resolve(fallback_tag(digest)).digest
    except NotFound:
        return []
    return [] if index == digest else list(manifest.parse_index(store.manifest(index)).manifests)


def read(store: Store, digest: str, artifact_type: str) -> Iterator[tuple[Descriptor, Manifest | Corrupt | NotFound]]:
    """Yield the referrers of one type, each with its manifest or the error that makes it unusable; at most MAX_READ are read.

    Entries that are listed with another type are skipped unread. An entry counts as untyped if it lists the type of the
    empty config, as some registries do. Raises as `listed` does.
    """
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
            yield entry, Corrupt(f"{entry.digest} is listed as a referrer of {digest}, but belongs to something else")
            continue
        yield entry, parsed


def _candidates(store: Store, digest: str, artifact_type: str) -> Iterator[Descriptor]:
    """Yield the entries of a type, then the untyped ones, of each list. A later list is fetched when it is needed."""
    yielded: set[str] = set()
    for entries in _lists(store, digest):
        new_entries = [entry for entry in entries if entry.digest not in yielded]
        typed = [entry for entry in new_entries if entry.artifact_type == artifact_type]
        typed += [entry for entry in new_entries if entry.artifact_type in (None, "", manifest.EMPTY_TYPE)]
        yield from typed
        yielded |= {entry.digest for entry in typed}  # a later list may have the right type of an entry


def attach(store: Store, digest: str, artifact_type: str, content: bytes, annotations: dict[str, str]) -> Descriptor:
    """Store `content` as an artifact of one layer that refers to the manifest `digest`.

    Raises:
        NotFound: There is no such manifest.
        Conflict: The list of referrers changed with every attempt.
        Unreachable: The store does not answer.
    """
    layer = manifest.describe_content(artifact_type, content)
    document = build(store, digest, artifact_type, (layer,), annotations)
    store.push_blob(layer, io.BytesIO(content))
    return refer(store, document)


def build(store: Store, digest: str, artifact_type: str, layers: tuple[Descriptor, ...], annotations: dict[str, str]) -> bytes:
    """Return the manifest of an artifact that refers to the manifest `digest`. Raises NotFound, Unreachable."""
    subject_bytes = store.manifest(digest)
    subject = manifest.describe_content(manifest.describe_manifest(subject_bytes).media_type, subject_bytes)
    return manifest.build(artifact_type, EMPTY, layers, annotations, subject)


def refer(store: Store, document: bytes) -> Descriptor:
    """Store a manifest that `build` returned, whose layers are stored, and list it with its subject.

    If the store does not confirm that it lists the manifest, the list under the fallback tag is updated (distribution-spec
    1.1, "Pushing Manifests with Subject").

    Raises:
        NotFound: A layer or the subject is missing.
        Refused, Conflict: The store does not list the manifest afterwards, so that no reader would find it.
        Unreachable: The store does not answer.
    """
    store.push_blob(EMPTY, io.BytesIO(manifest.EMPTY))
    pushed, confirmed = store.push_referrer(document)
    parsed = manifest.parse(document)
    if parsed.subject is None:
        return pushed
    subject = parsed.subject.digest
    artifact_type = parsed.artifact_type or parsed.config.media_type
    if confirmed and _is_found(store, subject, pushed, artifact_type):
        return pushed
    for _ in range(OVERWRITTEN):
        _list_under_tag(store, subject, pushed, parsed.annotations)
        if _is_found(store, subject, pushed, artifact_type):
            return pushed
    message = f"{store.repository} stored {pushed.digest} and does not list it with {subject}: other writers overwrote its list"
    raise Conflict(message, f"one writer at a time; {REMEDY}")


def _list_under_tag(store: Store, subject: str, pushed: Descriptor, annotations: dict[str, str]) -> None:
    """Add a referrer to the list under the fallback tag. Raises Refused if the store accepts no such list."""
    try:
        _list(store, subject, pushed, annotations)
    except (Refused, Unreachable) as error:
        if isinstance(error, Unreachable) and not _is_hidden(store, subject):
            raise
        message = f"{store.repository} has no referrers API, and accepts no list under {fallback_tag(subject)}: {error}"
        raise Refused(message, REMEDY) from None


def _is_found(store: Store, subject: str, pushed: Descriptor, artifact_type: str) -> bool:
    """Return whether `read` finds a referrer, now or once the store shows recent writes."""
    for _ in store.settle():
        candidates = itertools.islice(_candidates(store, subject, artifact_type), MAX_READ)
        if any(entry.digest == pushed.digest for entry in candidates):
            return True
    return False


def _is_hidden(store: Store, subject: str) -> bool:
    """Return whether the fallback tag names the subject itself, so that no list can be under it."""
    try:
        return store.resolve(fallback_tag(subject)).digest == subject
    except NotFound:
        return False


def fallback_tag(digest: str) -> str:
    """Return the tag that lists the referrers of a manifest if there is no referrers API."""
    return f"sha256-{digests.hex_digits(digest)}"


def _list(store: Store, digest: str, added: Descriptor, annotations: dict[str, str]) -> None:
    """Add one entry to the list under the fallback tag; other entries stay unchanged."""
    tag = fallback_tag(digest)
    entry = msgspec.to_builtins(msgspec.structs.replace(added, annotations=annotations))
    empty = {"schemaVersion": 2, "mediaType": manifest.INDEX_TYPE, "manifests": []}
    pauses = store.settle()
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
