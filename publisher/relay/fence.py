"""Fencing: after `fence` no other process writes for a relay.

Every command that changes positions (`publisher run`, `publisher checkpoint`) first fences, then reads the checkpoints to their
end, then writes.
"""

import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf

import msgspec

from publisher.relay import checkpoints as checkpoint
from publisher.relay.checkpoints import CheckpointLog, Registration
from publisher.relay.clusters import session_of
from publisher.relay.settings import RelaySettings
from publisher.runtime.context import Context, now_ms
from publisher.transactions.exactly_once import TransactionSession
from publisher.transactions.protocol import Record

Opening = Callable[[Record], None]
"""Takes over the transactional ids of a lane; each of its producers commits this record."""


def control_of(settings: RelaySettings, context: Context | None = None) -> TransactionSession:
    """Return the session that writes the registrations, and all checkpoints that no lane writes.

    It has one producer and never replaces it after a slow commit, because the ownership check of a successor needs a second
    producer. Its transactions are at least a second apart, so an EndTxn that the client sends twice finds no open transaction.
    """
    return session_of(settings, [f"{settings.transactional_prefix}checkpoints"], context=context, slow_commit_seconds=inf)


def fence(
    settings: RelaySettings,
    control: TransactionSession,
    checkpoints: CheckpointLog,
    registered: Registration,
    openings: Sequence[Opening] = (),
    on_control_owned: Callable[[], None] = lambda: None,
) -> None:
    """Take over every transactional id of the relay: that of `control`, and those of its lanes.

    `control` is first, then the registration: a process that loses a lane must find the registration of its successor, or it
    would take the lanes back. Until all lanes are fenced, the registration names the largest number of lanes of any process.

    A lane of a predecessor that replaces a producer takes that id back. Its next commit uses its other id, and fails if that id
    has been taken over. Otherwise the commits that follow here, one with every id, find the id that was taken back.

    Args:
        settings: the settings of the relay.
        control: the session of `control_of`, not open yet.
        checkpoints: the checkpoints, read up to the last stable offset here.
        registered: the registration to write.
        openings: take over the ids of this process's lanes, in their order. Without any, all ids are taken over and released.
        on_control_owned: called when no other process can register, with the registrations read. May raise.
    """
    control.open()
    checkpoints.refresh_visible(settings.name)
    on_control_owned()
    last = checkpoints.registrations.get(settings.name)
    claim = msgspec.structs.replace(registered, lanes=max(last.lanes if last else 0, settings.lanes))
    claim_record = registration_record(settings, claim)
    control.publish([claim_record])

    def take_over(lane: int) -> None:
        session = session_of(settings, settings.transactional_ids(lane), ownership_record=lambda: claim_record)
        try:
            session.open()
        finally:
            session.close()

    other_lanes = range(settings.lanes if openings else 0, claim.lanes)
    with ThreadPoolExecutor(len(other_lanes) + len(openings) or 1, thread_name_prefix="fence") as pool:
        takeovers = [pool.submit(opening, claim_record) for opening in openings]
        takeovers += [pool.submit(take_over, lane) for lane in other_lanes]
        for takeover in takeovers:
            takeover.result()


def registration(settings: RelaySettings, instance: str, command: str) -> Registration:
    """Return the registration of this process, which runs this command."""
    return Registration(settings.lanes, instance, command, socket.gethostname(), os.getpid(), now_ms())


def registration_record(settings: RelaySettings, registered: Registration) -> Record:
    """Return the record of a registration."""
    key = checkpoint.encode_key(settings.name)
    return checkpoint.record(settings.checkpoint_topic, key, checkpoint.encode(registered))
