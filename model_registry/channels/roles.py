"""Roles of versions in one channel: the champion answers events, a canary answers those of a share of the record keys.

A shadow scores the champion's events, but its scores are not published as answers. A channel with a canary or a shadow names an
OCI index. The index's descriptors carry role and weight as annotations. `promote --canary` and `promote --shadow` write this
index.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from model_registry.errors import BadReference, Corrupt
from model_registry.oci import manifest
from model_registry.oci.manifest import Descriptor, ImageIndex

CHANNEL_TYPE = "application/vnd.scorestream.channel.v1+json"
ROLE = "io.scorestream.role"
WEIGHT = "io.scorestream.weight"
PAIRS = "io.scorestream.pairs"
CHAMPION = "champion"
CANARY = "canary"
SHADOW = "shadow"
WHOLE = 100


@dataclass(frozen=True, slots=True)
class Role:
    """The role of one version in a channel.

    Attributes:
        role: `champion`, `canary` or `shadow`.
        digest: The digest of the version's manifest.
        weight: The percentage of record keys that the version answers; 0 for a shadow.
        pairs: For a canary or shadow, the percentage of record keys whose events both this version and the champion score, so
            that the scores can be compared. With 0, each scorer uses the percentage in its own settings.
    """

    role: str
    version: str
    digest: str
    weight: int
    pairs: int = 0


def parse(data: bytes) -> tuple[Role, ...]:
    """Return the roles in a channel's index, the champion first; an empty tuple if `data` is no index of roles.

    Raises:
        Corrupt: The index has an invalid set of roles.
    """
    if not manifest.is_index(data):
        return ()
    parsed = manifest.parse_index(data)
    if parsed.artifact_type != CHANNEL_TYPE:
        return ()
    roles = [_role(entry) for entry in parsed.manifests]
    order = (CHAMPION, CANARY, SHADOW)
    if unknown := [role.role for role in roles if role.role not in order]:
        raise Corrupt(f"the channel's index has the role {unknown[0]!r}; roles are {', '.join(order)}")
    answering = [role for role in roles if role.role != SHADOW]
    if [role.role for role in answering].count(CHAMPION) != 1:
        raise Corrupt("the channel's index does not have exactly one champion")
    if len(answering) > 2:
        raise Corrupt(f"the channel's index has {len(answering) - 1} canaries; a channel has at most one")
    if len({role.digest for role in answering}) != len(answering):
        raise Corrupt("the channel's index has one version in two roles")
    if sum(role.weight for role in answering) != WHOLE or any(role.weight < 1 for role in answering):
        raise Corrupt(f"the shares in the channel's index do not add up to {WHOLE} percent")
    return tuple(sorted(roles, key=lambda role: order.index(role.role)))


def _role(entry: Descriptor) -> Role:
    notes = entry.annotations
    try:
        role = Role(notes[ROLE], notes[manifest.VERSION], entry.digest, int(notes[WEIGHT]), int(notes.get(PAIRS, "0")))
    except (KeyError, ValueError) as error:
        raise Corrupt(f"an entry of the channel's index cannot be read: {error!r}") from None
    if not 0 <= role.pairs <= WHOLE:
        raise Corrupt(f"the share of pairs in the channel's index is {role.pairs} percent; it must be from 0 to {WHOLE}")
    return role


NamedVersion = tuple[str, Descriptor]
"""The name of a version, and the descriptor of the version's manifest."""


def with_canary(champion: NamedVersion, canary: NamedVersion, percent: int, pairs: int = 0) -> bytes:
    """Encode the index of a champion and a canary; the canary answers `percent` of the record keys, the champion the rest.

    For `pairs` see Role. Equal arguments give equal bytes.
    """
    return _document((CHAMPION, WHOLE - percent, 0, champion), (CANARY, percent, pairs, canary))


def with_shadow(champion: NamedVersion, shadow: NamedVersion, pairs: int = 0) -> bytes:
    """Encode the index of a champion, which answers all record keys, and a shadow.

    For `pairs` see Role. Equal arguments give equal bytes.
    """
    return _document((CHAMPION, WHOLE, 0, champion), (SHADOW, 0, pairs, shadow))


def _document(*parts: tuple[str, int, int, NamedVersion]) -> bytes:
    entries = []
    for role, weight, pairs, (version, descriptor) in parts:
        annotations = {ROLE: role, WEIGHT: str(weight), manifest.VERSION: version}
        if pairs:
            annotations[PAIRS] = str(pairs)
        entries.append(msgspec.structs.replace(descriptor, annotations=annotations))
    return manifest.encode(
        ImageIndex(schema_version=2, media_type=manifest.INDEX_TYPE, artifact_type=CHANNEL_TYPE, manifests=tuple(entries))
    )


def parse_percent(text: str) -> int:
    """Parse a canary's share, such as `5%` or `5`: a whole percentage from 1 to 99. Raises BadReference."""
    number = text.strip().removesuffix("%").rstrip()
    if not (number.isascii() and number.isdigit() and 1 <= int(number[:4]) < WHOLE and len(number) < 4):
        hint = "write --canary 5%; without --canary the version answers all keys"
        raise BadReference(
            f"{text!r:.40} is not a valid share of a canary: it must be a whole percentage from 1 to {WHOLE - 1}", hint
        )
    return int(number)


def find_canary(roles: Sequence[Role]) -> Role | None:
    """Return the role of the canary; None if there is no canary."""
    return next((role for role in roles if role.role == CANARY), None)


def find_candidate(roles: Sequence[Role]) -> Role | None:
    """Return the role of the version to compare with the champion: the canary, else the first shadow; None without either."""
    return find_canary(roles) or next((role for role in roles if role.role == SHADOW), None)


def format_roles(roles: Sequence[Role]) -> str:
    """Format roles for people: `champion 1.4.0 90 %, canary 1.5.0 10 %, shadow 2.0.0`."""
    return ", ".join(f"{role.role} {role.version}" + (f" {role.weight} %" if role.weight else "") for role in roles)
