"""When the coordinator is queried for the members of the group, and the log lines."""

import logging

import pytest
from confluent_kafka import KafkaError, KafkaException

from publisher.kafka.clients import KafkaSettings
from publisher.kafka.groups import GroupMember, described
from publisher.kafka.isolated_groups import IsolatedGroups
from scorer.observability.foreign_members import REPEAT_SECONDS, RETRY_SECONDS, SETTLE_SECONDS, ForeignMembers, select_foreign
from tests.support.waiting import until

SCORER_MEMBER = GroupMember("n.a", "/10.0.0.1", 2)
FOREIGN_MEMBER = GroupMember("rdkafka", "/10.0.0.9", 2)
PLACES = frozenset({("in", 0), ("in", 1)})


class WatchedGroup:
    """A watch over a scripted coordinator, whose next answer is `members`."""

    def __init__(self, *members: GroupMember) -> None:
        self.members = [*members]
        self.fails = False
        self.queries = 0
        self.reported_counts: list[int] = []
        self.now = 100.0
        self.watch = ForeignMembers("n", self._query, self.reported_counts.append)

    def _query(self) -> list[GroupMember]:
        self.queries += 1
        if self.fails:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return self.members

    def after(
        self,
        seconds: float,
        *,
        joined: bool = True,
        partitions: frozenset[tuple[str, int]] = PLACES,
        brokers_answer: bool = True,
    ) -> None:
        """Tick after these seconds, and again when the answer has arrived."""
        self.now += seconds
        before = self.queries
        self.watch.tick(self.now, joined=joined, partitions=partitions, brokers_answer=brokers_answer)
        until(lambda: self.watch._answer is None or self.watch._answer.done(), "the answer")
        if self.queries > before:
            self.watch.tick(self.now, joined=joined, partitions=partitions, brokers_answer=brokers_answer)


def test_scorers_are_recognized_by_their_client_ids() -> None:
    members = [SCORER_MEMBER, FOREIGN_MEMBER, GroupMember("n", "h", 0), GroupMember("nn.a", "h", 0), GroupMember("", "h", 0)]
    assert [member.client_id for member in select_foreign(members, "n")] == ["rdkafka", "n", "nn.a", ""]


def test_a_foreign_member_is_named_with_client_id_host_and_partitions(caplog: pytest.LogCaptureFixture) -> None:
    watched = WatchedGroup(SCORER_MEMBER, FOREIGN_MEMBER)
    watched.after(0)
    watched.after(SETTLE_SECONDS)
    assert watched.watch.summary is not None
    assert "client id 'rdkafka' on host 10.0.0.9 (2 partitions)" in watched.watch.summary
    assert watched.watch.summary in caplog.text
    assert watched.reported_counts == [1]


def test_the_group_is_queried_once_after_each_change_of_the_assignment() -> None:
    watched = WatchedGroup(SCORER_MEMBER)
    watched.after(0)
    assert watched.queries == 0, "the rebalance may not have ended"
    watched.after(SETTLE_SECONDS)
    for _ in range(10):
        watched.after(RETRY_SECONDS)
    assert watched.queries == 1
    fewer = PLACES - {("in", 0)}
    watched.after(1, partitions=fewer)
    watched.after(SETTLE_SECONDS, partitions=fewer)
    assert watched.queries == 2


@pytest.mark.parametrize(
    ("joined", "fails", "members"),
    [(True, False, [FOREIGN_MEMBER]), (False, False, [SCORER_MEMBER]), (True, True, [SCORER_MEMBER])],
)
def test_the_query_is_repeated_while_a_problem_persists(joined: bool, fails: bool, members: list[GroupMember]) -> None:
    watched = WatchedGroup(*members)
    watched.fails = fails
    watched.after(0, joined=joined)
    watched.after(SETTLE_SECONDS, joined=joined)
    watched.after(RETRY_SECONDS, joined=joined)
    assert watched.queries == 2


def test_a_query_whose_process_is_aborted_leaves_the_members_unknown_and_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    aborted = IsolatedGroups(KafkaSettings(bootstrap_servers="b:1"), "c", ("sh", "-c", "kill -ABRT $$"))
    queries: list[str] = []

    def query() -> list[GroupMember]:
        queries.append("n")
        return described(aborted, "n")

    reported_counts: list[int] = []
    watch = ForeignMembers("n", query, reported_counts.append)
    watch.tick(0, joined=True, partitions=PLACES)
    watch.tick(SETTLE_SECONDS, joined=True, partitions=PLACES)
    until(lambda: watch._answer is not None and watch._answer.done(), "the end of the query")
    watch.tick(SETTLE_SECONDS + 1, joined=True, partitions=PLACES)
    assert "the members of the group are not known yet" in caplog.text
    assert reported_counts == []
    watch.tick(SETTLE_SECONDS + RETRY_SECONDS, joined=True, partitions=PLACES)
    assert len(queries) == 1, "the query is not repeated before RETRY_SECONDS"
    watch.tick(SETTLE_SECONDS + 1 + RETRY_SECONDS, joined=True, partitions=PLACES)
    until(lambda: len(queries) == 2, "the second query")


def test_a_due_query_waits_until_a_broker_answers() -> None:
    watched = WatchedGroup(SCORER_MEMBER)
    watched.after(0, joined=False)
    for _ in range(10):
        watched.after(RETRY_SECONDS, joined=False, brokers_answer=False)
    assert watched.queries == 0
    watched.after(1, joined=False)
    assert watched.queries == 1


def test_the_same_members_are_logged_seldom_and_others_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    watched = WatchedGroup(FOREIGN_MEMBER)
    watched.after(0)
    watched.after(SETTLE_SECONDS)
    for _ in range(int(REPEAT_SECONDS / RETRY_SECONDS)):
        watched.after(RETRY_SECONDS)
    assert len(caplog.records) == 2
    watched.members = [FOREIGN_MEMBER, GroupMember("other", "/10.0.0.8", 1)]
    watched.after(RETRY_SECONDS)
    assert len(caplog.records) == 3
    watched.members = [FOREIGN_MEMBER._replace(partitions=1), GroupMember("other", "/10.0.0.8", 2)]
    watched.after(RETRY_SECONDS)
    assert len(caplog.records) == 3, "a rebalance among them is not a change of the members"
    watched.members = [SCORER_MEMBER]
    watched.after(RETRY_SECONDS)
    assert watched.watch.summary is None
    assert watched.reported_counts[-1] == 0


def test_a_client_id_cannot_write_to_a_terminal() -> None:
    assert str(GroupMember("\x1b[2J" + "x" * 1_000, "/h", 1)) == f"client id '?[2J{'x' * 96}' on host h (1 partition)"
