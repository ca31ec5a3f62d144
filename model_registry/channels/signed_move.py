"""Verifies signed moves of channels. A signed move has a signed statement about the channel's new target in its history entry.

The signatures stay valid in a copy of the repository if the last part of its path is the same.
"""

# The statement is in a bundle, like the signature of a version (bundle.py). The bundle is a layer of the history entry, so that
# the entry and its signature are written in one step. The subject of the statement is the manifest that the channel names: a
# version, or the index of roles. The predicate repeats all values of the entry and the model's name. The name is the last part
# of the repository's path, so that the signatures stay valid in a copy of the repository.

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
    """A move that a trusted key signed, with the id of that key; `data` is the Sigstore bundle with the signature."""

    move: ChannelMove
    key_id: str
    data: bytes


def verify(store: Store, channel: str, revision: int, keys: Sequence[TrustedKey], now: datetime) -> SignedMove:
    """Return the move to this revision of a channel, after verifying that a trusted key signed it.

    Raises:
        Refused: No trusted key signed the history entry; the message has the reason.
        NotFound, Corrupt, Unreachable: Errors of the store.
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
        raise _unsigned(move, "the signed statement is not about a move")
    signed = statement.predicate
    expected = {"model": model_name(store.repository), **annotation_values(move)}
    if mismatches := [name for name, value in expected.items() if signed.get(name) != value]:
        name = mismatches[0]
        raise _unsigned(move, f"the key {key_id!r} signed {name} {signed.get(name)!r:.100}, not {expected[name]!r:.100}")
    if unexpected := sorted(signed.keys() & {*NAMES.values(), EVIDENCE} - expected.keys()):
        raise _unsigned(
            move, f"the key {key_id!r} signed {unexpected[0]} {signed[unexpected[0]]!r:.100}, but the entry has none"
        )
    return SignedMove(move, key_id, data)


def _unsigned(move: ChannelMove, reason: str) -> Refused:
    hint = "move the channel again with a trusted key: model-registry promote REPO --to VERSION --channel CHANNEL --key FILE"
    message = f"the move of {move.channel!r} to {move.to_version} (revision {move.revision}) is not signed by a trusted key"
    return Refused(f"{message}: {reason}", hint)


class MoveAdmission:
    """Decides whether a state of a channel (its revision and its versions) may be served. This class accepts every state."""

    signed = False

    def check(self, store: Store, channel: str, resolution: Resolution, now: datetime) -> str | None:  # noqa: ARG002 - see below
        """Return None, because this class accepts every state. Subclasses return the signing key's id or raise an error."""
        return None

    def check_earlier(self, store: Store, channel: str, resolution: Resolution, now: datetime) -> None:
        """Do nothing, because this class accepts every state. Called before a scorer falls back to an earlier state."""


class SignedMoveAdmission(MoveAdmission):
    """Accepts a state of a channel only if a trusted key signed the move to that state.

    `check` also rejects a state whose revision is lower than one that was accepted before.

    Args:
        policy: The policy that lists the trusted keys.
        folder: The folder that stores, for each channel, the signed statement of the highest accepted revision. A stored
            statement is verified again when it is read. None keeps the highest revisions in memory only.
    """

    signed = True

    def __init__(self, policy: Policy, folder: Path | None) -> None:
        self._policy = policy
        self._cache = SignatureCache(folder)
        self._highest: dict[str, Mapping[str, Any]] = {}  # by repository and channel, the signed predicate

    def check(self, store: Store, channel: str, resolution: Resolution, now: datetime) -> str | None:
        """Return the id of the key that signed the move to the state `resolution`.

        Returns None if `channel` is a digest, because a digest has no moves.

        Raises:
            Refused: No trusted key signed the move, or a state with a higher revision was accepted before.
            Conflict: The channel was moved meanwhile.
            NotFound, Corrupt, Unreachable: Errors of the store.
        """
        if digests.is_digest(channel):
            return None
        signed = self._verified(store, channel, resolution, now)
        self._check_not_older(f"{store.repository}:{channel}", signed, now)
        return signed.key_id

    def check_earlier(self, store: Store, channel: str, resolution: Resolution, now: datetime) -> None:
        """Check an earlier state of a channel, to which a scorer falls back. Raises the same errors as `check`.

        The revision may be lower than the highest accepted revision.
        """
        self._verified(store, channel, resolution, now)

    def _verified(self, store: Store, channel: str, resolution: Resolution, now: datetime) -> SignedMove:
        if not resolution.revision:
            message = f"{channel!r} is not a channel, but the policy {self._policy.path} requires signed moves"
            raise Refused(message, "use a channel, or a digest: sha256:...")
        signed = verify(store, channel, resolution.revision, self._policy.move_keys, now)
        move = signed.move
        if (move.champion, move.to_version, move.roles) != (resolution.digest, resolution.version, resolution.roles):
            raise Conflict(f"the channel {channel!r} was moved between two requests", "repeat")
        return signed

    def _check_not_older(self, key: str, signed: SignedMove, now: datetime) -> None:
        move = signed.move
        cache_key = digests.from_bytes(key.encode())
        if (stored := self._cache.read(cache_key)) is not None:
            self._note(key, self._read(stored, move.channel, now))
        highest = self._highest.get(key, {"revision": "0"})
        if move.revision < int(highest["revision"]):
            message = (
                f"the channel {move.channel!r} is at revision {move.revision}, but was at revision {highest['revision']} before"
            )
            raise Refused(
                message, "the registry holds an older state; to serve an earlier version, use `model-registry rollback`"
            )
        if move.revision == int(highest["revision"]):
            if move.to_digest != highest["to"]:
                earlier = highest["to"]
                message = (
                    f"revision {move.revision} of the channel {move.channel!r} names {move.to_digest}, but named "
                    f"{earlier} before"
                )
                raise Refused(message, "two moves have the same revision: move the channel again")
            return
        self._note(key, annotation_values(move))
        self._cache.write(cache_key, signed.data)

    def _note(self, key: str, predicate: Mapping[str, Any] | None) -> None:
        if predicate and int(predicate["revision"]) > int(self._highest.get(key, {"revision": "0"})["revision"]):
            self._highest[key] = predicate

    def _read(self, data: bytes, channel: str, now: datetime) -> Mapping[str, Any] | None:
        """Return the predicate (the content) of a stored statement.

        Returns None if no trusted key signed it, or if it is about another channel.
        """
        try:
            claimed = bundle.parse_statement(bundle.parse(data).payload)
            statement, _ = signatures.check(data, str(claimed.predicate.get("to")), self._policy.move_keys, now)
            int(statement.predicate["revision"])
        except (RegistryError, KeyError, ValueError, TypeError):
            return None
        is_about_channel = statement.predicate_type == bundle.MOVED and statement.predicate.get("channel") == channel
        return statement.predicate if is_about_channel else None


def move_admission(policy: Path | None, cache: Path) -> MoveAdmission:
    """Return the SignedMoveAdmission if a policy file requires signed moves, else the MoveAdmission that accepts every state.

    The highest accepted revisions are stored in the cache folder.

    Raises:
        BadFile: The policy cannot be read.
    """
    if policy is None or not (parsed := read(policy)).signed_moves:
        return MoveAdmission()
    return SignedMoveAdmission(parsed, cache / "proofs" / "moves")
