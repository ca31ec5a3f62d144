"""Fencing: no process but this one writes for a relay from here on.

Whoever changes positions, `publisher run` and `publisher checkpoint` alike, fences first, then reads to the end, then writes.
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
"""Takes the transactional ids of a lane over; each of its producers commits this record."""


def control_of(settings: RelaySettings, context: Context | None = None) -> TransactionSession:
    """The session of a relay's registrations, and of all checkpoints that no lane writes.

    It has one producer, so nobody could prove a successor, and it gets none. Its transactions are a second apart: an EndTxn
    that the client sends twice finds none of them open.
    """
    return session_of(settings, [f"{settings.transactional_prefix}checkpoints"], context=context, slow_commit_seconds=inf)


def fence(
    settings: RelaySettings,
    control: TransactionSession,
    checkpoints: CheckpointLog,
    told: Registration,
    openings: Sequence[Opening] = (),
    on_look: Callable[[], None] = lambda: None,
) -> None:
    """Take every transactional id of the relay: that of `control`, its lanes' by `openings` if there are any.

    `control` comes first, and then the registration: whoever loses a lane must find who has replaced it, or it would take
    the lanes back. `on_look` is called when nobody else can register any more, and may raise. Until all lanes are fenced the
    registration names as many as any process may still have.

    A lane of a predecessor that renews a producer takes that id back. It then commits with its other id, so it ends if that was
    taken by then; and where it was not yet, the commit that follows here with every id finds the one that is gone.
    """
    control.open()
    checkpoints.look(settings.name)
    on_look()
    last = checkpoints.registrations.get(settings.name)
    claim = msgspec.structs.replace(told, lanes=max(last.lanes if last else 0, settings.lanes))
    registered = registration_record(settings, claim)
    control.publish([registered])

    def take(lane: int) -> None:
        taken = session_of(settings, settings.transactional_ids(lane), ownership_record=lambda: registered)
        try:
            taken.open()
        finally:
            taken.close()

    others = range(settings.lanes if openings else 0, claim.lanes)
    with ThreadPoolExecutor(len(others) + len(openings) or 1, thread_name_prefix="fence") as pool:
        taken = [pool.submit(opening, registered) for opening in openings] + [pool.submit(take, lane) for lane in others]
        for each in taken:
            each.result()


def registration(settings: RelaySettings, instance: str, what: str) -> Registration:
    return Registration(settings.lanes, instance, what, socket.gethostname(), os.getpid(), now_ms())


def registration_record(settings: RelaySettings, told: Registration) -> Record:
    return checkpoint.record(settings.checkpoint_topic, checkpoint.key(settings.name), checkpoint.encode(told))
