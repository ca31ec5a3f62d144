"""Detect another process with the same replica, by the members of the consumer group alone.

A status record never decides: every principal with Write on the status topic can forge one. A member with our client id needs
Read on the group, and heartbeats that keep its membership.
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

EXPIRY_SECONDS = 2.0  # after the session timeout; the group has expired a dead member by then
CONSUMER_SESSION_SECONDS = 45.0  # the default of group.consumer.session.timeout.ms: under KIP-848 the broker decides
CHECK_SECONDS = 1.0
RETRY_SECONDS = 5.0  # before the next query, if the coordinator did not answer
FROZEN_SECONDS = 2.0  # a thread that wakes so late was suspended: another process may have taken the replica over


class ReplicaClaim:
    """The claim of one process to its replica. Pure: times are monotonic seconds, members are the ids of the group's members.

    A process holds its replica once the group had no other member of that replica, and keeps it: processes that join later
    end. Of several processes that joined together, the one with the greatest member id ends after `settle_seconds`. By then
    the group would have expired the other members if they were dead. A process that still finds another member after twice
    that time has joined later, and ends. All processes decide consistently, without records and without comparing clocks.

    Args:
        settle_seconds: the time after which the group has expired a dead member.
        dead: members that were dead at the start although the group has not expired them.
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
        """Give up the hold. This process was suspended, and another process may have taken the replica over."""
        self._holder = ""

    def lost(self, own: str, members: Set[str], now: float) -> bool:
        """Return whether the replica belongs to another process.

        Args:
            own: the member id of this process.
            members: the ids of all members of the group with this replica.
            now: the time of the query.
        """
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
        return any(now - seen > self._allowed_seconds(own, other) for other, seen in self._first_seen.items())

    def _allowed_seconds(self, own: str, other: str) -> float:
        """Return how long another member may stay before this process ends."""
        return self._settle_seconds if own > other else 2 * self._settle_seconds


class ReplicaGuard:
    """Checks the claim from a background thread until `close`. The group is queried only until the replica is held.

    Args:
        claim: the claim of this process.
        members: returns the ids of the group's members with this replica. Raises KafkaException.
        check_seconds: the time between queries.

    Attributes:
        member: the member id of this process, which the consumer's owner updates; empty if it is not a member.
        lost: whether the replica belongs to another process.
    """

    def __init__(self, claim: ReplicaClaim, members: Callable[[], Set[str]], check_seconds: float = CHECK_SECONDS) -> None:
        self.member = ""
        self.lost = False
        self._claim = claim
        self._members = members
        self._check_seconds = check_seconds
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="replica", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join(timeout=groups.ANSWER_SECONDS)

    def _watch(self) -> None:
        slept_at = time.monotonic()
        pause = self._check_seconds
        while not self._closing.wait(pause) and not self.lost:
            if time.monotonic() - slept_at > pause + FROZEN_SECONDS:
                self._claim.release()
            own = self.member
            pause = self._check_seconds
            if own and not self._claim.holds(own):
                try:
                    self._check(own, self._members())
                except KafkaException as error:
                    log.info("the group's members are not known yet: %s", error.args[0])
                    pause = RETRY_SECONDS
            slept_at = time.monotonic()

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


def guard_replica(settings: Settings, dead: Set[str]) -> ReplicaGuard:
    """Start the guard of one worker, given the dead members of its replica. Each query opens its own client."""

    def members() -> Set[str]:
        return groups.member_ids(kafka.admin(settings.kafka, settings.owner), settings.name, settings.owner)

    return ReplicaGuard(ReplicaClaim(expiry_seconds(settings), dead), members)
