"""Roles of versions in one channel: the champion answers, canaries answer a share of the keys, shadows score unseen.

A channel with more than a champion names an OCI index, whose descriptors carry the role and the weight as annotations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from model_registry import manifest
from model_registry.errors import BadReference, Corrupt
from model_registry.manifest import Descriptor, Index

CHANNEL_TYPE = "application/vnd.scorestream.channel.v1+json"
ROLE, WEIGHT = "io.scorestream.role", "io.scorestream.weight"
CHAMPION, CANARY, SHADOW = "champion", "canary", "shadow"
WHOLE = 100


@dataclass(frozen=True, slots=True)
class Role:
    """One version's part. `weight` is its share of the answers in percent; a shadow has 0."""

    role: str
    version: str
    digest: str
    weight: int


def check_shares(champion: str, canaries: Mapping[str, int], shadows: Sequence[str]) -> int:
    """What is left for the champion, in percent. Raises BadReference: nothing left, no share, a version twice."""
    for version, weight in canaries.items():
        if not 1 <= weight < WHOLE:
            raise BadReference(f"canary {version}={weight}", f"a canary's share is 1 to {WHOLE - 1} percent")
    rest = WHOLE - sum(canaries.values())
    if rest < 1:
        raise BadReference(f"canaries of {WHOLE - rest} percent together", "leave at least 1 percent for the champion")
    every = [champion, *canaries, *shadows]
    if twice := [version for version in every if every.count(version) > 1]:
        raise BadReference(f"version {twice[0]} has two roles", "give each role a version of its own")
    return rest


def build(roles: Sequence[tuple[Role, Descriptor]]) -> bytes:
    """The index of a channel; `Descriptor` is the version's manifest."""
    entries = tuple(
        msgspec.structs.replace(
            described,
            annotations={ROLE: role.role, WEIGHT: str(role.weight), manifest.VERSION: role.version},
        )
        for role, described in roles
    )
    document = Index(schema_version=2, media_type=manifest.INDEX_TYPE, artifact_type=CHANNEL_TYPE, manifests=entries)
    return manifest.encode(document)


def parse(data: bytes) -> tuple[Role, ...]:
    """The roles in a channel's document, the champion first; empty where it names a version alone. Raises Corrupt."""
    if not manifest.is_index(data):
        return ()
    parsed = manifest.parse_index(data)
    if parsed.artifact_type != CHANNEL_TYPE:
        return ()
    roles = [_role(entry) for entry in parsed.manifests]
    order = (CHAMPION, CANARY, SHADOW)
    if odd := [role.role for role in roles if role.role not in order]:
        raise Corrupt(f"the channel's index has the role {odd[0]!r}; roles are {', '.join(order)}")
    answering = [role for role in roles if role.role != SHADOW]
    if [role.role for role in answering].count(CHAMPION) != 1:
        raise Corrupt("the channel's index does not have exactly one champion")
    if sum(role.weight for role in answering) != WHOLE or any(role.weight < 1 for role in answering):
        raise Corrupt(f"the shares in the channel's index do not make up {WHOLE} percent")
    return tuple(sorted(roles, key=lambda role: order.index(role.role)))


def _role(entry: Descriptor) -> Role:
    notes = entry.annotations
    try:
        return Role(notes[ROLE], notes[manifest.VERSION], entry.digest, int(notes[WEIGHT]))
    except (KeyError, ValueError) as error:
        raise Corrupt(f"an entry of the channel's index does not read: {error!r}") from None


def shown(roles: Sequence[Role]) -> str:
    """For people: `champion 1.4.0 90 %, canary 1.5.0 10 %, shadow 2.0.0`."""
    return ", ".join(f"{role.role} {role.version}" + (f" {role.weight} %" if role.weight else "") for role in roles)
