"""Artifacts that belong to a manifest (its referrers), in any store.

Where a store has no referrers API, they are listed in an OCI index under the tag `sha256-<hex>` of the manifest they belong to
(distribution-spec 1.1, "Referrers Tag Schema"). A list only says where to look: each manifest itself must name the subject.
"""

import io
from collections.abc import Iterator
from typing import Any

import msgspec

from model_registry.errors import Conflict, Corrupt, NotFound
from model_registry.oci import digests, manifest
from model_registry.oci.manifest import Descriptor, Manifest
from model_registry.stores import Store

MAX_READ = 256  # referrers looked into: a writer to the store can list any number
ATTEMPTS = 20
EMPTY = manifest.content(manifest.EMPTY_TYPE, manifest.EMPTY)


def listed(store: Store, digest: str) -> list[Descriptor]:
    """What the store lists as the referrers of a manifest, unchecked. Raises Unreachable; Corrupt for an unreadable list."""
    answer = store.referrers(digest)
    if answer is not None:
        return answer
    try:
        index = store.resolve(fallback_tag(digest)).digest
    except NotFound:
        return []
    return list(manifest.parse_index(store.manifest(index)).manifests)


def read(store: Store, digest: str, artifact_type: str) -> Iterator[tuple[Descriptor, Manifest | Corrupt | NotFound]]:
    """The referrers of one type, each with its manifest, or with why it cannot be used; at most MAX_READ are looked into.

    An entry that is listed as another type is passed over unread; as no type counts what some registries list, the type of the
    empty config. Raises what `listed` raises.
    """
    there = listed(store, digest)
    candidates = [found for found in there if found.artifact_type == artifact_type]
    candidates += [found for found in there if found.artifact_type in (None, "", manifest.EMPTY_TYPE)]
    for found in candidates[:MAX_READ]:
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
    if len(candidates) > MAX_READ:
        left = f"{len(candidates)} referrers of {digest} are listed; only {MAX_READ} were looked into"
        yield candidates[MAX_READ], Corrupt(left)


def attach(store: Store, digest: str, artifact_type: str, content: bytes, annotations: dict[str, str]) -> Descriptor:
    """Store `content` as an artifact of one layer that refers to the manifest `digest`.

    Raises NotFound (no such manifest), Conflict where the list of referrers changed with every attempt, Unreachable.
    """
    layer = manifest.content(artifact_type, content)
    document = build(store, digest, artifact_type, (layer,), annotations)
    store.push_blob(layer, io.BytesIO(content))
    return refer(store, document)


def build(store: Store, digest: str, artifact_type: str, layers: tuple[Descriptor, ...], annotations: dict[str, str]) -> bytes:
    """The manifest of an artifact of these layers that refers to the manifest `digest`. Raises NotFound, Unreachable."""
    about = store.manifest(digest)
    subject = manifest.content(manifest.describe(about).media_type, about)
    return manifest.build(artifact_type, EMPTY, layers, annotations, subject)


def refer(store: Store, document: bytes) -> Descriptor:
    """Store what `build` made, whose layers are stored, and list it with what it belongs to. Once stored and listed it is left
    as it is. Raises as `attach` does, NotFound also where a layer is missing."""
    store.push_blob(EMPTY, io.BytesIO(manifest.EMPTY))
    pushed, made = store.push_manifest(document), manifest.parse(document)
    if made.subject is not None and store.referrers(made.subject.digest) is None:
        _list(store, made.subject.digest, pushed, made.annotations)
    return pushed


def fallback_tag(digest: str) -> str:
    """The tag that lists the referrers of a manifest where there is no referrers API."""
    return f"sha256-{digests.hex_of(digest)}"


def _list(store: Store, digest: str, added: Descriptor, annotations: dict[str, str]) -> None:
    """Add one entry to the list under the fallback tag; entries of others stay as they are."""
    tag = fallback_tag(digest)
    entry = msgspec.to_builtins(msgspec.structs.replace(added, annotations=annotations))
    for attempt in range(ATTEMPTS):
        try:
            current = store.resolve(tag).digest
            data = store.manifest(current)
            if any(there.digest == added.digest for there in manifest.parse_index(data).manifests):
                return
            index = manifest.decode(data, dict[str, Any], "the list of referrers")
        except NotFound:
            current, index = None, {"schemaVersion": 2, "mediaType": manifest.INDEX_TYPE, "manifests": []}
        pushed = store.push_manifest(manifest.encode(index | {"manifests": [*index["manifests"], entry]}))
        try:
            store.move_tags({tag: pushed}, expect={tag: current})
            return
        except Conflict:  # somebody else added one in between
            if attempt == ATTEMPTS - 1:
                raise
