"""Detect foreign members: members of a scorer's consumer group that are not scorers.

The events of partitions that the group assigns to a foreign member are not scored.
"""

import logging
from collections.abc import Callable, Iterable, Sequence, Set
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException

from publisher.errors import Fatal
from publisher.kafka.groups import GroupMember, described
from publisher.kafka.isolated_groups import IsolatedGroups
from publisher.kafka.partitions import Partition
from publisher.runtime.abandonable_call import call_in_thread
from scorer.settings import Settings

log = logging.getLogger(__name__)

SETTLE_SECONDS = 3.0  # from a change of the assignment to the query; the rebalance has ended by then
RETRY_SECONDS = 30.0  # between queries while there are foreign members or the scorer is not in the group
REPEAT_SECONDS = 600.0  # between log lines about the same members
HINT = "stop them, or give them a consumer group of their own"


def select_foreign(members: Iterable[GroupMember], group: str) -> list[GroupMember]:
    """Return the members that are not scorers. The client id of a scorer is `<group>.<replica>`."""
    return [member for member in members if not member.client_id.startswith(f"{group}.")]


def describe_foreign(members: Sequence[GroupMember], group: str) -> str:
    """Return a sentence on one line that names the foreign members of a group."""
    names = ", ".join(map(str, members))
    return f"consumer group {group} has members that are not scorers: {names}; events assigned to them are not scored"


def query_members(settings: Settings) -> list[GroupMember]:
    """Query all members of the scorer's group in a child process. Raises KafkaException."""
    return described(IsolatedGroups(settings.kafka, settings.owner), settings.name)


class ForeignMembers:
    """Detects members of one scorer's consumer group that are not scorers, and reports them in log and metrics.

    Args:
        group: the name of the consumer group.
        ask: a function that returns all members of the group. It raises KafkaException or Fatal.
        show: a function to call with the number of foreign members after each query of the group.

    Attributes:
        members: the foreign members at the last query.
    """

    # The coordinator is queried after each change of the scorer's assignment, because a new member causes a rebalance. The
    # query is repeated every RETRY_SECONDS while there are foreign members, while the scorer is not in the group, and after a
    # failed query. There are no other queries, because each starts a process (`IsolatedGroups`).

    def __init__(self, group: str, ask: Callable[[], list[GroupMember]], show: Callable[[int], object]) -> None:
        self.members: Sequence[GroupMember] = ()
        self._group = group
        self._ask = ask
        self._show = show
        self._assignment: object = None
        self._due = float("inf")
        self._log_at = float("-inf")
        self._answer: Future[list[GroupMember]] | None = None

    @property
    def summary(self) -> str | None:
        """A sentence on one line that names the foreign members; None if there are none."""
        return describe_foreign(self.members, self._group) if self.members else None

    def tick(self, now: float, *, joined: bool, partitions: Set[Partition], brokers_answer: bool = True) -> None:
        """Start a query in the background if one is due, and handle the answer to the last query.

        The worker calls this about once a second.

        Args:
            now: the time in monotonic seconds.
            joined: whether the scorer is in the group.
            partitions: the partitions that are assigned to the scorer.
            brokers_answer: whether the brokers are available. If not, a due query is postponed until they are.
        """
        if (joined, partitions) != self._assignment:
            self._assignment = joined, frozenset(partitions)
            self._due = now + SETTLE_SECONDS
        if self._answer is not None and self._answer.done():
            must_retry = self._handle(self._answer, now) or not joined
            self._answer = None
            if must_retry:
                self._due = min(self._due, now + RETRY_SECONDS)
        if self._answer is None and now >= self._due and brokers_answer:
            self._due = float("inf")
            self._answer = call_in_thread("group-members", self._ask)

    def _handle(self, answer: Future[Any], now: float) -> bool:
        """Record and report the answer to a query. Return whether the query must be repeated after RETRY_SECONDS."""
        try:
            members = select_foreign(answer.result(), self._group)
        except (KafkaException, Fatal) as error:
            log.info("the members of the group are not known yet: %s", error.args[0])
            return True
        if {member[:2] for member in members} != {member[:2] for member in self.members}:
            self._log_at = now
            if not members:
                log.info("all members of consumer group %s are scorers again", self._group)
        self.members = members
        self._show(len(members))
        if members and now >= self._log_at:
            self._log_at = now + REPEAT_SECONDS
            log.warning("%s; %s", self.summary, HINT)
        return bool(members)
