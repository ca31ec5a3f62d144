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
from model_registry.signing import bundle
from model_registry.signing.keys import PrivateKey
from model_registry.untrusted_input import documents

HISTORY_TYPE = "application/vnd.scorestream.promotion.v1+json"
EVIDENCE_TYPE = "application/vnd.scorestream.evidence.v1+json"
NOTE = "io.scorestream.promotion."
NAMES = {
    "channel": "channel", "revision": "revision", "actor": "actor", "reason": "reason", "at": "at", "from_digest": "from",
    "from_version": "from-version", "to_digest": "to", "to_version": "to-version", "roles": "roles", "restores": "restores",
}  # fmt: skip
"""What the annotations of a history entry call the attributes of its move."""
EVIDENCE = "evidence"


@dataclass(frozen=True, slots=True)
class ChannelMove:
    """One move of a channel. `from_*` is None for the first one; `at` is in UTC; versions are the champions'.

    `roles` is empty where the channel names a version alone; else `to_digest` is an index's. `restores` is the revision that
    a rollback went back to, None for a promotion. `evidence` is the digest of the document that the move was decided by, where
    there is one. `signature` is the digest of the signed statement about the move, where its entry has one; it is not
    verified.
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
    signature: str | None = None

    @property
    def champion(self) -> str:
        """The digest of the version that answers."""
        return self.roles[0].digest if self.roles else self.to_digest


def annotation_values(move: ChannelMove) -> dict[str, str]:
    """What a history entry states of its move, by the names of its annotations; the digest of the evidence too."""
    values: dict[str, Any] = {name: getattr(move, attribute) for attribute, name in NAMES.items()}
    values["at"] = move.at.isoformat(timespec="milliseconds")
    values["roles"] = msgspec.json.encode(move.roles).decode() if move.roles else None
    values[EVIDENCE] = move.evidence
    return {name: str(value) for name, value in values.items() if value is not None}


def model_name(repository: str) -> str:
    """The name of the model in a repository: the last part, which a copy of the repository has too."""
    return repository.rpartition("/")[2]


def sign(move: ChannelMove, repository: str, key: PrivateKey) -> bytes:
    """A signed statement (a bundle) about everything that the entry of a move in this repository states."""
    predicate = {"model": model_name(repository), **annotation_values(move)}
    return bundle.build(bundle.build_statement(move.to_digest, bundle.MOVED, predicate), key)


def encode(move: ChannelMove, content: Descriptor, subject: Descriptor, signature: Descriptor | None = None) -> bytes:
    """The history entry's manifest. `content` is the evidence, or the empty blob; `subject` what the channel names from now;
    `signature` the signed statement about the move, where there is one."""
    annotations = {NOTE + name: value for name, value in annotation_values(move).items() if name != EVIDENCE}
    layers = (content,) if signature is None else (content, signature)
    return manifest.build(HISTORY_TYPE, content, layers, annotations, subject=subject)


def decode(data: bytes, channel: str, revision: int, what: str) -> ChannelMove:
    """The entry of this channel and revision. Raises Corrupt, naming `what`, where it is another entry, or none."""
    parsed = manifest.parse(data)
    found: dict[str, Any] = {a: parsed.annotations[NOTE + n] for a, n in NAMES.items() if NOTE + n in parsed.annotations}
    try:
        found["roles"] = documents.ANY.decode(found.get("roles", "[]"))
        found["at"] = datetime.fromisoformat(found["at"]).astimezone(UTC)
        found |= {number: int(found[number]) for number in ("revision", "restores") if number in found}
        found["evidence"] = next((each.digest for each in parsed.layers if each.media_type == EVIDENCE_TYPE), None)
        found["signature"] = next((each.digest for each in parsed.layers if each.media_type == bundle.MEDIA_TYPE), None)
        move = msgspec.convert({"from_digest": None, "from_version": None, **found}, ChannelMove)
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise Corrupt(f"{what} does not read: {error!r}") from None
    if parsed.artifact_type != HISTORY_TYPE or (move.channel, move.revision) != (channel, revision):
        raise Corrupt(f"{what} names another entry")
    return move


def completed_moves(moves: Sequence[ChannelMove], current: str | None) -> list[ChannelMove]:
    """Return the moves that the channel followed: the next move, or `current`, begins where each ends. Pure.

    The others were broken off, refused by the registry, or are under way. `moves` are all of a channel, oldest first, and
    `current` is the digest that it names now.
    """
    ends = [*(move.from_digest for move in moves[1:]), current]
    return [move for move, end in zip(moves, ends, strict=True) if move.to_digest == end]


def rollback_target(moves: Sequence[ChannelMove], current: str | None) -> ChannelMove:
    """The move that a rollback restores: what the channel served before `current`, the digest that it names now. Pure.

    A version that was gone back from is not come back to: after promotions of A, B and C a rollback restores B, a second one
    A. Moves that were broken off before the tag was moved play no part. Raises Refused where nothing is left, NotFound where
    there is no history. `moves` is oldest first.
    """
    if not moves:
        raise NotFound("the channel has no history", "model-registry promote REPO --to VERSION makes it")
    by_revision = {move.revision: move for move in moves}
    path: list[ChannelMove] = []
    for move in completed_moves(moves, current):
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
