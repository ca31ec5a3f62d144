"""Fence the other processes of a relay: after `fence`, no other process can write under the relay's transactional ids.

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
from publisher.relay.clusters import open_session
from publisher.relay.settings import RelaySettings
from publisher.runtime.context import Context, now_ms
from publisher.transactions.exactly_once import TransactionSession
from publisher.transactions.session import Record

Opening = Callable[[Record], None]
"""Takes over the transactional ids of one copying thread (lane). Each of its producers commits the given record."""


def control_of(settings: RelaySettings, context: Context | None = None) -> TransactionSession:
    """Return the session that writes the registrations, and the checkpoints of partitions that are not copied yet."""
    # The session has one producer, and never replaces it after a slow commit, because the ownership check of a successor needs
    # a second producer. A slow commit does no harm here: the transactions are at least a second apart, so an EndTxn that the
    # client has sent twice finds no open transaction.
    return open_session(settings, [f"{settings.transactional_prefix}checkpoints"], context=context, slow_commit_seconds=inf)


def fence(
    settings: RelaySettings,
    control: TransactionSession,
    checkpoints: CheckpointLog,
    registered: Registration,
    openings: Sequence[Opening] = (),
    on_control_owned: Callable[[], None] = lambda: None,
) -> None:
    """Take over every transactional id of the relay: the id of `control`, and the ids of all copying threads (lanes).

    Args:
        settings: the settings of the relay.
        control: the session of `control_of`, not open yet.
        checkpoints: the checkpoint log. It is read up to the last stable offset here.
        registered: the registration of this process.
        openings: for each lane of this process, in order, a function that takes over the ids of the lane. If there are no
            functions, `fence` takes over the ids of all lanes and releases them.
        on_control_owned: called when the registrations are read and no other process can register. May raise.
    """
    # The registration is written before any lane is taken over: a process that loses a lane must find the registration of the
    # process that replaces it, or it would take over the lanes again. Until all lanes are fenced, the registration names the
    # larger number of lanes of the two processes.
    # During the call, a lane of the replaced process may still replace one of its producers, and so take one of its two ids, A,
    # from this process again. The next commit of that lane uses its other id, B. If this process already owns B, that commit
    # fails, and the lane ends. Otherwise this process takes over B after that commit, and then commits a record with each of
    # the two ids. Its commit with A fails, so that this call raises an error.
    control.open()
    checkpoints.refresh_visible(settings.name)
    on_control_owned()
    last = checkpoints.registrations.get(settings.name)
    claim = msgspec.structs.replace(registered, lanes=max(last.lanes if last else 0, settings.lanes))
    claim_record = registration_record(settings, claim)
    control.publish([claim_record])

    def take_over(lane: int) -> None:
        session = open_session(settings, settings.transactional_ids(lane), ownership_record=lambda: claim_record)
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
    """Return the registration of this process, with its random id `instance` and the command that it runs."""
    return Registration(settings.lanes, instance, command, socket.gethostname(), os.getpid(), now_ms())


def registration_record(settings: RelaySettings, registered: Registration) -> Record:
    """Return the record of a registration in the checkpoint topic."""
    key = checkpoint.encode_key(settings.name)
    return checkpoint.record(settings.checkpoint_topic, key, checkpoint.encode(registered))
