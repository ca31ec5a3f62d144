"""Artifacts that belong to a manifest (its referrers), in any store.

Where a store has no referrers API, they are listed in an OCI index under the tag `sha256-<hex>` of the manifest they belong to
(distribution-spec 1.1, "Referrers Tag Schema"). A list only says where to look: each manifest itself must name the subject.
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

MAX_READ = 256  # referrers looked into: a writer to the store can list any number
ATTEMPTS = 20
OVERWRITTEN = 3  # times that a list is written which does not name the referrer afterwards
REMEDY = "keep signed versions in a registry with the referrers API, or with tags that may move (OCI distribution-spec 1.1)"
EMPTY = manifest.describe_content(manifest.EMPTY_TYPE, manifest.EMPTY)


def listed(store: Store, digest: str) -> list[Descriptor]:
    """Return the listed referrers of a manifest, unchecked. Raises Unreachable; Corrupt for an unreadable list."""
    every = {entry.digest: entry for entries in _lists(store, digest) for entry in entries}
    return list(every.values())


def _lists(store: Store, digest: str) -> Iterator[list[Descriptor]]:
    """Yield the referrers API's list, if there is that API, then the one under the fallback tag.

    A registry can have both: the API may be newer than an entry, or answer without knowing of the subject.
    """
    answer = store.referrers(digest)
    if answer is not None:
        yield answer
    yield _tagged(store, digest)


def _tagged(store: Store, digest: str) -> list[Descriptor]:
    """Return the list under the fallback tag.

    Some registries read the tag `sha256-<hex>` as the digest and answer with the manifest itself: that lists nothing.
    """
    try:
        index = store.resolve(fallback_tag(digest)).digest
    except NotFound:
        return []
    return [] if index == digest else list(manifest.parse_index(store.manifest(index)).manifests)


def read(store: Store, digest: str, artifact_type: str) -> Iterator[tuple[Descriptor, Manifest | Corrupt | NotFound]]:
    """The referrers of one type, each with its manifest, or with why it cannot be used; at most MAX_READ are looked into.

    An entry that is listed as another type is passed over unread; as no type counts what some registries list, the type of the
    empty config. Raises what `listed` raises.
    """
    for number, found in enumerate(_candidates(store, digest, artifact_type)):
        if number == MAX_READ:
            left = f"more than {MAX_READ} referrers of {digest} are listed; only {MAX_READ} were looked into"
            yield found, Corrupt(left)
            return
        try:
            parsed = manifest.parse(store.manifest(found.digest))
        except (Corrupt, NotFound) as error:
            yield found, error
            continue
        if (parsed.artifact_type or parsed.config.media_type) != artifact_type:
            continue
        if parsed.subject is None or parsed.subject.digest != digest:
            yield found, Corrupt(f"{found.digest} is listed as a referrer of {digest}, but belongs to something else")
            continue
        yield found, parsed


def _candidates(store: Store, digest: str, artifact_type: str) -> Iterator[Descriptor]:
    """Yield the entries of a type, then those without one, of each list. A later list is fetched when it is reached."""
    before: set[str] = set()
    for entries in _lists(store, digest):
        fresh = [found for found in entries if found.digest not in before]
        typed = [found for found in fresh if found.artifact_type == artifact_type]
        typed += [found for found in fresh if found.artifact_type in (None, "", manifest.EMPTY_TYPE)]
        yield from typed
        before |= {found.digest for found in typed}  # a list may have a wrong type where the next one has the right one


def attach(store: Store, digest: str, artifact_type: str, content: bytes, annotations: dict[str, str]) -> Descriptor:
    """Store `content` as an artifact of one layer that refers to the manifest `digest`.

    Raises NotFound (no such manifest), Conflict where the list of referrers changed with every attempt, Unreachable.
    """
    layer = manifest.describe_content(artifact_type, content)
    document = build(store, digest, artifact_type, (layer,), annotations)
    store.push_blob(layer, io.BytesIO(content))
    return refer(store, document)


def build(store: Store, digest: str, artifact_type: str, layers: tuple[Descriptor, ...], annotations: dict[str, str]) -> bytes:
    """The manifest of an artifact of these layers that refers to the manifest `digest`. Raises NotFound, Unreachable."""
    about = store.manifest(digest)
    subject = manifest.describe_content(manifest.describe_manifest(about).media_type, about)
    return manifest.build(artifact_type, EMPTY, layers, annotations, subject)


def refer(store: Store, document: bytes) -> Descriptor:
    """Store what `build` made, whose layers are stored, and list it with its subject. Once stored and listed it stays as it is.

    Where the store does not confirm that it lists the manifest, the list under the fallback tag is updated (distribution-spec
    1.1, "Pushing Manifests with Subject"). Raises as `attach` does, NotFound also where a layer is missing, Refused and
    Conflict where the store does not list it afterwards: no reader would find it.
    """
    store.push_blob(EMPTY, io.BytesIO(manifest.EMPTY))
    pushed, confirmed = store.push_referrer(document)
    made = manifest.parse(document)
    if made.subject is None:
        return pushed
    subject, artifact_type = made.subject.digest, made.artifact_type or made.config.media_type
    if confirmed and _is_found(store, subject, pushed, artifact_type):
        return pushed
    for _ in range(OVERWRITTEN):
        _list_under_tag(store, subject, pushed, made.annotations)
        if _is_found(store, subject, pushed, artifact_type):
            return pushed
    message = (
        f"{store.repository} stored {pushed.digest} and does not list it with {subject}: its list was overwritten by others"
    )
    raise Conflict(message, f"one writer at a time; {REMEDY}")


def _list_under_tag(store: Store, subject: str, pushed: Descriptor, annotations: dict[str, str]) -> None:
    """Add a referrer to the list under the fallback tag. Raises Refused where the store lets no list be there."""
    try:
        _list(store, subject, pushed, annotations)
    except (Refused, Unreachable) as error:
        if isinstance(error, Unreachable) and not _is_hidden(store, subject):
            raise
        message = f"{store.repository} has no referrers API, and takes no list under {fallback_tag(subject)}: {error}"
        raise Refused(message, REMEDY) from None


def _is_found(store: Store, subject: str, pushed: Descriptor, artifact_type: str) -> bool:
    """Whether `read` finds a referrer, now or once the store's writes are visible."""
    for _ in store.settle():
        looked_into = itertools.islice(_candidates(store, subject, artifact_type), MAX_READ)
        if any(entry.digest == pushed.digest for entry in looked_into):
            return True
    return False


def _is_hidden(store: Store, subject: str) -> bool:
    """Whether the fallback tag names the subject itself, so that no list can be under it."""
    try:
        return store.resolve(fallback_tag(subject)).digest == subject
    except NotFound:
        return False


def fallback_tag(digest: str) -> str:
    """The tag that lists the referrers of a manifest where there is no referrers API."""
    return f"sha256-{digests.hex_digits(digest)}"


def _list(store: Store, digest: str, added: Descriptor, annotations: dict[str, str]) -> None:
    """Add one entry to the list under the fallback tag; entries of others stay as they are."""
    tag = fallback_tag(digest)
    entry = msgspec.to_builtins(msgspec.structs.replace(added, annotations=annotations))
    empty = {"schemaVersion": 2, "mediaType": manifest.INDEX_TYPE, "manifests": []}
    pauses = store.settle()
    for attempt in range(ATTEMPTS):
        try:
            current = store.resolve(tag).digest
            data = manifest.encode(empty) if current == digest else store.manifest(current)
            if any(there.digest == added.digest for there in manifest.parse_index(data).manifests):
                return
            index = manifest.decode(data, dict[str, Any], "the list of referrers")
        except NotFound:
            current, index = None, empty
        pushed = store.push_manifest(manifest.encode(index | {"manifests": [*index["manifests"], entry]}))
        try:
            store.move_tags({tag: pushed}, expect={tag: current})
            return
        except Conflict:  # somebody else added one in between
            if attempt == ATTEMPTS - 1:
                raise
            next(pauses, None)
