"""One move of a channel as it stands in the history: a small artifact whose annotations say who, when, why, from and to."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from model_registry.channels.roles import Role
from model_registry.errors import Corrupt, NotFound, Refused
from model_registry.oci import manifest
from model_registry.oci.manifest import Descriptor

HISTORY_TYPE = "application/vnd.scorestream.promotion.v1+json"
EVIDENCE_TYPE = "application/vnd.scorestream.evidence.v1+json"
NOTE = "io.scorestream.promotion."
NAMES = {
    "channel": "channel", "revision": "revision", "actor": "actor", "reason": "reason", "at": "at", "from_digest": "from",
    "from_version": "from-version", "to_digest": "to", "to_version": "to-version", "roles": "roles", "restores": "restores",
}  # fmt: skip
"""What the annotations of a history entry call the attributes of its move."""


@dataclass(frozen=True, slots=True)
class Move:
    """One move of a channel. `from_*` is None for the first one; `at` is in UTC; versions are the champions'.

    `roles` is empty where the channel names a version alone; else `to_digest` is an index's. `restores` is the revision that
    a rollback went back to, None for a promotion. `evidence` is the digest of the document that the move was decided by, where
    there is one.
    """

    channel: str
    revision: int
    actor: str
    reason: str
    at: datetime
    from_digest: str | None
    from_version: str | None
    to_digest: str
    to_version: str
    roles: tuple[Role, ...] = ()
    restores: int | None = None
    evidence: str | None = None

    @property
    def champion(self) -> str:
        """The digest of the version that answers."""
        return self.roles[0].digest if self.roles else self.to_digest


def encode(move: Move, content: Descriptor, subject: Descriptor) -> bytes:
    """The history entry's manifest. `content` is the evidence, or the empty blob; `subject` what the channel names from now."""
    stated: dict[str, Any] = {name: getattr(move, attribute) for attribute, name in NAMES.items()}
    stated["at"] = move.at.isoformat(timespec="milliseconds")
    stated["roles"] = msgspec.json.encode(move.roles).decode() if move.roles else None
    annotations = {NOTE + name: str(value) for name, value in stated.items() if value is not None}
    return manifest.build(HISTORY_TYPE, content, (content,), annotations, subject=subject)


def decode(data: bytes, channel: str, revision: int, what: str) -> Move:
    """The entry of this channel and revision. Raises Corrupt, naming `what`, where it is another entry, or none."""
    parsed = manifest.parse(data)
    stated: dict[str, Any] = {a: parsed.annotations[NOTE + n] for a, n in NAMES.items() if NOTE + n in parsed.annotations}
    try:
        stated["roles"] = msgspec.json.decode(stated.get("roles", "[]"))
        stated["at"] = datetime.fromisoformat(stated["at"]).astimezone(UTC)
        stated |= {number: int(stated[number]) for number in ("revision", "restores") if number in stated}
        stated["evidence"] = next((each.digest for each in parsed.layers if each.media_type == EVIDENCE_TYPE), None)
        move = msgspec.convert({"from_digest": None, "from_version": None, **stated}, Move)
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise Corrupt(f"{what} does not read: {error!r}") from None
    if parsed.artifact_type != HISTORY_TYPE or (move.channel, move.revision) != (channel, revision):
        raise Corrupt(f"{what} names another entry")
    return move


def before(moves: Sequence[Move], current: str | None) -> Move:
    """The move that a rollback restores: what the channel served before `current`, the digest that it names now. Pure.

    A version that was gone back from is not come back to: after promotions of A, B and C a rollback restores B, a second one
    A. Moves that were broken off before the tag was moved play no part. Raises Refused where nothing is left, NotFound where
    there is no history. `moves` is oldest first.
    """
    if not moves:
        raise NotFound("the channel has no history", "model-registry promote REPO --to VERSION makes it")
    by_revision = {move.revision: move for move in moves}
    ends = [*(move.from_digest for move in moves[1:]), current]
    path: list[Move] = []
    for move in (move for move, end in zip(moves, ends, strict=True) if move.to_digest == end):
        if move.restores is None:
            path.append(move)
        else:
            origin = by_revision.get(move.restores, move)
            path = [step for step in path if step.revision < origin.revision] + [origin]
    while path and current in (path[-1].to_digest, path[-1].champion):
        path.pop()
    if not path:
        hint = "model-registry history shows every move; --to-revision goes to any of them"
        raise Refused(f"the channel {moves[-1].channel!r} has served nothing before what it serves now", hint)
    return path[-1]
