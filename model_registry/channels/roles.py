"""Roles of versions in one channel: the champion answers, canaries answer a share of the keys, shadows score unseen.

A channel with more than a champion names an OCI index, whose descriptors carry the role and the weight as annotations. Such an
index is read, so that its champion is served; none is written before scorers act on the other roles.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from model_registry.errors import Corrupt
from model_registry.oci import manifest
from model_registry.oci.manifest import Descriptor

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
