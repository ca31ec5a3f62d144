"""Roles of versions in one channel: the champion answers, a canary answers a share of the keys, shadows score unseen.

A channel with more than a champion names an OCI index, whose descriptors carry the role and the weight as annotations. It is
written by `promote --canary` and `promote --shadow`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from model_registry.errors import BadReference, Corrupt
from model_registry.oci import manifest
from model_registry.oci.manifest import Descriptor, ImageIndex

CHANNEL_TYPE = "application/vnd.scorestream.channel.v1+json"
ROLE, WEIGHT, PAIRS = "io.scorestream.role", "io.scorestream.weight", "io.scorestream.pairs"
CHAMPION, CANARY, SHADOW = "champion", "canary", "shadow"
WHOLE = 100


@dataclass(frozen=True, slots=True)
class Role:
    """One version's part. `weight` is its share of the answers in percent; a shadow has 0. `pairs`, of a candidate, is the
    percent of the keys that both versions are to score, 0: as whoever runs the shadow has set it."""

    role: str
    version: str
    digest: str
    weight: int
    pairs: int = 0


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
    if len(answering) > 2:
        raise Corrupt(f"the channel's index has {len(answering) - 1} canaries; a channel has one at most")
    if len({role.digest for role in answering}) != len(answering):
        raise Corrupt("the channel's index has one version in two roles")
    if sum(role.weight for role in answering) != WHOLE or any(role.weight < 1 for role in answering):
        raise Corrupt(f"the shares in the channel's index do not make up {WHOLE} percent")
    return tuple(sorted(roles, key=lambda role: order.index(role.role)))


def _role(entry: Descriptor) -> Role:
    notes = entry.annotations
    try:
        found = Role(notes[ROLE], notes[manifest.VERSION], entry.digest, int(notes[WEIGHT]), int(notes.get(PAIRS, "0")))
    except (KeyError, ValueError) as error:
        raise Corrupt(f"an entry of the channel's index does not read: {error!r}") from None
    if not 0 <= found.pairs <= WHOLE:
        raise Corrupt(f"an entry of the channel's index has {found.pairs} percent of pairs")
    return found


NamedVersion = tuple[str, Descriptor]
"""A version, and the descriptor of its manifest."""


def with_canary(champion: NamedVersion, canary: NamedVersion, percent: int, pairs: int = 0) -> bytes:
    """The document of a channel in which a canary answers `percent` of the keys. The same arguments give the same bytes."""
    return _document((CHAMPION, WHOLE - percent, 0, champion), (CANARY, percent, pairs, canary))


def with_shadow(champion: NamedVersion, shadow: NamedVersion, pairs: int = 0) -> bytes:
    """The document of a channel in which the champion answers everything, and a shadow scores unseen."""
    return _document((CHAMPION, WHOLE, 0, champion), (SHADOW, 0, pairs, shadow))


def _document(*parts: tuple[str, int, int, NamedVersion]) -> bytes:
    entries = []
    for role, weight, pairs, (version, at) in parts:
        notes = {ROLE: role, WEIGHT: str(weight), manifest.VERSION: version} | ({PAIRS: str(pairs)} if pairs else {})
        entries.append(msgspec.structs.replace(at, annotations=notes))
    return manifest.encode(
        ImageIndex(schema_version=2, media_type=manifest.INDEX_TYPE, artifact_type=CHANNEL_TYPE, manifests=tuple(entries))
    )


def parse_percent(text: str) -> int:
    """A canary's share as a person writes it: `5%` or `5`. Raises BadReference."""
    number = text.strip().removesuffix("%").rstrip()
    if not (number.isascii() and number.isdigit() and 1 <= int(number[:4]) < WHOLE and len(number) < 4):
        hint = "write --canary 5%; a version that is to answer everything is promoted without --canary"
        raise BadReference(f"{text!r:.40} is no share of a canary: whole percent from 1 to {WHOLE - 1}", hint)
    return int(number)


def find_canary(roles: Sequence[Role]) -> Role | None:
    """The canary among them, if there is one."""
    return next((role for role in roles if role.role == CANARY), None)


def find_candidate(roles: Sequence[Role]) -> Role | None:
    """The version that is compared with the champion: the canary, else the first shadow, if there is one."""
    return find_canary(roles) or next((role for role in roles if role.role == SHADOW), None)


def format_roles(roles: Sequence[Role]) -> str:
    """For people: `champion 1.4.0 90 %, canary 1.5.0 10 %, shadow 2.0.0`."""
    return ", ".join(f"{role.role} {role.version}" + (f" {role.weight} %" if role.weight else "") for role in roles)
