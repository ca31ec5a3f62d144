"""A channel that names several versions by role, as a later release may write it; this release has no such command."""

import io
from collections.abc import Sequence
from datetime import UTC

from msgspec.structs import replace

from model_registry.channels import channel, history
from model_registry.channels.history import ChannelMove
from model_registry.channels.roles import CHANNEL_TYPE, ROLE, WEIGHT, Role
from model_registry.oci import manifest, tags
from model_registry.oci.manifest import Descriptor, ImageIndex
from model_registry.stores.base import Store
from tests.conformance.store import described
from tests.unit.model_registry.conftest import NOW


def build(parts: Sequence[tuple[Role, Descriptor]]) -> bytes:
    """Build the index of a channel; each `Descriptor` is the manifest of a version."""
    notes = [{ROLE: role.role, WEIGHT: str(role.weight), manifest.VERSION: role.version} for role, _ in parts]
    entries = tuple(replace(at, annotations=note) for (_, at), note in zip(parts, notes, strict=True))
    return manifest.encode(
        ImageIndex(schema_version=2, media_type=manifest.INDEX_TYPE, artifact_type=CHANNEL_TYPE, manifests=entries)
    )


def promote(store: Store, *assignments: tuple[str, str, int]) -> ChannelMove:
    """Move `prod` to versions by role and weight, the champion first."""
    parts = [
        (Role(role, version, store.resolve(version).digest, weight), store.resolve(version))
        for role, version, weight in assignments
    ]
    target = store.push_manifest(build(parts))
    past = channel.history(store, "prod")
    digest, version = (past[-1].to_digest, past[-1].to_version) if past else (None, None)
    roles = tuple(role for role, _ in parts)
    move = ChannelMove(
        "prod", len(past) + 1, "op@host", "", NOW.astimezone(UTC), digest, version, target.digest, assignments[0][1], roles
    )
    store.push_blob(described(b"{}"), io.BytesIO(b"{}"))
    entry = store.push_manifest(history.encode(move, described(b"{}"), target))
    store.move_tags({tags.history_tag("prod", move.revision): entry, "prod": target}, expect={})
    return move
