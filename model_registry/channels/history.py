"""Encodes and decodes the moves of channels as history entries, and chooses the move that a rollback restores.

A history entry is a small artifact with the actor, time, reason and target of one move as annotations.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from model_registry.channels.roles import Role
from model_registry.errors import Corrupt, NotFound, Refused
from model_registry.oci import manifest
from model_registry.oci.manifest import Descriptor, Manifest
from model_registry.signing import bundle
from model_registry.signing.keys import PrivateKey
from model_registry.untrusted_input import json_documents

HISTORY_TYPE = "application/vnd.scorestream.promotion.v1+json"
EVIDENCE_TYPE = "application/vnd.scorestream.evidence.v1+json"
NOTE = "io.scorestream.promotion."
NAMES = {
    "channel": "channel",
    "revision": "revision",
    "actor": "actor",
    "reason": "reason",
    "at": "at",
    "from_digest": "from",
    "from_version": "from-version",
    "to_digest": "to",
    "to_version": "to-version",
    "roles": "roles",
    "restores": "restores",
    "history": "history",
}
"""The name of each attribute of ChannelMove in annotations and signed statements. `evidence` and `signature` are not listed."""
EVIDENCE = "evidence"
_HISTORY_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class ChannelMove:
    """One move of a channel, as a history entry records it.

    The *target* of a channel is the manifest that the channel's tag names. A move replaces the target.

    Attributes:
        revision: The number of the move, counted from 1 in each channel.
        at: The time, in UTC.
        from_digest: The digest of the previous target; None for the first move.
        from_version: The previous champion; None for the first move.
        to_digest: The digest of the new target: a version's manifest, or an index of `roles`.
        to_version: The new champion.
        roles: The roles in the index; empty if the target is a single version.
        restores: The revision whose champion a rollback restored; None for a promotion.
        evidence: The digest of the JSON document that justifies the move; None if there is none.
        signature: The digest of the signed statement about the move; None if there is none. Decoding does not verify it.
        history: The id of the channel's history, which the first move creates and every further move repeats. A channel that
            is created again gets another id. None if the entry has no id, because an older release wrote it.
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
    history: str | None = field(default=None, compare=False)

    @property
    def champion(self) -> str:
        """The manifest digest of the new champion."""
        return self.roles[0].digest if self.roles else self.to_digest


def annotation_values(move: ChannelMove) -> dict[str, str]:
    """Return the attributes in NAMES and `evidence` of a move as text, by their annotation names. None values are left out."""
    values: dict[str, Any] = {name: getattr(move, attribute) for attribute, name in NAMES.items()}
    values["at"] = move.at.isoformat(timespec="milliseconds")
    values["roles"] = msgspec.json.encode(move.roles).decode() if move.roles else None
    values[EVIDENCE] = move.evidence
    return {name: str(value) for name, value in values.items() if value is not None}


def model_name(repository: str) -> str:
    """Return the model's name, which is the last part of the repository's path. A copy of a repository should keep the name."""
    return repository.rpartition("/")[2]


def sign(move: ChannelMove, repository: str, key: PrivateKey) -> bytes:
    """Return a Sigstore bundle: a signed statement of all values of a move and of the model's name."""
    predicate = {"model": model_name(repository), **annotation_values(move)}
    return bundle.build(bundle.build_statement(move.to_digest, bundle.MOVED, predicate), key)


def encode(move: ChannelMove, content: Descriptor, subject: Descriptor, signature: Descriptor | None = None) -> bytes:
    """Encode a history entry's manifest.

    Args:
        move: The move to record.
        content: The descriptor of the evidence, or of the empty blob if there is no evidence.
        subject: The descriptor of the manifest that the channel names after this move.
        signature: The descriptor of the signed statement about the move; None if the move is not signed.
    """
    annotations = {NOTE + name: value for name, value in annotation_values(move).items() if name != EVIDENCE}
    layers = (content,) if signature is None else (content, signature)
    return manifest.build(HISTORY_TYPE, content, layers, annotations, subject=subject)


def decode(data: bytes, channel: str, revision: int, source: str) -> ChannelMove:
    """Decode the manifest of a history entry.

    Raises Corrupt, with `source` in its message, if `data` is not the entry of this channel and revision.
    """
    parsed = manifest.parse(data)
    values: dict[str, Any] = {
        attribute: parsed.annotations[NOTE + name] for attribute, name in NAMES.items() if NOTE + name in parsed.annotations
    }
    try:
        values["roles"] = json_documents.ANY.decode(values.get("roles", "[]"))
        values["at"] = datetime.fromisoformat(values["at"]).astimezone(UTC)
        values |= {name: int(values[name]) for name in ("revision", "restores") if name in values}
        values["evidence"] = _first_layer(parsed, EVIDENCE_TYPE)
        values["signature"] = _first_layer(parsed, bundle.MEDIA_TYPE)
        if not _HISTORY_ID.fullmatch(values.get("history", "")):  # other text must not get into committed offsets
            values["history"] = None
        move = msgspec.convert({"from_digest": None, "from_version": None, **values}, ChannelMove)
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise Corrupt(f"{source} cannot be read: {error!r}") from None
    if parsed.artifact_type != HISTORY_TYPE or (move.channel, move.revision) != (channel, revision):
        raise Corrupt(f"{source} has the content of another entry")
    return move


def _first_layer(parsed: Manifest, media_type: str) -> str | None:
    return next((layer.digest for layer in parsed.layers if layer.media_type == media_type), None)


def completed_moves(moves: Sequence[ChannelMove], current: str | None) -> list[ChannelMove]:
    """Return the moves that were completed: after such a move, the channel's tag named the move's target.

    Args:
        moves: All moves of a channel, oldest first.
        current: The digest that the channel names now.
    """
    # An earlier move is completed if the next move starts from its target. The last move is completed if the channel names its
    # target now. All other moves were interrupted, refused by the registry, or are in progress.
    ends = [*(move.from_digest for move in moves[1:]), current]
    return [move for move, end in zip(moves, ends, strict=True) if move.to_digest == end]


def rollback_target(moves: Sequence[ChannelMove], current: str | None) -> ChannelMove:
    """Return the move whose champion a rollback restores: the last completed move to another version than the current one.

    After promotions of A, B and C a rollback restores B, and a second rollback restores A.

    Args:
        moves: All moves of a channel, oldest first.
        current: The digest that the channel names now.

    Raises:
        NotFound: The channel has no history.
        Refused: The channel has named no other version before.
    """
    # A rollback does not restore a version from which an earlier rollback moved the channel away.
    if not moves:
        raise NotFound("the channel has no history", "create it with `model-registry promote REPO --to VERSION`")
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
        hint = "model-registry history lists all moves; --to-revision restores any of them"
        raise Refused(f"the channel {moves[-1].channel!r} has served no version before its current one", hint)
    return path[-1]
