"""Signed moves of channels: a signed statement in a history entry about what the channel names from this revision on.

The statement is a bundle as signatures of versions are (bundle.py), and a layer of the entry, so that entry and signature are
written in one step. Its subject is the manifest that the channel names: a version, or the index with the roles and weights. Its
predicate repeats the whole entry and the model's name, the last part of the repository, so that a copy of the repository in
another registry is valid too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from model_registry.channels.channel import Resolution
from model_registry.channels.history import EVIDENCE, NAMES, ChannelMove, annotation_values, decode, model_name
from model_registry.errors import Conflict, Corrupt, Refused, RegistryError
from model_registry.oci import digests, manifest, tags
from model_registry.signing import bundle, signatures
from model_registry.signing.policy import Policy, read
from model_registry.signing.signature_cache import SignatureCache
from model_registry.signing.signatures import TrustedKey
from model_registry.stores.base import Store


@dataclass(frozen=True, slots=True)
class SignedMove:
    """A move that a trusted key signed: its entry, the key's id, and the bundle."""

    move: ChannelMove
    key_id: str
    data: bytes


def verify(store: Store, channel: str, revision: int, keys: Sequence[TrustedKey], now: datetime) -> SignedMove:
    """The move of a channel to a revision, as a trusted key signed it.

    Raises Refused where no trusted key signed this entry, with the reason; NotFound, Corrupt and Unreachable as the store does.
    """
    tag = tags.history_tag(channel, revision)
    entry = store.manifest(store.resolve(tag).digest)
    move = decode(entry, channel, revision, f"the history tag {tag} of {store.repository}")
    layers = [layer for layer in manifest.parse(entry).layers if layer.media_type == bundle.MEDIA_TYPE]
    if len(layers) != 1 or layers[0].size > bundle.MAX_BYTES:
        raise _unsigned(move, "its history entry has no signature" if not layers else "its signature is not one small bundle")
    data = b"".join(store.blob(layers[0]))
    try:
        statement, key_id = signatures.check(data, move.to_digest, keys, now)
    except (Corrupt, Refused) as error:
        raise _unsigned(move, str(error)) from None
    if statement.predicate_type != bundle.MOVED:
        raise _unsigned(move, "the statement that is signed is no move")
    signed = statement.predicate
    expected = {"model": model_name(store.repository), **annotation_values(move)}
    if wrong := [name for name, value in expected.items() if signed.get(name) != value]:
        name = wrong[0]
        raise _unsigned(move, f"{key_id!r} signed {name} {signed.get(name)!r:.100}, not {expected[name]!r:.100}")
    if extra := sorted(signed.keys() & {*NAMES.values(), EVIDENCE} - expected.keys()):
        raise _unsigned(move, f"{key_id!r} signed {extra[0]} {signed[extra[0]]!r:.100}, which the entry lacks")
    return SignedMove(move, key_id, data)


def _unsigned(move: ChannelMove, reason: str) -> Refused:
    hint = "move the channel again with a trusted key: model-registry promote REPO --to VERSION --channel CHANNEL --key FILE"
    message = f"the move of {move.channel!r} to {move.to_version} (revision {move.revision}) is not signed by a trusted key"
    return Refused(f"{message}: {reason}", hint)


class MoveAdmission:
    """Without a policy that asks for signed moves every state of a channel is accepted."""

    signed = False

    def check(self, store: Store, channel: str, resolution: Resolution, now: datetime) -> str | None:  # noqa: ARG002 - see below
        """The id of the key that signed the move to the current state of a channel: none is needed."""
        return None

    def check_earlier(self, store: Store, channel: str, resolution: Resolution, now: datetime) -> None:
        """The same for a state that the channel had before."""


class SignedMoveAdmission(MoveAdmission):
    """Accepts states of a channel only where a trusted key signed the move.

    `folder` keeps the highest accepted revision of each channel as its signed statement, which is verified again when it is
    read; with None it is kept in memory alone.
    """

    signed = True

    def __init__(self, policy: Policy, folder: Path | None) -> None:
        self._policy = policy
        self._kept = SignatureCache(folder)
        self._highest: dict[str, Mapping[str, Any]] = {}  # by repository and channel, the signed predicate

    def check(self, store: Store, channel: str, resolution: Resolution, now: datetime) -> str | None:
        """The id of the key that signed the move to the current state of a channel; None for a digest, which cannot be moved.

        Raises Refused for a state whose move no trusted key signed, and for one that is older than a state accepted before;
        Conflict where the channel was moved meanwhile; NotFound, Corrupt and Unreachable as the store does.
        """
        if digests.is_digest(channel):
            return None
        signed = self._verified(store, channel, resolution, now)
        self._check_not_older(f"{store.repository}:{channel}", signed, now)
        return signed.key_id

    def check_earlier(self, store: Store, channel: str, resolution: Resolution, now: datetime) -> None:
        """The same for a state that the channel had before: it may be older than the highest."""
        self._verified(store, channel, resolution, now)

    def _verified(self, store: Store, channel: str, resolution: Resolution, now: datetime) -> SignedMove:
        if not resolution.revision:
            message = f"{channel!r} is no channel, and the policy {self._policy.path} requires signed moves"
            raise Refused(message, "follow a channel, or a digest: sha256:...")
        signed = verify(store, channel, resolution.revision, self._policy.move_keys, now)
        move = signed.move
        if (move.champion, move.to_version, move.roles) != (resolution.digest, resolution.version, resolution.roles):
            raise Conflict(f"the channel {channel!r} was moved between two requests", "repeat")
        return signed

    def _check_not_older(self, key: str, signed: SignedMove, now: datetime) -> None:
        move, proof = signed.move, digests.from_bytes(key.encode())
        if (kept := self._kept.kept(proof)) is not None:
            self._note(key, self._read(kept, move.channel, now))
        highest = self._highest.get(key, {"revision": "0"})
        if move.revision < int(highest["revision"]):
            message = f"the channel {move.channel!r} names revision {move.revision}, and was at revision {highest['revision']}"
            raise Refused(message, "somebody put an earlier state back without a move; a rollback is a new revision")
        if move.revision == int(highest["revision"]):
            if move.to_digest != highest["to"]:
                message = (
                    f"revision {move.revision} of the channel {move.channel!r} named {highest['to']}, not {move.to_digest}"
                )
                raise Refused(message, "two moves have one revision: move the channel again")
            return
        self._note(key, annotation_values(move))
        self._kept.keep(proof, signed.data)

    def _note(self, key: str, predicate: Mapping[str, Any] | None) -> None:
        if predicate and int(predicate["revision"]) > int(self._highest.get(key, {"revision": "0"})["revision"]):
            self._highest[key] = predicate

    def _read(self, data: bytes, channel: str, now: datetime) -> Mapping[str, Any] | None:
        """The predicate of a kept statement about this channel; None where no trusted key signed it."""
        try:
            claimed = bundle.parse_statement(bundle.parse(data).payload)
            statement, _ = signatures.check(data, str(claimed.predicate.get("to")), self._policy.move_keys, now)
            int(statement.predicate["revision"])
        except (RegistryError, KeyError, ValueError, TypeError):
            return None
        fits = statement.predicate_type == bundle.MOVED and statement.predicate.get("channel") == channel
        return statement.predicate if fits else None


def move_admission(policy: Path | None, cache: Path) -> MoveAdmission:
    """What a policy file asks for of moves; the highest accepted revisions are kept in the cache folder. Raises BadFile."""
    if policy is None or not (found := read(policy)).signed_moves:
        return MoveAdmission()
    return SignedMoveAdmission(found, cache / "proofs" / "moves")
