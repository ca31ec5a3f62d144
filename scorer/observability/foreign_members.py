"""Finds members of the consumer group that are not scorers: they are assigned partitions whose events nobody scores.

The decisions are functions of values and `now`; the question to the coordinator runs in a thread of its own.
"""

import logging
from collections.abc import Callable, Iterable, Sequence, Set
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException

from publisher.errors import Fatal
from publisher.kafka import clients as kafka
from publisher.kafka.groups import GroupMember, described
from publisher.kafka.partitions import Partition
from publisher.runtime.abandonable_call import call_in_thread
from scorer.settings import Settings

log = logging.getLogger(__name__)

SETTLE_SECONDS = 3.0  # after a change of the assignment: a rebalance has ended by then
LOOK_SECONDS = 30.0  # between questions while something is wrong
REPEAT_SECONDS = 600.0  # between log lines about the same members
HINT = "stop them, or give them a consumer group of their own"


def foreign(members: Iterable[GroupMember], group: str) -> list[GroupMember]:
    """Return the members that are not scorers: the client id of a scorer is `<group>.<replica>`."""
    return [member for member in members if not member.client_id.startswith(f"{group}.")]


def in_words(members: Sequence[GroupMember], group: str) -> str:
    """Name the foreign members of a group in one line."""
    named = ", ".join(map(str, members))
    return f"consumer group {group} has members that are not scorers: {named}; events assigned to them are not scored"


def ask(settings: Settings) -> list[GroupMember]:
    """Return the members of the scorers' group, asked by a client of its own. Raises KafkaException."""
    return described(kafka.admin(settings.kafka, settings.owner), settings.name)


class ForeignMembers:
    """Watches the group of one scorer. `show(number)` gets the number of foreign members.

    The coordinator is asked after each change of the assignment, which every member that takes partitions causes, and again
    every LOOK_SECONDS while there are foreign members or the scorer is not in the group. It is not asked at other times: an
    administrative client may end the process if the coordinator fails in the middle of an answer (librdkafka #4605).
    """

    def __init__(self, group: str, ask: Callable[[], list[GroupMember]], show: Callable[[int], object]) -> None:
        self.found: Sequence[GroupMember] = ()
        self._group = group
        self._ask = ask
        self._show = show
        self._seen: object = None
        self._due = float("inf")
        self._log_at = float("-inf")
        self._answer: Future[list[GroupMember]] | None = None

    @property
    def told(self) -> str | None:
        """The foreign members in one line, or None if there are none."""
        return in_words(self.found, self._group) if self.found else None

    def tick(self, now: float, *, joined: bool, partitions: Set[Partition]) -> None:
        """Ask if it is time, and take the answer; called about once a second with the scorer's own partitions. `now` is in
        monotonic seconds."""
        if (joined, partitions) != self._seen:
            self._seen, self._due = (joined, frozenset(partitions)), now + SETTLE_SECONDS
        if self._answer is not None and self._answer.done():
            wrong = self._take(self._answer, now) or not joined
            self._answer = None
            if wrong:
                self._due = min(self._due, now + LOOK_SECONDS)
        if self._answer is None and now >= self._due:
            self._due = float("inf")
            self._answer = call_in_thread("group-members", self._ask)

    def _take(self, answer: Future[Any], now: float) -> bool:
        """Note the answer. Returns whether to ask again soon."""
        try:
            found = foreign(answer.result(), self._group)
        except (KafkaException, Fatal) as error:
            log.info("the members of the group are not known yet: %s", error.args[0])
            return True
        if {member[:2] for member in found} != {member[:2] for member in self.found}:
            self._log_at = now
            if not found:
                log.info("consumer group %s has only scorers as members again", self._group)
        self.found = found
        self._show(len(found))
        if found and now >= self._log_at:
            self._log_at = now + REPEAT_SECONDS
            log.warning("%s; %s", self.told, HINT)
        return bool(found)
