"""Whether another process runs as this scorer's replica, decided by the members of the consumer group alone.

A status record never decides: every principal with Write on the status topic can forge one. A member under our client id needs
Read on the group, and heartbeats that keep it there.
"""

import logging
import threading
import time
from collections.abc import Callable, Set

from confluent_kafka import KafkaException

from publisher.kafka import clients as kafka
from publisher.kafka import groups
from scorer.settings import Settings

log = logging.getLogger(__name__)

EXPIRY_SECONDS = 2.0  # beyond a session, after which the group has expired a dead member
CONSUMER_SESSION_SECONDS = 45.0  # under KIP-848 the broker decides; the default of group.consumer.session.timeout.ms
CHECK_SECONDS = 1.0
UNKNOWN_SECONDS = 5.0  # before the group is asked again, if it did not answer
FROZEN_SECONDS = 2.0  # a thread that wakes so much too late was frozen: another process may have taken the replica over


class ReplicaClaim:
    """The claim of one process to its replica. Pure: times are monotonic seconds, members are the ids of the group's members.

    A process holds its replica once the group had no other member of it, and then keeps it: processes that come later end.
    Of several that have joined together, the one with the greatest member id ends after `settle_seconds`, by which the group
    would have expired the others if they were dead. A process that still finds another member after twice that time has come
    later, and ends. So both sides decide alike, without a record of each other and without comparing clocks.

    `dead` are members that were found dead at the start although the group still counts them.
    """

    def __init__(self, settle_seconds: float, dead: Set[str] = frozenset()) -> None:
        self._settle_seconds = settle_seconds
        self._dead = dead
        self._own: set[str] = set()
        self._holder = ""
        self._first_seen: dict[str, float] = {}

    def holds(self, own: str) -> bool:
        """Return whether the replica is held by this process as the member `own`."""
        return bool(own) and own == self._holder

    def release(self) -> None:
        """Claim the replica again: this process was frozen, and another one may have taken its place."""
        self._holder = ""

    def lost(self, own: str, members: Set[str], now: float) -> bool:
        """Return whether the replica belongs to another process, given all of its members in the group."""
        self._own.add(own)
        others = members - self._own - self._dead
        self._first_seen = {other: self._first_seen.get(other, now) for other in others}
        if own not in members:
            self._holder = ""
            return False
        if not others:
            self._holder = own
        if self.holds(own):
            return False
        return any(now - seen > self._patience(own, other) for other, seen in self._first_seen.items())

    def _patience(self, own: str, other: str) -> float:
        return self._settle_seconds if own > other else 2 * self._settle_seconds


class ReplicaGuard:
    """Checks the claim from a thread of its own until `close`. The group is asked only until the replica is held.

    `member` is this process's member id, which the consumer's owner keeps up to date (empty: not a member). `lost` is set once
    the replica belongs to another process. `ask` returns the ids of the group's members of this replica.
    """

    def __init__(self, claim: ReplicaClaim, ask: Callable[[], Set[str]], check_seconds: float = CHECK_SECONDS) -> None:
        self.member = ""
        self.lost = False
        self._claim = claim
        self._ask = ask
        self._check_seconds = check_seconds
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="replica", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=groups.ANSWER_SECONDS)

    def _watch(self) -> None:
        asleep = time.monotonic()
        pause = self._check_seconds
        while not self._closing.wait(pause) and not self.lost:
            if time.monotonic() - asleep > pause + FROZEN_SECONDS:
                self._claim.release()
            own, pause = self.member, self._check_seconds
            if own and not self._claim.holds(own):
                try:
                    self._check(own, self._ask())
                except KafkaException as error:
                    log.info("the group's members are not known yet: %s", error.args[0])
                    pause = UNKNOWN_SECONDS
            asleep = time.monotonic()

    def _check(self, own: str, members: Set[str]) -> None:
        self.lost = self._claim.lost(own, members, time.monotonic())
        if self._claim.holds(own):
            log.info("no other process has this replica")
        if self.lost:
            log.error("this replica belongs to another member of the group: %s", ", ".join(sorted(members - {own})))


def expiry_seconds(settings: Settings) -> float:
    """Return the seconds after which the group has expired a dead member."""
    session_seconds = settings.kafka.session_timeout_ms / 1_000
    if settings.kafka.group_protocol == "consumer":
        session_seconds = max(session_seconds, CONSUMER_SESSION_SECONDS)
    return session_seconds + EXPIRY_SECONDS


def guard_of(settings: Settings, dead: Set[str]) -> ReplicaGuard:
    """Return the guard of one scorer, given the dead members of its replica. It asks by clients of their own, as
    `fence_the_dead` does."""

    def ask() -> Set[str]:
        return groups.member_ids(kafka.admin(settings.kafka, settings.owner), settings.name, settings.owner)

    return ReplicaGuard(ReplicaClaim(expiry_seconds(settings), dead), ask)
