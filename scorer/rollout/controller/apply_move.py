"""Apply the channel moves of a rollout, each at most once, even if a move is interrupted or repeated by another controller.

The registry stores each move with its log entry as evidence, so the channel's history shows whether the move was made.
"""

from dataclasses import replace
from datetime import UTC, datetime

from model_registry.channels import channel
from model_registry.channels.history import ChannelMove
from model_registry.channels.move_request import MAX_TEXT, MoveRequest
from model_registry.errors import RegistryError
from model_registry.oci import digests
from model_registry.signing.keys import PrivateKey
from model_registry.stores.base import Store
from scorer.rollout.controller import log_records
from scorer.rollout.controller.log_records import LogEntry, PlannedMove


class MoveOvertaken(Exception):
    """Raised if another process has moved the channel since the move was planned."""


def apply_move(store: Store, name: str, intended: LogEntry, key: PrivateKey | None = None) -> ChannelMove:
    """Make the intended move of the channel `name`, or return the move if it was made before.

    Args:
        store: The registry.
        name: The channel.
        intended: The log entry with the planned move.
        key: The key that signs the move; None for an unsigned move.

    Raises:
        MoveOvertaken: If the channel is not at the expected revision.
        RegistryError: If the registry refuses the move or is unavailable.
    """
    planned = intended.move or PlannedMove(0)
    evidence = log_records.encode(intended)
    moves = channel.history(store, name, planned.expects)
    current = channel.resolve(store, name).revision
    for move in moves:
        if move.evidence == digests.from_bytes(evidence) and move.revision == current:
            return move
    if current != planned.expects:
        raise MoveOvertaken(
            f"the channel is at revision {current}, and was expected at {planned.expects}: another process moved it"
        )
    newest = max(
        (move.revision for move in moves), default=planned.expects
    )  # an interrupted attempt may have written its history entry without moving the channel
    try:
        return _make(store, name, intended, planned, evidence, newest, key)
    except RegistryError:
        if channel.resolve(store, name).revision != current:
            return apply_move(store, name, intended, key)
        raise


def _make(
    store: Store, name: str, intended: LogEntry, planned: PlannedMove, evidence: bytes, revision: int, key: PrivateKey | None
) -> ChannelMove:
    request = MoveRequest(
        actor=f"rollout {intended.rollout}",
        reason=f"{intended.verdict}: {'; '.join(intended.why)}"[:MAX_TEXT],
        time=datetime.now(UTC),
        expected_revision=revision,
        evidence=evidence,
        key=key,
    )
    if planned.restores is not None:
        return channel.rollback(store, name, request, to_revision=planned.restores)
    request = replace(request, expected_digest=planned.digest)
    return channel.promote(store, name, planned.to, request, canary=planned.canary, shadow=planned.shadow, pairs=planned.pairs)
