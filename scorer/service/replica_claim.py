"""Detect another process that uses the same replica name, from the members of the consumer group alone."""

# Status records are not used, because every principal with the right Write on the status topic can forge them. To forge a group
# member with this worker's client id, a principal would need the right Read on the group, and would have to send heartbeats.

import logging
import threading
import time
from collections.abc import Callable, Set

from confluent_kafka import KafkaException

from publisher.errors import Fatal
from publisher.kafka import groups
from publisher.kafka.isolated_groups import IsolatedGroups
from publisher.runtime.abandonable_call import ABANDON_SECONDS
from scorer.settings import Settings

log = logging.getLogger(__name__)

EXPIRY_SECONDS = 2.0  # the group has expired a dead member this long after the session timeout
CONSUMER_SESSION_SECONDS = 45.0  # the default of group.consumer.session.timeout.ms: under KIP-848 the broker decides
CHECK_SECONDS = 1.0  # between queries of the group's members
RETRY_SECONDS = 5.0  # before the next query, if the coordinator did not answer
FROZEN_SECONDS = 2.0  # a thread that wakes later than planned by this time was suspended: the replica may be taken over


class ReplicaClaim:
    """Decides whether one process may use its replica name or must end. Pure; times are in monotonic seconds.

    As soon as a query of the group finds no other member with the replica name, this process holds the name. Processes with the
    same name that join later must end.

    Args:
        settle_seconds: the time after which the group has certainly expired a dead member.
        dead: the ids of members whose processes had ended before the start, but which the group had not expired yet.
    """

    # If several processes join at the same time, none holds the name at first, and their member ids decide. A process ends if a
    # member with a smaller id is still in the group after `settle_seconds`, because the group would have expired a dead member
    # by then. It also ends if a member with a greater id is still there after twice that time: that member holds the name,
    # because otherwise its process would have ended. All processes decide consistently, without messages and without comparing
    # clocks.

    def __init__(self, settle_seconds: float, dead: Set[str] = frozenset()) -> None:
        self._settle_seconds = settle_seconds
        self._dead = dead
        self._own: set[str] = set()
        self._holder = ""
        self._first_seen: dict[str, float] = {}

    def holds(self, own: str) -> bool:
        """Return whether this process, as the member with the id `own`, holds the replica name."""
        return bool(own) and own == self._holder

    def release(self) -> None:
        """Stop holding the replica name, because this process was suspended and another process may hold it now."""
        self._holder = ""

    def lost(self, own: str, members: Set[str], now: float) -> bool:
        """Evaluate a query of the group. Return whether another process holds the replica name, so that this one must end.

        Args:
            own: the member id of this process.
            members: the ids of all group members with this replica name, including this process.
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
        """Return how many seconds the member `other` may stay in the group before this process ends."""
        return self._settle_seconds if own > other else 2 * self._settle_seconds


class ReplicaGuard:
    """Checks in a background thread whether another process uses the replica name of this process, until `close`.

    The group is queried only until this process holds the name (see `ReplicaClaim`).

    Args:
        claim: the object that decides whether this process holds the name.
        members: a function that returns the ids of the group members with this replica name. It raises KafkaException.
        check_seconds: the time between queries of the group.

    Attributes:
        member: the member id of this process; "" if it is not a member. The thread that owns the consumer sets this attribute.
        lost: whether another process holds the replica name, so that this process must end.
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
        """End the background thread. Wait for a query that is in progress for at most ABANDON_SECONDS."""
        self._closing.set()
        self._thread.join(ABANDON_SECONDS)

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
                except (KafkaException, Fatal) as error:
                    log.info("the group's members are not known yet: %s", error.args[0])
                    pause = RETRY_SECONDS
            slept_at = time.monotonic()

    def _check(self, own: str, members: Set[str]) -> None:
        self.lost = self._claim.lost(own, members, time.monotonic())
        if self._claim.holds(own):
            log.info("no other process uses the replica name of this process")
        if self.lost:
            log.error(
                "the replica name of this process belongs to another group member: %s", ", ".join(sorted(members - {own}))
            )


def expiry_seconds(settings: Settings) -> float:
    """Return the seconds from the last heartbeat of a member until the group has certainly expired the member."""
    session_seconds = settings.kafka.session_timeout_ms / 1_000
    if settings.kafka.group_protocol == "consumer":
        session_seconds = max(session_seconds, CONSUMER_SESSION_SECONDS)
    return session_seconds + EXPIRY_SECONDS


def guard_replica(settings: Settings, dead: Set[str]) -> ReplicaGuard:
    """Start the guard that checks whether another process uses the replica name of this worker.

    `dead` are the ids of group members that are already known to be dead.
    """
    # A child process makes each query of the group.

    def members() -> Set[str]:
        return groups.member_ids(IsolatedGroups(settings.kafka, settings.owner), settings.name, settings.owner)

    return ReplicaGuard(ReplicaClaim(expiry_seconds(settings), dead), members)
